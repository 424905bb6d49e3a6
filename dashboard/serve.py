"""Serve the dashboard: one process, one port, open to holders of the access token alone."""

from __future__ import annotations

import gc
import ipaddress
import logging
import os
import socket
import sys
import threading
import webbrowser
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fedlens.dashboard.access.provider import Provider, read_provider
from fedlens.dashboard.access.workspace import RUNS_VARIABLE, STORES, owner_of
from fedlens.dashboard.widgets.options import (
    COOKIE_VARIABLE,
    STORE_VARIABLE,
    USER_VARIABLE,
    DashboardError,
    apply_options,
)
from fedlens.foundation.registry import PluginError
from fedlens.store import Store, StoreError, open_store

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route
    from streamlit.starlette import App

    from fedlens.dashboard.access.auth import SessionTokens

MAIN_SCRIPT = Path(__file__).with_name("main.py")
DEFAULT_PORT = 8501
STATES = ("running", "finished", "stopped-by-budget", "interrupted", "failed")
"""Of runs, as the metrics count them."""
# Open websockets would hold up the end of the process; Streamlit's pages reconnect by themselves.
SHUTDOWN_SECONDS = 2


def serve(
    store_url: str,
    *,
    host: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    token: str | None = None,
    open_browser: bool = False,
    allow_remote: bool = False,
    user: str = "local",
    folder: Path | None = None,
    provider: Path | None = None,
    announce: Callable[[str], None] | None = None,
) -> None:
    """Serve the dashboard over a store until interrupted (Ctrl-C or SIGTERM).

    Nothing is sent to any other machine but an identity provider that is named. Every page, file
    and websocket needs the access token or an account.

    Args:
        store_url: of the store, as ``open_store`` takes it.
        host: address to listen on; other machines reach only one that is not loopback.
        port: TCP port; 0 takes any free one.
        token: access token, at least 16 characters; a random one is made where it is left out.
        open_browser: also open the page in this machine's browser.
        allow_remote: permit a ``host`` that other machines reach. The connection is not encrypted:
            put a TLS proxy in front.
        user: name of the account that the access token opens.
        folder: the workspace: runs below it are shown too, whatever store knows them.
        provider: TOML file with the team's identity provider; None for none.
        announce: is given the link, token included, once the page answers; default: standard error.

    Raises:
        StoreError: the store is missing or at another revision.
        DashboardError: the port is taken, other machines reach the host without ``allow_remote``,
            the token is too short, or the provider's file cannot be used.
    """
    _check_host(host, allow_remote)
    identities = None if provider is None else read_provider(provider)
    open_store(store_url).close()
    if folder is not None:
        os.environ[RUNS_VARIABLE] = str(folder.absolute())
    listener = _listen(host, port)
    try:
        _serve_on(
            listener, store_url, host, token, user, identities, _speaker(announce, open_browser)
        )
    finally:
        listener.close()


def _serve_on(
    listener: socket.socket,
    store_url: str,
    host: str,
    token: str | None,
    user: str,
    provider: Provider | None,
    speak: Callable[[str], None],
) -> None:
    os.environ.update({STORE_VARIABLE: str(store_url), USER_VARIABLE: user})
    apply_options()
    # Late, so that a wrong argument is refused before anything slow is loaded.
    import uvicorn

    from fedlens.dashboard.access.auth import SessionTokens, new_token

    port = listener.getsockname()[1]
    token = token or new_token()
    link = f"http://{_in_url(host)}:{port}/?token={token}"
    store = open_store(store_url)
    tokens = SessionTokens(token, port, store, user, provider)
    os.environ[COOKIE_VARIABLE] = tokens.cookie
    app = _application(tokens, store, lambda: speak(link))
    # The access log would write the token of every opened link.
    config = uvicorn.Config(
        app, access_log=False, log_level="warning", timeout_graceful_shutdown=SHUTDOWN_SECONDS
    )
    with store:
        uvicorn.Server(config).run(sockets=[listener])


