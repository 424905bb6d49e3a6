"""What a child process reads of ARFF files (Weka, OpenML, UCI): rows of numbers and names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from scipy.io.arff import loadarff

from fedlens.data.isolated.process import Piece

ROWS = 512


def read_rows(path: Path) -> Iterator[Piece]:
    """Pieces of ``rows``, each a place and texts; the first row has the attributes' names.

    SciPy reads numbers, names (nominal attributes) and dates, no texts and no sparse rows.
    """
    data, meta = loadarff(str(path))
    yield {"rows": [(0, list(meta.names()))]}, b""
    for start in range(0, len(data), ROWS):
        some = data[start : start + ROWS]
        rows = [(start + at + 1, [_text(one) for one in row]) for at, row in enumerate(some)]
        yield {"rows": rows}, b""


def _text(value: object) -> str:
    if isinstance(value, bytes):
        text = value.decode("utf-8", "replace").strip()
        return "" if text == "?" else text
    if isinstance(value, float) and value != value:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
