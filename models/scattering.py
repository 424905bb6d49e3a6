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
from torch.nn import functional as F

from fedlens.models.moduli import DIRECTIONS, LEAST, ORDER, Waves, moduli
from fedlens.models.shapes import FixedFeatures, ImageShape, check_shape, smaller

FINEST, SLOWEST = 0.8, 1.6
"""Width of the finest wavelet's envelope, and of the local mean, in pixels."""
FREQUENCY = 0.75 * math.pi
"""Of the finest wavelets, in radians a pixel; the next ones have half of it."""
FAINT = (0.1, 0.03)
"""Added to a place's strength before it is divided by it, for the two orders."""

_PLACE = torch.tensor(ORDER).argsort()
"""Where each direction is computed."""
_FIRST = torch.cat([_PLACE, DIRECTIONS + _PLACE])
_SECOND = (DIRECTIONS * _PLACE[:, None] + _PLACE).flatten()


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
        count, channels, side, _ = pixels.shape
        half = side // 2
        grey = pixels.mean(1)
        fine = F.avg_pool2d(moduli(grey, Waves(side, 1, 7, FINEST, FREQUENCY)), 2)
        wide = moduli(grey, Waves(side, 2, 11, 2 * FINEST, FREQUENCY / 2))
        twice = moduli(fine.view(-1, half, half), Waves(half, 1, 7, FINEST, FREQUENCY))
        first = _local_means(torch.cat([fine, wide], 1))
        second = _local_means(twice).view(count, DIRECTIONS**2, -1)
        parts = (
            _local_means(F.avg_pool2d(pixels, 2)).view(count, channels, -1),
            _scaled(first, FAINT[0])[:, _FIRST],
            _scaled(second, FAINT[1])[:, _SECOND],
        )
        return torch.cat([part.flatten(1) for part in parts], 1)


def _local_means(maps: Tensor) -> Tensor:
    """Gaussian means on a grid of 2, [n, channels, places], of maps [n, channels, side, side]."""
    blur = _blur(maps.shape[-1]).to(maps.device)
    return ((maps @ blur).transpose(2, 3) @ blur).flatten(2)


def _scaled(maps: Tensor, faint: float) -> Tensor:
    """Every place over its own strength in all directions."""
    strength = (maps.square().sum(1, keepdim=True) + LEAST).sqrt()
    return maps / (strength + faint)


@lru_cache(maxsize=8)
def _blur(side: int) -> Tensor:
    """Matrix [side, side // 2] of Gaussian windows on a grid of 2, each adding up to 1 inside."""
    centres = torch.arange(side // 2) * 2 + 0.5
    away = torch.arange(side)[:, None] - centres
    width = SLOWEST / 2 * 2**0.5  # on a map of half the image's side
    weights = torch.exp(-away.square() / (2 * width**2))
    return weights / weights.sum(0)
