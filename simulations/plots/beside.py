"""Contact sheets side by side, for what differs between ways of drawing or between runs."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from fedlens.simulations.plots.run import BACKGROUND, INK, letters, sheet_columns

WIDE, GAP, LINE = 460, 14, 18
"""Pixels: of a sheet, about; between sheets; of a line of text."""
LETTER = 7
"""Pixels of a letter, about."""
LACKING = (206, 222, 238)


@dataclass(frozen=True)
class Sheet:
    """What one contact sheet shows."""

    title: str
    images: NDArray[np.uint8]
    """[n, channels, height, width]."""
    labels: NDArray[np.int64]
    caption: str
    """Provenance, which every sheet carries."""


def draw_beside(sheets: Sequence[Sheet], *, rows: int, path: Path) -> None:
    """Write a PNG of the sheets, a column a class in each, its title above and provenance below.

    Each pixel of a sample is a whole number of the picture's, so none is left out. Where a class
    has fewer samples than rows the place is light blue: black would be a sample of nothing.

    Args:
        sheets: at least one.
        rows: samples a class at most.
        path: PNG file to write.
    """
    drawn = [_drawn(sheet, rows) for sheet in sheets]
    width = sum(one.width + GAP for one in drawn) + GAP
    picture = Image.new("RGB", (width, max(one.height for one in drawn) + 2 * GAP), BACKGROUND)
    place = GAP
    for one in drawn:
        picture.paste(one, (place, GAP))
        place += one.width + GAP
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path)


def _drawn(sheet: Sheet, rows: int) -> Image.Image:
    """One sheet with its words."""
    tile = _tiled(sheet, rows)
    factor = max(1, round(WIDE / tile.shape[1]))
    enlarged = tile.repeat(factor, axis=0).repeat(factor, axis=1)
    height, width = enlarged.shape[:2]
    font = letters(12)
    title, caption = (
        textwrap.wrap(words, width // LETTER, break_on_hyphens=False)
        for words in (sheet.title, sheet.caption)
    )
    above = LINE * len(title) + 4
    whole = Image.new("RGB", (width, above + height + 4 + LINE * len(caption)), BACKGROUND)
    pen = ImageDraw.Draw(whole)
    for number, line in enumerate(title):
        pen.text((0, LINE * number), line, fill=INK, font=font)
    whole.paste(Image.fromarray(enlarged), (0, above))
    for number, line in enumerate(caption):
        pen.text((0, above + height + 4 + LINE * number), line, fill=INK, font=font)
    return whole


def _tiled(sheet: Sheet, rows: int) -> NDArray[np.uint8]:
    """uint8 [rows x height, classes x width, 3]."""
    _, _, height, width = sheet.images.shape
    labels, _ = sheet_columns(sheet.labels)
    classes = sorted(set(labels.tolist()))
    tile = np.full((rows * height, len(classes) * width, 3), LACKING, np.uint8)
    for column, name in enumerate(classes):
        for row, image in enumerate(sheet.images[labels == name][:rows]):
            there = slice(row * height, (row + 1) * height)
            tile[there, column * width : (column + 1) * width] = np.moveaxis(image, 0, 2)
    return tile
