"""The history of a run's tags."""

from __future__ import annotations

import streamlit as st

from fedlens.dashboard.access.session import store
from fedlens.dashboard.widgets.markup import tag, text
from fedlens.store import RunRecord, TagEntry

SHOWN = 100
"""Lines of a run's history of tags, the last ones."""


def render_tag_history(run: RunRecord) -> None:
    """Who gave and took which tags of the run's samples, by day; nothing where there were none."""
    entries = store().tag_history(run.run_id, limit=SHOWN)
    if entries:
        with st.expander("History of tags"):
            st.html(f'<dl class="facts history">{"".join(map(_line, entries))}</dl>')


def _line(entry: TagEntry) -> str:
    several = f"{entry.samples:,} samples" if entry.samples != 1 else "1 sample"
    did = "given to" if entry.added else "taken from"
    return (
        f"<dt>{entry.day:%Y-%m-%d}<br>{text(entry.actor)}</dt>"
        f"<dd>{tag(entry.tag)} {did} {several}</dd>"
    )
