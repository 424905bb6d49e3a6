"""A list of runs, searched, filtered and sorted in the browser without a redrawn page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from fedlens.dashboard.widgets.display import asset

_ROWS = st.components.v2.component(
    "fedlens_rows", html="<div></div>", css=asset("rows.css"), js=asset("rows.js")
)


def rows(shown: Sequence[Mapping[str, Any]], *, key: str) -> tuple[str, str] | None:
    """Put the list on the page; the page and the run of a link that was just followed.

    Args:
        shown: of each run ``id``, ``picture`` (an address, or empty) and, for each column, ``text``
            and ``order``; also ``kind`` of a tag, ``under`` for a second line, ``page`` for a link.
        key: of the widget.
    """
    said = _ROWS(data={"rows": list(shown)}, key=key, on_opened_change=lambda: None)
    opened = getattr(said, "opened", None)
    if not isinstance(opened, dict):
        return None
    pages = {str(cell.get("page", "")) for one in shown for cell in one.values() if _cell(cell)}
    run = str(opened.get("run"))
    page = str(opened.get("page"))
    known = page in pages | {"samples"} and any(one["id"] == run for one in shown)
    return (page, run) if known else None


def _cell(value: object) -> bool:
    return isinstance(value, dict)
