"""Pictures that lie in a table's cells: a column a pixel, or all of a picture's pixels in one."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedlens.data.formats.records import SourceError
from fedlens.data.labelled.tables import read_rows

LEAST, MOST = 49, 2**20
"""Pixels of a picture: 7 x 7 to a million."""
TOGETHER = "pixels"
"""The column of a picture's numbers with blanks between them (FER2013)."""
_NUMBERED = re.compile(r"(.*?)[ _.-]?(\d+)$")
_PLACED = re.compile(r"(\d+)x(\d+)$")
STEMS = ("pixel", "px", "pix", "p", "")
DARKEST_WHITE = 64
"""Below which the largest value of a table's whole numbers is no pixel's of 0 to 255."""


@dataclass(frozen=True)
class PixelColumns:
    """Where a row's pixels are, and what they are multiplied with to be bytes.

    Attributes:
        names: columns of pixels, in the order of rows from the top; one name: all in that column.
        shape: [h, w] or [h, w, 3].
        factor: 1 for bytes, 255 for shares of white.
    """

    names: tuple[str, ...]
    shape: tuple[int, ...]
    factor: float = 1.0

    def numbers(self, row: dict[str, str]) -> NDArray[np.float64]:
        """A row's pixels as they stand there.

        Raises:
            ValueError: one is no number, or they are not as many as they should be.
        """
        cells = [row[name] for name in self.names] if len(self.names) > 1 else _split(
            row[self.names[0]])  # fmt: skip
        found = np.array(list(map(float, cells)), np.float64)
        if found.size != math.prod(self.shape) or not bool(np.isfinite(found).all()):
            raise ValueError("no pixels")
        return found

    def picture(self, row: dict[str, str]) -> NDArray[np.uint8]:
        """A row's picture.

        Raises:
            ValueError: as above.
        """
        return np.rint(self.factor * self.numbers(row)).astype(np.uint8).reshape(self.shape)


def pixel_columns(first: dict[str, str], stem: str = "") -> PixelColumns | None:
    """The columns of pixels of a table's first row; None where it has none.

    Columns are ``pixel0``, ``pixel1``, ... (or ``px``, ``p``, bare numbers), ``1x1``, ``1x2``, ...
    or ``STEM`` and a number; as many as a square picture has pixels, grey or in red, green and
    blue by turns. Or one column ``pixels``.

    Args:
        first: a row.
        stem: what its columns are called before the number, where they are called otherwise.
    """
    for name, value in first.items():
        if name.casefold() == (stem or TOGETHER).casefold() and len(_split(value)) >= LEAST:
            shape = square_of(len(_split(value)))
            return None if shape is None else PixelColumns((name,), shape)
    names = _placed(first) or _numbered(first, (stem,) if stem else STEMS)
    shape = square_of(len(names))
    return None if shape is None else PixelColumns(tuple(names), shape)


def pixel_stems(first: dict[str, str]) -> list[str]:
    """What columns that may be pixels are called before their number."""
    stems = dict.fromkeys(
        place[1] for name in first if (place := _NUMBERED.match(name)) is not None and place[1]
    )
    return [stem for stem in stems if pixel_columns(first, stem) is not None]


def with_scale(table: Path, found: PixelColumns) -> PixelColumns:
    """The same with its factor: whole numbers to 255 are bytes, numbers to 1 shares of white.

    All rows count, so that pictures are as bright beside each other as they were.

    Raises:
        SourceError: they are neither, or no row has pixels.
        PrivateDataError: the table cannot be read.
    """
    least, most, whole = _range(table, table.stat().st_mtime_ns, found)
    if least == math.inf:
        raise SourceError(
            f"{table}: no row has numbers in all columns of pixels; give such rows, fractions with "
            "a point (0.5)"
        )
    factor = pixel_factor(least, most, whole)
    if factor is None:
        raise SourceError(
            f"{table}: its pixels are numbers from {least:g} to {most:g}; write whole numbers from "
            "0 (black) to 255 (white), or shares of white from 0 to 1"
        )
    return PixelColumns(found.names, found.shape, factor)


@lru_cache(maxsize=8)  # a source is read several times
def _range(table: Path, changed: int, found: PixelColumns) -> tuple[float, float, bool]:
    """The least and the greatest of a table's pixels, and whether each is whole."""
    least, most, whole = math.inf, -math.inf, True
    for _, row in read_rows(table):
        try:
            numbers = found.numbers(row or {})
        except (KeyError, ValueError):
            continue
        least, most = min(least, float(numbers.min())), max(most, float(numbers.max()))
        whole = whole and bool((numbers == np.rint(numbers)).all())
    return least, most, whole


def pixel_factor(least: float, most: float, whole: bool) -> float | None:
    """What makes bytes of pixels: 1 where they are whole numbers to 255, 255 of shares of white.

    None where they are neither: a scale that is guessed would be another at each node.

    Args:
        least: of all of them.
        most: of all of them.
        whole: whether each is a whole number.
    """
    if least >= 0 and most <= 1:
        return 255.0
    return 1.0 if least >= 0 and DARKEST_WHITE <= most <= 255 and whole else None


def _split(cell: str) -> list[str]:
    return cell.replace(",", " ").strip("[] ").split()


def _placed(first: dict[str, str]) -> list[str]:
    """Columns that are named by row and column, ``1x1`` to ``28x28``, in that order."""
    found = {
        (int(place[1]), int(place[2])): name
        for name in first
        if (place := _PLACED.match(name)) is not None
    }
    return [found[place] for place in sorted(found)]


def _numbered(first: dict[str, str], stems: tuple[str, ...]) -> list[str]:
    """Columns of one of these stems, numbered without a gap from 0 or 1."""
    for stem in stems:
        found = {
            int(place[2]): name
            for name in first
            if (place := _NUMBERED.match(name)) is not None
            and place[1].casefold() == stem.casefold()
        }
        numbers = sorted(found)
        if len(numbers) >= LEAST and numbers == list(range(numbers[0], numbers[0] + len(numbers))):
            return [found[number] for number in numbers]
    return []


def square_of(count: int) -> tuple[int, ...] | None:
    """Height and width (and channels) of a square picture of so many numbers."""
    for channels in (1, 3):
        side = math.isqrt(count // channels)
        if count >= LEAST and count <= MOST and channels * side * side == count:
            return (side, side) if channels == 1 else (side, side, 3)
    return None
