"""Figures as people read them, and tables of them on the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

Value = str | int | float | bool | None
Row = dict[str, Value]  # One line of a study's results: a flat JSON object
_FILE_WIDTH = 1000  # Columns of what is not a terminal: nothing is wrapped there


def percent(value: float | None, digits: int = 1) -> str:
    """A share in percent, or a dash."""
    return "–" if value is None else f"{100 * value:.{digits}f}"


def decimals(value: float | None, digits: int) -> str:
    """A number, or a dash."""
    return "–" if value is None else f"{value:.{digits}f}"


def number(row: Row, name: str) -> float:
    """A row's figure, for plots; NaN where it has none."""
    value = row.get(name)
    return float(value) if isinstance(value, int | float) else math.nan


def shown(value: Value) -> str:
    """A value of a row: numbers to four decimals, or one where they are large."""
    if isinstance(value, float):
        return f"{value:.4f}" if abs(value) < 10 else f"{value:.1f}"
    return "-" if value is None else str(value)


def table_of(rows: Iterable[Mapping[str, Value]], columns: Sequence[str]) -> Table:
    """The named columns of rows, numbers to the right."""
    return text_table(columns, [[shown(row.get(name)) for name in columns] for row in rows])


def text_table(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, title: str | None = None, left: int = 0
) -> Table:
    """Texts in columns, of which the first ``left`` start at the left and the others end right."""
    table = Table(title=title, box=None, pad_edge=False, header_style="bold")
    for place, name in enumerate(head):
        table.add_column(Text(name), justify="left" if place < left else "right")
    for row in rows:
        table.add_row(*(Text(text) for text in row))
    return table


def print_table(table: Table) -> None:
    """Print to standard output, as wide as the terminal or, in a file, as the table needs."""
    console = Console(highlight=False)
    console.width = console.width if console.is_terminal else _FILE_WIDTH
    console.print(table)
