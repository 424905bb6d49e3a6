"""Tables and cards on a page, and the style sheet; the one place that knows pandas.

The two widgets of our own beside it, a sprite grid and a labelling desk, are plain JavaScript
shipped in the wheel, each registered once, at import. Their scripts talk to no server but the
page's own, and put text on the page as text, never as HTML.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd  # type: ignore[import-untyped]
import streamlit as st

from fedlens.dashboard.widgets.markup import card


def asset(name: str) -> str:
    """The text of a script or style of this package."""
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


STYLE = asset("theme.css")


def put_style() -> None:
    """Put the style sheet on the page; each run of a page needs it once."""
    st.html(f"<style>{STYLE}</style>")


def put_card(inner: str, kind: str = "") -> None:
    """Put a card on the page; see :func:`fedlens.dashboard.widgets.markup.card`."""
    st.html(card(inner, kind))


Frame: TypeAlias = pd.DataFrame


def frame(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None) -> Frame:
    """Rows as a data frame; ``columns`` gives it its columns even where there is no row."""
    return pd.DataFrame(list(rows), columns=columns)


def colour_column(table: Frame, column: str, style: Callable[[object], str]) -> Any:
    """The table with the CSS that ``style`` gives for each cell of one column."""
    return table.style.map(style, subset=[column])


def put_table(table: Any, alt: str, **more: Any) -> Any:
    """Put a table on the page, without row numbers."""
    return st.dataframe(table, hide_index=True, alt=alt, **more)


def table_height(rows: int) -> int:
    """Pixels for so many rows, of a table that scrolls beyond eight."""
    return min(320, 38 + 35 * rows)


def rows_of(table: Frame) -> list[dict[str, object]]:
    """The rows of a data frame, by column name."""
    return [{str(k): v for k, v in row.items()} for row in table.to_dict("records")]