def _application(tokens: SessionTokens, store: Store, started: Callable[[], None]) -> App:
    from starlette.middleware import Middleware
    from streamlit.starlette import App

    from fedlens.dashboard.access.auth import AuthMiddleware
    from fedlens.dashboard.jobs import end_all
    from fedlens.dashboard.labelling.desk_api import desk_routes
    from fedlens.dashboard.samples.gallery_api import gallery_routes
    from fedlens.dashboard.summary.thumbnails import thumbnail_route

    @asynccontextmanager
    async def lifespan(_app: App) -> AsyncIterator[None]:
        started()
        threading.Thread(target=load_libraries, daemon=True).start()
        yield
        end_all()

    return App(
        MAIN_SCRIPT,
        lifespan=lifespan,
        routes=[
            *desk_routes(store, lambda: STORES.others(store)),
            *gallery_routes(store, partial(owner_of, store)),
            thumbnail_route(partial(owner_of, store)),
            metrics_route(store),
        ],
        middleware=[Middleware(AuthMiddleware, tokens=tokens)],
        on_script_error=_log_error,
    )


def load_libraries() -> None:
    """Load the pages and what draws charts while nobody waits: the first one would take longer.

    Streamlit collects garbage after each turn of a page, on the thread that its next click needs:
    through all objects of all libraries that is a quarter of a second. They live as long as the
    process, so the collector is told to pass over them.
    """
    import altair

    from fedlens.dashboard.widgets.display import frame
    from fedlens.dashboard.widgets.pages import PAGES
    from fedlens.store import EXPORTERS

    for registry in (PAGES, EXPORTERS):
        for name in registry:
            with suppress(PluginError):  # what cannot be loaded says so on the screen
                _ = registry[name]
    # The first chart that is written out loads what writes charts.
    altair.Chart(frame([{"x": 0}])).mark_line().encode(x="x:Q").to_dict()
    gc.collect()
    gc.freeze()


def _log_error(error: Exception) -> None:
    """Keep the trace in the server's log; the page names only the error's type."""
    logging.getLogger("fedlens.dashboard").error("a page failed", exc_info=error)


def _speaker(announce: Callable[[str], None] | None, open_browser: bool) -> Callable[[str], None]:
    def speak(link: str) -> None:
        (announce or _announce)(link)
        if open_browser:
            webbrowser.open(link)

    return speak


def _announce(link: str) -> None:
    sys.stderr.write(f"Dashboard: {link}\nStop it with Ctrl-C.\n")
    sys.stderr.flush()


def _check_host(host: str, allow_remote: bool) -> None:
    if not allow_remote and not _is_loopback(host):
        raise DashboardError(
            f"host = {host!r} lets other machines reach the dashboard: leave it at 127.0.0.1, or "
            "pass --allow-remote and put a TLS proxy in front"
        )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _listen(host: str, port: int) -> socket.socket:
    """A socket listening on ``host``: taken before anything slow, so that a taken port shows."""
    if not 0 <= port <= 65535:
        raise DashboardError(f"port = {port} cannot be used: give --port 0 to 65535")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise DashboardError(
            f"port {port} on {host} cannot be used ({error.strerror}): is another dashboard "
            "running? Stop it or choose another port with --port"
        ) from error
    return listener


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def metrics_route(store: Store) -> Route:
    """``GET /metrics``: how many runs of the store are in which state, for Prometheus.

    Nothing of people who label, of samples or of users. It needs a session, or the access token as
    a bearer token.
    """
    import anyio
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route

    from fedlens.dashboard.access.auth import METRICS_PATH

    async def endpoint(_: Request) -> Response:
        try:
            text = await anyio.to_thread.run_sync(_metrics_page, store)
        except StoreError:
            return PlainTextResponse("fedlens_dashboard_store_up 0\n")
        return PlainTextResponse(text)

    return Route(METRICS_PATH, endpoint, methods=["GET"])


def _metrics_page(store: Store) -> str:
    runs = store.runs()
    lines = ["# TYPE fedlens_dashboard_store_up gauge", "fedlens_dashboard_store_up 1"]
    lines.append("# TYPE fedlens_dashboard_runs gauge")
    for state in STATES:
        count = sum(run.status == state for run in runs)
        lines.append(f'fedlens_dashboard_runs{{state="{state}"}} {count}')
    return "\n".join(lines) + "\n"
