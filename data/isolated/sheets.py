"""What a child process reads of Excel workbooks (.xlsx), row by row."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

from openpyxl import load_workbook

from fedlens.data.isolated.process import Piece

ROWS = 512


def read_rows(path: Path) -> Iterator[Piece]:
    """Rows of a workbook's one sheet that has values: pieces of ``rows``, each a line and texts.

    Of formulas the values count that were there when it was saved; a date is told as ISO 8601 has
    it, a whole number without a point.

    Raises:
        ValueError: several sheets have values, or none.
    """
    book = load_workbook(path, read_only=True, data_only=True)
    sheets = [one for one in book.worksheets if next(_filled(one), None) is not None]
    if len(sheets) != 1:
        names = ", ".join(str(one.title)[:40] for one in sheets) or "no sheet with values"
        raise ValueError(f"it has {names}; keep one sheet, or save that one as CSV")
    rows: list[tuple[int, list[str]]] = []
    for one in _filled(sheets[0]):
        rows.append(one)
        if len(rows) == ROWS:
            yield {"rows": rows}, b""
            rows = []
    yield {"rows": rows}, b""


def _filled(sheet: Any) -> Iterator[tuple[int, list[str]]]:
    """Rows that have a value, with their line; empty cells behind the last value are gone."""
    for line, cells in enumerate(sheet.iter_rows(values_only=True), start=1):
        texts = [_text(value) for value in cells]
        while texts and not texts[-1]:
            texts.pop()
        if texts:
            yield line, texts


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, datetime) and value.time() == time():
        return value.date().isoformat()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    return str(value).strip()
