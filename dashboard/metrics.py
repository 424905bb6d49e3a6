"""``GET /metrics``: how many runs of the dashboard's store are in which state, for Prometheus.

Nothing of people who label, of samples or of users. It needs a session, or the access token as a
bearer token.
"""

from __future__ import annotations

import anyio
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from fedlens.store import Store, StoreError

PATH = "/metrics"
STATES = ("running", "finished", "stopped-by-budget", "interrupted", "failed")


def metrics_route(store: Store) -> Route:
    """The route, over a store."""

    async def endpoint(_: Request) -> Response:
        try:
            text = await anyio.to_thread.run_sync(metrics_page, store)
        except StoreError:
            return PlainTextResponse("fedlens_dashboard_store_up 0\n")
        return PlainTextResponse(text)

    return Route(PATH, endpoint, methods=["GET"])


def metrics_page(store: Store) -> str:
    """The page's text."""
    runs = store.runs()
    lines = ["# TYPE fedlens_dashboard_store_up gauge", "fedlens_dashboard_store_up 1"]
    lines.append("# TYPE fedlens_dashboard_runs gauge")
    for state in STATES:
        count = sum(run.status == state for run in runs)
        lines.append(f'fedlens_dashboard_runs{{state="{state}"}} {count}')
    return "\n".join(lines) + "\n"
