"""Contact sheets side by side, for what differs between ways of drawing or between runs."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

CAPTION_SIZE, CAPTION_WIDTH = 6, 70
WIDE = 3.6
"""Inches a sheet."""


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

    Args:
        sheets: at least one, with images of one size.
        rows: samples a class at most.
        path: PNG file to write.
    """
    tiles = [_tiled(sheet, rows) for sheet in sheets]
    height = WIDE * tiles[0].shape[0] / tiles[0].shape[1] + 0.7
    figure = Figure(figsize=(WIDE * len(sheets), height), layout="constrained")
    for axes, sheet, tile in zip(
        figure.subplots(1, len(sheets), squeeze=False)[0], sheets, tiles, strict=True
    ):
        axes.imshow(tile, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
        axes.set_title(sheet.title, fontsize=10)
        caption = textwrap.fill(sheet.caption, CAPTION_WIDTH, break_on_hyphens=False)
        axes.set_xlabel(caption, fontsize=CAPTION_SIZE)
        axes.set(xticks=[], yticks=[])
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


def _tiled(sheet: Sheet, rows: int) -> NDArray[np.uint8]:
    """uint8 [rows x height, classes x width] or with 3 colours last; what lacks is black."""
    _, channels, height, width = sheet.images.shape
    classes = sorted(set(sheet.labels.tolist()))
    tile = np.zeros((rows * height, len(classes) * width, channels), np.uint8)
    for column, name in enumerate(classes):
        for row, image in enumerate(sheet.images[sheet.labels == name][:rows]):
            there = slice(row * height, (row + 1) * height)
            tile[there, column * width : (column + 1) * width] = np.moveaxis(image, 0, 2)
    return tile[..., 0] if channels == 1 else tile
