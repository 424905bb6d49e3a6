"""The one scaling of pixels, bytes to [-1, 1] and back: fixed and public, no data enter it."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def from_pixels(pixels: NDArray[np.uint8]) -> Tensor:
    """Float32 in [-1, 1] of bytes of any shape; the same bits on every machine."""
    return torch.from_numpy(pixels.astype(np.float32) / 127.5 - 1)


def as_pixels(images: Tensor) -> NDArray[np.uint8]:
    """Images in [-1, 1] as bytes of the same shape; what lies outside is cut."""
    pixels = ((images + 1) * 127.5).round().clamp(0, 255)
    return pixels.to(torch.uint8).cpu().numpy()
