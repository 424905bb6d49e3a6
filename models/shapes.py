"""The image shapes the networks are built for, and checks that name what is wrong.

An image batch is float32, NCHW, with pixels in [-1, 1] (``uint8 / 127.5 - 1``, a fixed public
scaling: nothing about the data enters it). Labels are int64 class numbers.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from fedlens.foundation.errors import FedlensError

# The one scaling of pixels, bytes to [-1, 1] and back: fixed and public, no data enter it.


def from_pixels(pixels: NDArray[np.uint8]) -> Tensor:
    """Float32 in [-1, 1] of bytes of any shape; the same bits on every machine."""
    return torch.from_numpy(pixels.astype(np.float32) / 127.5 - 1)


def as_pixels(images: Tensor) -> NDArray[np.uint8]:
    """Images in [-1, 1] as bytes of the same shape; what lies outside is cut."""
    return as_bytes(images).cpu().numpy()


def as_bytes(images: Tensor) -> Tensor:
    """The same as a tensor: a quarter of the memory."""
    return ((images + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)


def from_bytes(pixels: Tensor) -> Tensor:
    """Float32 in [-1, 1] of bytes; images that are no bytes stay as they are."""
    return pixels.float() / 127.5 - 1 if pixels.dtype == torch.uint8 else pixels


ImageShape = tuple[int, int, int]
"""(channels, height, width): 1 or 3 channels, a square whose side is one of `SIDES`."""

CHANNELS = (1, 3)
SIDES = (*range(16, 65, 4), *range(72, 129, 8))
"""Pixels of a side. Generators double maps twice, and three times above `TWICE_DOUBLED`."""
TWICE_DOUBLED = 64
GOOD_SIDES = "a multiple of 4 from 16 to 64, or of 8 up to 128"
"""`SIDES` in words."""
MOST_SHRUNK, LEAST_SEEN = 4, 28


class ShapeError(FedlensError, ValueError):
    """An image shape or number of classes no network here is built for."""


def check_shape(shape: ImageShape) -> ImageShape:
    """Return ``shape`` as a tuple of three ints, or say what is wrong with it.

    Raises:
        ShapeError: unless it has 1 or 3 channels and is a square of a side in `SIDES`.
    """
    if len(shape) != 3:
        raise ShapeError(f"shape {shape!r} must be (channels, height, width)")
    channels, height, width = (int(side) for side in shape)
    if channels not in CHANNELS:
        raise ShapeError(f"shape {shape!r} has {channels} channels; use 1 (grey) or 3 (RGB)")
    if height != width or height not in SIDES:
        raise ShapeError(
            f"shape {shape!r} is {height} x {width} pixels; resize the images to a square whose "
            f"side is {GOOD_SIDES}, such as 32 x 32"
        )
    return channels, height, width


def shrinking(side: int) -> int:
    """How many times smaller a picture is seen by what judges it as a whole: 1 to 4.

    A sum of bounded rows with noise says the less about each number, the more numbers there are;
    what a picture shows is seen at about 32 pixels a side. Fine detail has features of its own.
    """
    fit = (n for n in range(2, MOST_SHRUNK + 1) if side % (4 * n) == 0 and side // n >= LEAST_SEEN)
    return max(fit, default=1)


def check_classes(classes: int) -> int:
    """Return ``classes``, or raise :class:`ShapeError` when there is no class."""
    if classes < 1:
        raise ShapeError(f"classes={classes} must be at least 1")
    return int(classes)


def one_hot(labels: Tensor, classes: int) -> Tensor:
    """Class numbers, int64 [n], as float32 [n, classes].

    Written as a comparison because that runs unchanged under ``torch.func.vmap``. A label outside
    [0, classes) gives a row of zeros (no data-dependent check is possible under ``vmap``).
    """
    return (labels.unsqueeze(-1) == torch.arange(classes, device=labels.device)).float()


def smaller(images: Tensor, times: int) -> Tensor:
    """Images whose pixels are means of squares of so many a side; the same where that is 1."""
    return images if times == 1 else F.avg_pool2d(images, times)


def as_seen(images: Tensor) -> Tensor:
    """Images [n, c, h, w] as what judges whole pictures sees them; see `shrinking`."""
    return smaller(images, shrinking(images.shape[-1]))


class FixedFeatures(nn.Module):
    """What images are turned into, rows [n, dim], by nothing that is learned.

    A subclass sets ``shape``, ``dim`` and ``chunk``, the images held in memory at once.
    """

    @property
    def shrink(self) -> int:
        """How many times smaller whole pictures are seen; see `shrinking`."""
        return shrinking(self.shape[1])

    shape: ImageShape
    dim: int
    chunk: int

    def forward(self, images: Tensor) -> Tensor:
        """Rows float32 [n, dim] of images [n, c, h, w] in [-1, 1]; differentiable in them.

        Raises:
            ValueError: on images of another shape.
        """
        if images.shape[1:] != self.shape:
            raise ValueError(f"images of shape {tuple(images.shape[1:])}, expected {self.shape}")
        if len(images) == 0:
            return images.new_zeros(0, self.dim)
        parts = [self._rows(part) for part in torch.split(images, self.chunk)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _rows(self, images: Tensor) -> Tensor:
        raise NotImplementedError
