"""A sheet of an owner's own pictures as the federation will have them; it stays on the machine."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedlens.models.shapes import ImageShape

EACH, MOST_CLASSES = 8, 40
GAP, LEAST_SIDE = 2, 48


class Looks:
    """The first pictures of each class, a row a class."""

    def __init__(self, classes: Sequence[str], shape: ImageShape) -> None:
        self._rows = min(len(classes), MOST_CLASSES)
        self._shape = shape
        self._kept: dict[int, list[NDArray[np.uint8]]] = {}

    def add(self, label: int, pixels: NDArray[np.uint8]) -> None:
        """Keep a picture uint8 [channels, side, side], if its class has room."""
        if label < self._rows and len(self._kept.setdefault(label, [])) < EACH:
            self._kept[label].append(pixels)

    def png(self) -> bytes:
        """The sheet; pixels are repeated, never smoothed."""
        times = max(1, -(-LEAST_SIDE // self._shape[1]))
        side = times * self._shape[1] + GAP
        sheet = np.full((self._rows * side, EACH * side, 3), 128, np.uint8)
        for label, pictures in self._kept.items():
            for place, pixels in enumerate(pictures):
                large = np.repeat(np.repeat(np.moveaxis(pixels, 0, 2), times, 0), times, 1)
                top, left = label * side, place * side
                sheet[top : top + side - GAP, left : left + side - GAP] = large
        file = io.BytesIO()
        Image.fromarray(sheet).save(file, "PNG")
        return file.getvalue()
