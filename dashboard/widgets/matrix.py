"""A table of counts, coloured by the share of each row; a click on a cell picks it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import streamlit as st

from fedlens.dashboard.widgets.display import asset

_STYLE = """
.matrix { overflow-x: auto; font: 0.9rem var(--st-font); color: var(--ink); }
.matrix table { border-collapse: separate; border-spacing: 2px; }
.matrix caption { text-align: left; color: var(--quiet); padding-bottom: 0.4rem; }
.matrix th { font-weight: 600; color: var(--quiet); padding: 0.2rem 0.5rem; text-align: right; }
.matrix td { padding: 0; min-width: 3rem; background: var(--well); border-radius: 4px; }
.matrix button {
  width: 100%; padding: 0.4rem 0.5rem; border: 2px solid transparent; border-radius: 4px;
  font: inherit; font-variant-numeric: tabular-nums; color: inherit; cursor: pointer;
  background: color-mix(in srgb, var(--found) var(--share), var(--card));
}
.matrix button.expected { background: color-mix(in srgb, var(--good) var(--share), var(--card)); }
.matrix button:hover, .matrix button[aria-pressed="true"] { border-color: var(--ink); }
.matrix button:focus-visible { outline: 3px solid var(--accent); outline-offset: 1px; }
"""
_MATRIX = st.components.v2.component(
    "fedlens_matrix", html="<div></div>", css=_STYLE, js=asset("matrix.js")
)


def matrix(
    counts: Sequence[Sequence[int]],
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    title: str,
    corner: str,
    expected: Sequence[int],
    picked: tuple[int, int] | None,
    key: str,
    on_pick: Callable[[int, int], None],
) -> None:
    """Put the table on the page.

    Args:
        counts: a list for each row.
        rows: what each is called.
        columns: what each is called.
        title: above it.
        corner: what rows are.
        expected: of each row the column where all would be, or -1; it is green, others orange.
        picked: row and column of the cell that is framed.
        key: of the widget.
        on_pick: given row and column of a cell that was clicked.
    """

    def chosen() -> None:
        said = getattr(st.session_state.get(key), "picked", None)
        if isinstance(said, list) and len(said) == 2 and _fits(said, len(rows), len(columns)):
            on_pick(said[0], said[1])

    data = {
        "counts": [list(row) for row in counts],
        "rows": list(rows),
        "columns": list(columns),
        "title": title,
        "corner": corner,
        "expected": list(expected),
        "picked": list(picked or (-1, -1)),
    }
    _MATRIX(data=data, key=key, on_picked_change=chosen)


def _fits(said: Sequence[object], rows: int, columns: int) -> bool:
    row, column = said
    whole = isinstance(row, int) and isinstance(column, int)
    return whole and 0 <= row < rows and 0 <= column < columns  # type: ignore[operator]
