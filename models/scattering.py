"""Fixed features of an image: how strongly it waves, where, in which direction, and how that waves.

A scattering transform of two orders: Bruna & Mallat, "Invariant Scattering Convolution Networks"
(arXiv:1203.1513), equations 2 to 5: complex wavelets, their modulus, a local mean, and the same
again on the moduli. Linear classifiers on such features bear privacy noise well: Tramèr & Boneh,
"Differentially Private Learning Needs Better Features" (arXiv:2011.11660), section 3. Nothing is
trained and no data chose anything.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from fedlens.models.moduli import DIRECTIONS, LEAST, Waves, moduli
from fedlens.models.shapes import FixedFeatures, ImageShape, check_shape, smaller

FINEST, SLOWEST = 0.8, 1.6
"""Width of the finest wavelet's envelope, and of the local mean, in pixels."""
FREQUENCY = 0.75 * math.pi
"""Of the finest wavelets, in radians a pixel; the next ones have half of it."""
FAINT = (0.1, 0.03)
"""Added to a place's strength before it is divided by it, for the two orders."""


class ScatteringFeatures(FixedFeatures):
    """Local means of two orders of wavelet moduli, each place scaled by its strength.

    ``dim`` is 81 x 49 = 3,969 for (1, 28, 28), 81 x 64 = 5,184 for (1, 32, 32) and (1, 64, 64)
    images, which are seen at half their size (`shrinking`), and two coarse images more for 3
    channels, whose mean is what waves. There are no parameters and no saved state.

    Formal guarantees: finite rows for any input (pixels are clamped to [-1, 1] first, and what is
    not a number counts as grey); differentiable wherever pixels lie in [-1, 1], flat images
    included; an image's row depends on that image alone.

    Args:
        shape: (channels, height, width) of an image.
        chunk: images computed at once; fewer need less memory.

    Raises:
        ShapeError: on an image shape that is not supported.
    """

    def __init__(self, shape: ImageShape, chunk: int = 50) -> None:
        super().__init__()
        self.shape = check_shape(shape)
        self.chunk = chunk
        self.places = (self.shape[1] // self.shrink // 4) ** 2
        orders = 2 * DIRECTIONS + DIRECTIONS**2
        self.dim = (orders + self.shape[0]) * self.places

    def _rows(self, images: Tensor) -> Tensor:
        pixels = (torch.nan_to_num(images, nan=0.0).clamp(-1, 1) + 1) / 2
        pixels = smaller(pixels, self.shrink)
        grey, side = pixels.mean(1), pixels.shape[-1]
        half = side // 2
        fine = _halved(moduli(grey, Waves(side, 1, 7, FINEST, FREQUENCY)))
        wide = moduli(grey, Waves(side, 2, 11, 2 * FINEST, FREQUENCY / 2))
        again = fine.transpose(1, 2).reshape(-1, half, half)
        twice = _local_means(moduli(again, Waves(half, 1, 7, FINEST, FREQUENCY)))
        first = torch.cat([_local_means(fine), _local_means(wide)], 2)
        second = twice.view(-1, DIRECTIONS, *twice.shape[1:])
        parts = (
            _local_means(smaller(pixels, 2).transpose(1, 2)),
            _scaled(first.to(pixels), FAINT[0], 2),
            _scaled(second.to(pixels), FAINT[1], (1, 3)),
        )  # rows of places come last, as they do in every frame
        return torch.cat([part.movedim(-3, -1).flatten(1) for part in parts], 1)


def _halved(maps: Tensor) -> Tensor:
    """Means of squares of two a side of maps [n, side, k, side]: rows first, columns last."""
    pairs = maps[:, 0::2] + maps[:, 1::2]
    half = torch.eye(maps.shape[-1] // 2, device=maps.device, dtype=maps.dtype) / 4
    return pairs @ half.repeat_interleave(2, 0)


def _local_means(maps: Tensor) -> Tensor:
    """Gaussian means on a grid of 2 of maps [n, side, k, side], [n, side / 2, k, side / 2]."""
    blur = _blur(maps.shape[-1]).to(maps.device, maps.dtype)
    rows = blur.mT @ maps.flatten(2)
    return rows.view(len(maps), -1, *maps.shape[2:]) @ blur


def _scaled(maps: Tensor, faint: float, directions: int | tuple[int, ...]) -> Tensor:
    """Every place over its own strength in all directions, which lie in these dimensions."""
    strength = (maps.square().sum(directions, keepdim=True) + LEAST).sqrt()
    return maps / (strength + faint)


@lru_cache(maxsize=8)
def _blur(side: int) -> Tensor:
    """Matrix [side, side // 2] of Gaussian windows on a grid of 2, each adding up to 1 inside."""
    centres = torch.arange(side // 2) * 2 + 0.5
    away = torch.arange(side)[:, None] - centres
    width = SLOWEST / 2 * 2**0.5  # on a map of half the image's side
    weights = torch.exp(-away.square() / (2 * width**2))
    return weights / weights.sum(0)
