"""Fixed features of an image's strokes: histograms of the directions in which brightness changes.

After Dalal & Triggs, "Histograms of Oriented Gradients for Human Detection" (CVPR 2005), section
6: direction bins, overlapping cells, each cell scaled by its own strength. Here the bins are soft
and signed and the whole is differentiable, so that a classifier on these features can teach a
generator. Nothing is trained and no data chose anything.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from fedlens.models.shapes import FixedFeatures, ImageShape, check_shape, smaller

BINS = 8
"""Directions, all around the circle: a stroke's two edges fall into opposite bins."""
FAINT = 0.05
"""Added to a cell's strength before it is divided by it: cells with next to no edge stay small."""
STRENGTH_GAIN = 3.0
"""Of cells that keep their strength, to bring them near the scaled ones."""


@dataclass(frozen=True)
class Cells:
    """A grid of square windows over an image, in pixels; ``padding`` of it lies outside."""

    side: int
    stride: int
    padding: int

    def places(self, pixels: int) -> int:
        """Windows along an axis of ``pixels``."""
        return (pixels + 2 * self.padding - self.side) // self.stride + 1

    def means(self, pixels: int) -> Tensor:
        """Matrix [pixels, places] that takes an axis to its windows' means; outside counts as 0.

        A product with it is several times faster on a CPU than pooling overlapping windows.
        """
        first = torch.arange(self.places(pixels)) * self.stride - self.padding
        offsets = torch.arange(pixels)[:, None] - first
        return ((offsets >= 0) & (offsets < self.side)).float() / self.side


FINE, COARSE, PIXELS = Cells(6, 3, 1), Cells(10, 6, 2), Cells(4, 4, 2)


class OrientationFeatures(FixedFeatures):
    """Edge-direction histograms of two cell sizes, their strengths, and coarse pixels.

    ``dim`` is 1,488 for (1, 28, 28), 1,881 for (1, 32, 32), 1,616 for (3, 28, 28) and 2,043 for
    (3, 32, 32) images. There are no parameters and no saved state. Colour images have the mean of
    their channels' histograms, and coarse pixels of each channel. Larger ones are seen smaller
    (`shrinking`).

    Formal guarantees: finite rows for any input (pixels are clamped to [-1, 1] first, and what is
    not a number counts as grey); differentiable wherever pixels lie in [-1, 1], flat images
    included; an image's row depends on that image alone.

    Args:
        shape: (channels, height, width) of an image.
        chunk: images held in memory at once.

    Raises:
        ShapeError: on an image shape that is not supported.
    """

    directions: Tensor
    fine: Tensor
    coarse: Tensor
    pixels: Tensor

    def __init__(self, shape: ImageShape, chunk: int = 1000) -> None:
        super().__init__()
        self.shape = check_shape(shape)
        self.chunk = chunk
        angles = torch.arange(BINS) * (2 * math.pi / BINS)
        # times (slope to the right, slope downwards, strength): 2 m (cos(a - b) - 1/2)
        shares = torch.stack([2 * angles.cos(), 2 * angles.sin(), -torch.ones(BINS)], 1)
        self.register_buffer("directions", shares, persistent=False)
        channels, side = self.shape[0], self.shape[1] // self.shrink
        for name, cells in (("fine", FINE), ("coarse", COARSE), ("pixels", PIXELS)):
            self.register_buffer(name, cells.means(side), persistent=False)
        histograms = 2 * FINE.places(side) ** 2 + COARSE.places(side) ** 2
        self.dim = BINS * histograms + channels * PIXELS.places(side) ** 2

    def _rows(self, images: Tensor) -> Tensor:
        pixels = smaller(torch.nan_to_num(images, nan=0.0).clamp(-1, 1), self.shrink)
        edges = self._edges(pixels)
        fine, coarse = _pooled(edges, self.fine), _pooled(edges, self.coarse)
        brightness = _pooled(pixels, self.pixels)
        parts = [_scaled(fine), _scaled(coarse), fine * STRENGTH_GAIN, brightness]
        return torch.cat([part.flatten(1) for part in parts], 1)

    def _edges(self, pixels: Tensor) -> Tensor:
        """Strength of the brightness's slope in each direction, [n, BINS, h, w]; outside is dark.

        A slope of strength m at angle a gives 2 m max(0, cos(a - b) - 1/2) to the bin at angle b:
        two neighbours share it.
        """
        count, channels, height, width = pixels.shape
        padded = F.pad(pixels, (1, 1, 1, 1), value=-1.0)
        right = (padded[:, :, 1:-1, 2:] - padded[:, :, 1:-1, :-2]) / 2
        down = (padded[:, :, 2:, 1:-1] - padded[:, :, :-2, 1:-1]) / 2
        # the small number keeps the root differentiable on flat ground
        strength = (right.square() + down.square() + 1e-8).sqrt()
        slopes = torch.stack([right, down, strength], 2).view(count, channels, 3, -1)
        edges = F.relu(self.directions @ slopes)
        mean = edges[:, 0] if channels == 1 else edges.mean(1)
        return mean.view(count, BINS, height, width)


def _pooled(maps: Tensor, means: Tensor) -> Tensor:
    """Window means of maps [n, channels, side, side] with a matrix of :meth:`Cells.means`.

    Rows and columns come out swapped, which no user of the features minds.
    """
    return (maps @ means).transpose(2, 3) @ means


def _scaled(cells: Tensor) -> Tensor:
    """Every cell over its own strength."""
    return cells / ((cells.square().sum(1, keepdim=True) + 1e-12).sqrt() + FAINT)
