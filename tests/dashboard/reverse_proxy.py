"""Reverse proxies, as people put them before the dashboard: a path of their own, other headers.

`nginx_proxy` is nginx itself, with the rules that the docs give. `reverse_proxy` is small: it reads
the head of each request and passes on everything else untouched, so that websockets work. HTTP
connections carry one request each.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

Headers = dict[str, str]
Rewrite = Callable[[Headers, int], None]
"""Given a request's headers, by names in small letters, and the dashboard's port; changes them."""


NGINX = shutil.which("nginx")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "annotate-as-a-team.md"
TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


def keep_host(headers: Headers, _: int) -> None:
    """As nginx does where it is told to pass on the Host, and as Jupyter's server proxy does."""


def rewrite_host(headers: Headers, port: int) -> None:
    """As proxies do that ask under another host and say in a header which one it was."""
    headers["x-forwarded-host"] = headers["host"]
    headers["host"] = f"127.0.0.1:{port}"


def rewrite_host_and_origin(headers: Headers, port: int) -> None:
    """As GitHub Codespaces does, by reports: the origin is the forwarded port's."""
    if headers.get("origin") == f"http://{headers['host']}":
        headers["origin"] = f"http://localhost:{port}"
    headers["x-forwarded-host"] = headers["host"]


@contextmanager
def reverse_proxy(port: int, prefix: str, rewrite: Rewrite) -> Iterator[str]:
    """Serve what answers on a port under a path of another one; its address, without a slash."""
    loop = asyncio.new_event_loop()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            passed = _pass_on(head, port, prefix, rewrite)
            if passed is None:
                writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
                writer.close()
                return
            inner, outer = await asyncio.open_connection("127.0.0.1", port)
            outer.write(passed.encode("latin-1"))
            await asyncio.gather(_pump(reader, outer), _pump(inner, writer))

    # A loop of another thread: the browser's own runs in this one.
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    begun = asyncio.start_server(answer, "127.0.0.1", 0)
    server = asyncio.run_coroutine_threadsafe(begun, loop).result()
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{prefix}"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


@contextmanager
def nginx_proxy(port: int) -> Iterator[str]:
    """Serve what answers on a port as the docs say to; its address, without a slash."""
    (rules,) = re.findall(r"```nginx\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert "http://127.0.0.1:8501/" in rules
    outside = _free_port()
    with tempfile.TemporaryDirectory() as folder:
        places = "".join(f"{name}_temp_path {folder}/{name};" for name in TEMPORARY)
        server = rules.replace("127.0.0.1:8501", f"127.0.0.1:{port}")
        main = Path(folder, "nginx.conf")
        main.write_text(
            f"pid {folder}/nginx.pid; error_log {folder}/error.log; daemon off; "
            f"master_process off; events {{}} http {{ access_log off; {places} "
            f"server {{ listen 127.0.0.1:{outside}; {server} }} }}"
        )
        command = [str(NGINX), "-e", f"{folder}/error.log", "-c", str(main)]
        with subprocess.Popen(command) as running:
            try:
                _wait_for(outside)
                yield f"http://127.0.0.1:{outside}/fedlens"
            finally:
                running.terminate()


def _free_port() -> int:
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        return int(asked.getsockname()[1])


def _wait_for(port: int) -> None:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)
    raise AssertionError(f"nginx does not listen on {port}")


def _pass_on(head: str, port: int, prefix: str, rewrite: Rewrite) -> str | None:
    """The head as the dashboard gets it; None for a path that is not the proxy's."""
    first, *lines = head.rstrip("\r\n").split("\r\n")
    method, target, version = first.split(" ")
    if not target.startswith(f"{prefix}/"):
        return None
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    if "upgrade" not in headers:
        headers["connection"] = "close"
    rewrite(headers, port)
    said = [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([f"{method} {target.removeprefix(prefix)} {version}", *said, "", ""])


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while content := await source.read(1 << 16):
            target.write(content)
            await target.drain()
    with suppress(OSError):
        target.close()
