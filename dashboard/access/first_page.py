"""Streamlit's own page, as it is sent to people."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files

from starlette.responses import HTMLResponse, Response

# Streamlit guesses its server's address from that of the page, and waits after each wrong guess.
BASE = '<script>window.__streamlit = {BACKEND_BASE_URL: new URL(".", location.href).href}</script>'


@lru_cache(maxsize=1)
def _first_page() -> str:
    """Streamlit's own page, which says where the server is; empty where it is another one."""
    try:
        found = files("streamlit").joinpath("static/index.html").read_text(encoding="utf-8")
    except OSError:
        return ""
    head, script, rest = found.partition("<script")
    return f"{head}{BASE}{script}{rest}" if script else ""


def known_page() -> Response | None:
    """The page's answer; None where Streamlit's own is another one."""
    page = _first_page()
    return HTMLResponse(page, headers={"cache-control": "no-cache"}) if page else None
