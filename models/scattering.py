"""Fixed features of an image: how strongly it waves, where, in which direction, and how that waves.

A scattering transform of two orders: Bruna & Mallat, "Invariant Scattering Convolution Networks"
(arXiv:1203.1513), equations 2 to 5: complex wavelets, their modulus, a local mean, and the same
again on the moduli. Linear classifiers on such features bear privacy noise well: Tramèr & Boneh,
"Differentially Private Learning Needs Better Features" (arXiv:2011.11660), section 3. Nothing is
trained and no data chose anything.

A row of places sees a strip of few rows, so all wavelets at all places of a row are one matrix, and
the same for each row: at these image sizes a product with it is several times faster on a CPU than
a convolution of one channel, and faster than one with a matrix for the whole image.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from models.shapes import FixedFeatures, ImageShape, check_shape

DIRECTIONS = 8
"""Angles in half a circle; a modulus does not know a wave from its opposite."""
FINEST, SLOWEST = 0.8, 1.6
"""Width of the finest wavelet's envelope, and of the local mean, in pixels."""
FREQUENCY = 0.75 * math.pi
"""Of the finest wavelets, in radians a pixel; the next ones have half of it."""
SLANT = 0.5
"""Wavelets are twice as long across their direction as along it."""
FAINT = (0.1, 0.03)
"""Added to a place's strength before it is divided by it, for the two orders."""
LANES = 16
"""Columns that a product computes at once."""
LEAST = 1e-8
"""Keeps the root differentiable where nothing waves."""


class ScatteringFeatures(FixedFeatures):
    """Local means of two orders of wavelet moduli, each place scaled by its strength.

    ``dim`` is 81 x 49 = 3,969 for (1, 28, 28), 81 x 64 = 5,184 for (1, 32, 32) images, and two
    coarse images more for 3 channels, whose mean is what waves. There are no parameters and no
    saved state.

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
        self.places = (self.shape[1] // 4) ** 2
        orders = 2 * DIRECTIONS + DIRECTIONS**2
        self.dim = (orders + self.shape[0]) * self.places

    def _rows(self, images: Tensor) -> Tensor:
        count, channels, side, _ = images.shape
        pixels = (torch.nan_to_num(images, nan=0.0).clamp(-1, 1) + 1) / 2
        half = side // 2
        grey = pixels.mean(1, keepdim=True)
        fine = F.avg_pool2d(_moduli(grey, 1, 7, FINEST, FREQUENCY), 2)
        wide = _moduli(grey, 2, 11, 2 * FINEST, FREQUENCY / 2)
        twice = _moduli(fine.view(-1, 1, half, half), 1, 7, FINEST, FREQUENCY)
        twice = twice.reshape(count, DIRECTIONS**2, half, half)
        first = _local_means(torch.cat([fine, wide], 1))
        parts = (
            _local_means(F.avg_pool2d(pixels, 2)).view(count, channels, -1),
            _scaled(first, FAINT[0]),
            _scaled(_local_means(twice), FAINT[1]),
        )
        return torch.cat([part.flatten(1) for part in parts], 1)


def _moduli(maps: Tensor, stride: int, size: int, width: float, frequency: float) -> Tensor:
    """Strength of waves at places, [n, DIRECTIONS, side / stride, side / stride].

    Args:
        maps: [n, 1, side, side].
        stride: between places, in pixels of the map.
        size: of a wavelet's window, in pixels.
        width: of its envelope, in pixels.
        frequency: of its wave, in radians a pixel.
    """
    side = maps.shape[-1]
    places = side // stride
    waves = _waves(side, stride, size, width, frequency).to(maps.device)
    strength: Tensor = _Strength.apply(maps[:, 0], waves, stride, size)
    return strength.view(len(maps), places, DIRECTIONS, places).transpose(1, 2)


class _Strength(torch.autograd.Function):
    """Moduli of waves, [n, places, DIRECTIONS x places], of maps [n, side, side].

    The gradient is written out: autograd's own writes and reads all waves several times as often.
    """

    @staticmethod
    def forward(ctx: Any, maps: Tensor, waves: Tensor, stride: int, size: int) -> Tensor:  # type: ignore[override]
        both = _strips(maps, stride, size) @ waves
        even, odd = both.chunk(2, -1)
        strength = torch.mul(even, even).addcmul_(odd, odd).add_(LEAST).sqrt_()
        ctx.save_for_backward(both, strength, waves)
        ctx.maps, ctx.stride, ctx.size = maps.shape, stride, size
        return strength

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        both, strength, waves = ctx.saved_tensors
        steep = gradients[0].reshape(strength.shape) / strength
        slope = (both.view(len(both), 2, -1) * steep[:, None]).view_as(both)
        return _from_strips(slope @ _transposed(waves), ctx.maps, ctx.stride, ctx.size), *[None] * 3


def _transposed(waves: Tensor) -> Tensor:
    """Waves the other way round, with columns of zeros up to whole vectors: products are faster."""
    return F.pad(waves.mT, (0, -len(waves) % LANES)).contiguous()


def _strips(maps: Tensor, stride: int, size: int) -> Tensor:
    """What each row of places sees: [n x places, size x side] of maps [n, side, side]."""
    side = maps.shape[-1]
    padded = F.pad(maps, (0, 0, size // 2, size // 2))
    shifted = [padded[:, down : down + side : stride] for down in range(size)]
    return torch.cat(shifted, -1).view(-1, size * side)


def _from_strips(strips: Tensor, shape: torch.Size, stride: int, size: int) -> Tensor:
    """The gradient of maps [n, side, side] from that of `_strips`, whose further columns are left.
    """
    count, side, _ = shape
    rows = strips.view(count, -1, strips.shape[1])
    padded = strips.new_zeros(count, side + 2 * (size // 2), side)
    for down in range(size):
        padded[:, down : down + side : stride] += rows[..., down * side : (down + 1) * side]
    return padded[:, size // 2 : size // 2 + side]


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


@lru_cache(maxsize=8)
def _waves(side: int, stride: int, size: int, width: float, frequency: float) -> Tensor:
    """Matrix [size x side, 2 x DIRECTIONS x places]: all wavelets in a strip, even parts first."""
    kernels = torch.stack(
        [_wavelet(size, width, frequency, i * math.pi / DIRECTIONS) for i in range(DIRECTIONS)]
    )
    bank = torch.cat([kernels.real, kernels.imag])[:, None]
    points = torch.eye(size * side).view(-1, 1, size, side)
    at_places = F.conv2d(points, bank, stride=(1, stride), padding=(0, size // 2))
    return at_places.flatten(1).contiguous()


def _wavelet(size: int, width: float, frequency: float, angle: float) -> Tensor:
    """A Morlet wavelet, complex64 [size, size]: a plane wave in a Gaussian window, of mean 0."""
    steps = torch.arange(size, dtype=torch.float64) - size // 2
    down, right = torch.meshgrid(steps, steps, indexing="ij")
    along = right * math.cos(angle) + down * math.sin(angle)
    across = down * math.cos(angle) - right * math.sin(angle)
    window = torch.exp(-(along**2 + SLANT**2 * across**2) / (2 * width**2))
    wave = torch.exp(1j * frequency * along)
    wave = (wave - (wave * window).sum() / window.sum()) * window
    return (wave * SLANT / (2 * math.pi * width**2)).to(torch.complex64)
