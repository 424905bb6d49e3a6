"""A list of runs, searched, filtered and sorted in the browser without a redrawn page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import streamlit as st

from fedlens.dashboard.widgets.display import asset
from fedlens.store import SavedView

MOST_PLOTTED = 12
"""Runs whose figures are drawn together at most: more lines are not told apart."""
_ROWS = st.components.v2.component(
    "fedlens_rows", html="<div></div>", css=asset("rows.css"), js=asset("rows.js")
)


@dataclass(frozen=True)
class Views:
    """Views of the list that were saved, and how one is saved."""

    saved: Sequence[SavedView] = ()
    save: Callable[[str, str | None], None] | None = None
    """Given a name and its address, or None to delete it; None where the visitor may not."""


@dataclass(frozen=True)
class Said:
    """What the visitor did on the list."""

    opened: tuple[str, str] | None = None
    """The page and the run of a link that was just followed."""
    ticked: list[str] = field(default_factory=list)
    """The runs whose figures are drawn together."""


def rows(shown: Sequence[Mapping[str, Any]], *, key: str, views: Views | None = None) -> Said:
    """Put the list on the page.

    Args:
        shown: of each run ``id``, ``picture`` (an address, or empty) and, for each column, ``text``
            and ``order``; also ``kind`` of a tag, ``under`` for a second line, ``page`` for a link.
        key: of the widget.
        views: those that were saved.
    """
    views = views or Views()

    def saved() -> None:
        _save(views, getattr(st.session_state.get(key), "saved", None))

    known = [str(one["id"]) for one in shown]
    state = st.session_state.get(key)
    data = {
        "rows": list(shown),
        "views": [{"name": one.name, "address": one.address} for one in views.saved],
        "may_save": views.save is not None,
        "ticked": _ticked(state, known),
        "most": MOST_PLOTTED,
    }
    said = _ROWS(
        data=data,
        key=key,
        on_opened_change=lambda: None,
        on_saved_change=saved,
        on_ticked_change=lambda: None,
    )
    return Said(_opened(getattr(said, "opened", None), shown, known), _ticked(said, known))


def _save(views: Views, said: object) -> None:
    if views.save is None or not isinstance(said, Mapping):
        return
    name, address = said.get("name"), said.get("address")
    if isinstance(name, str) and isinstance(address, str | None):
        views.save(name, address)


def _ticked(said: object, known: Sequence[str]) -> list[str]:
    """The ticked runs that the list has, in its order."""
    ticked = getattr(said, "ticked", None)
    there = {one for one in ticked if isinstance(one, str)} if isinstance(ticked, list) else set()
    return [one for one in known if one in there][:MOST_PLOTTED]


def _opened(
    said: object, shown: Sequence[Mapping[str, Any]], known: Sequence[str]
) -> tuple[str, str] | None:
    if not isinstance(said, dict):
        return None
    pages = {str(cell.get("page", "")) for one in shown for cell in one.values() if _cell(cell)}
    run, page = str(said.get("run")), str(said.get("page"))
    return (page, run) if page in pages | {"samples"} and run in known else None


def _cell(value: object) -> bool:
    return isinstance(value, dict)
