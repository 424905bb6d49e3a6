"""What a child process reads of MATLAB 5 files, piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy.io import loadmat

from fedlens.data.isolated.process import Piece

PICTURES = 512
"""Pictures at a time."""


def read_pictures(path: Path) -> Iterator[Piece]:
    """Bytes ``X`` [h, w, c, n] as pictures [h, w, c], with numbers ``y``.

    The first piece has their shapes (None where one is missing or of another kind of number); then
    come ``labels``, and the pixels beside them.
    """
    found = loadmat(path, variable_names=["X", "y"])
    pixels, labels = found.get("X"), found.get("y")
    sound = isinstance(pixels, np.ndarray) and pixels.dtype == np.uint8
    numbers = isinstance(labels, np.ndarray) and labels.dtype.kind in "iuf"
    yield {"X": pixels.shape if sound else None, "y": labels.shape if numbers else None}, b""
    flat = labels.reshape(-1).tolist()
    for start in range(0, pixels.shape[3], PICTURES):
        some = pixels[..., start : start + PICTURES]
        yield {"labels": flat[start : start + PICTURES]}, np.moveaxis(some, 3, 0).tobytes()
