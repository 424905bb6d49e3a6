"""A dashboard in a process of its own, and how Debian's browser is started."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

TOKEN = "token-of-the-tests-0123456789"
LINK = re.compile(r"http://127\.0\.0\.1:(\d+)/\?token=\S+")
SERVE = (
    "import sys; from pathlib import Path; from fedlens.dashboard.serve import serve; "
    "folder = Path(sys.argv[4]) if sys.argv[4] else None; "
    "provider = Path(sys.argv[5]) if sys.argv[5] else None; "
    "serve(sys.argv[1], token=sys.argv[2], port=int(sys.argv[3]), folder=folder, "
    "provider=provider)"
)
CHROMIUM = Path("/usr/bin/chromium")
CHROMIUM_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    "--disable-dev-shm-usage",
)


@dataclass
class Served:
    """A dashboard that runs in a process of its own."""

    port: int
    process: subprocess.Popen[str]
    log: Path

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def link(self) -> str:
        return f"{self.address}/?token={TOKEN}"


def start_dashboard(
    url: str,
    folder: Path,
    port: int = 0,
    *,
    workspace: Path | None = None,
    provider: Path | None = None,
) -> Served:
    """Serve a store on a port, any free one by default; returns once pages are answered.

    Args:
        url: of the store.
        folder: where it runs and writes its log.
        port: 0 for any free one.
        workspace: a folder whose runs are shown too, as `fedlens dashboard FOLDER` does.
        provider: file with an identity provider.
    """
    log = folder / "dashboard.log"
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            SERVE,
            url,
            TOKEN,
            str(port),
            str(workspace or ""),
            str(provider or ""),
        ],
        stderr=subprocess.PIPE,
        stdout=log.open("w"),
        text=True,
        cwd=folder,
    )
    assert process.stderr is not None
    for line in process.stderr:
        found = LINK.search(line)
        if found:
            return Served(int(found[1]), process, log)
    raise AssertionError(f"the dashboard ended with status {process.wait()}")


def stop_dashboard(served: Served) -> str:
    """End it as Ctrl-C does; what it wrote after its link."""
    served.process.terminate()
    _, errors = served.process.communicate(timeout=20)
    return errors + served.log.read_text()
