"""How strongly directed waves are there at places of small maps, with a gradient written out.

A row of places sees a strip of few rows, so all wavelets at all places of a row are one matrix, and
the same for each row: at these image sizes a product with it is several times faster on a CPU than
a convolution of one channel, and faster than one with a matrix for the whole image.

A wavelet upside down is one of the same bank, so rows that lie as far above a place as below it are
added and subtracted first: products with the sums, and with the differences, serve two directions
each, and half of the multiplications are left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from fedlens.models.precision import multiplying_in

DIRECTIONS = 8
"""Angles in half a circle; a modulus does not know a wave from its opposite."""
ORDER = (0, 4, 1, 2, 3, 7, 6, 5)
"""Directions in the order in which they are computed: each of three beside its mirror image."""
PAIRS = 3
SLANT = 0.5
"""Wavelets are twice as long across their direction as along it."""
LEAST = 1e-8
"""Keeps the root differentiable where nothing waves."""
LANES = 16
"""Columns of zeros fill matrices up to a multiple of it: products of whole vectors are faster."""


@dataclass(frozen=True)
class Waves:
    """Wavelets of `DIRECTIONS` angles at the places of a map's rows."""

    side: int
    """Of the map, in pixels."""
    stride: int
    """Between places, in pixels."""
    size: int
    """Of a wavelet's window, in pixels; odd."""
    width: float
    """Of its envelope, in pixels."""
    frequency: float
    """Of its wave, in radians a pixel."""

    @property
    def places(self) -> int:
        """In a row, and rows of them."""
        return self.side // self.stride


def moduli(maps: Tensor, waves: Waves) -> Tensor:
    """Strength of waves at places, float32 [n, DIRECTIONS, places, places], by `ORDER`.

    Args:
        maps: float32 [n, side, side].
        waves: which.
    """
    strength: Tensor = _Strength.apply(maps, waves)  # type: ignore[no-untyped-call]
    return strength.view(len(maps), waves.places, DIRECTIONS, waves.places).transpose(1, 2)


class _Strength(torch.autograd.Function):
    """Moduli [n x places, DIRECTIONS x places] of maps [n, side, side].

    Autograd's own gradient would write and read all waves several times as often.
    """

    @staticmethod
    def forward(ctx: Any, maps: Tensor, waves: Waves) -> Tensor:
        sums, differences = _folded(maps, waves)
        across, along = (matrix.to(maps.device) for matrix in _matrices(waves))
        even, odd = sums @ across, differences @ along
        ctx.precision = even.dtype
        even, odd = even.to(maps.dtype), odd.to(maps.dtype)
        alone, level, upright = _parts(even, odd, waves.places)
        both, mirrored = level + upright, level - upright
        strength = even.new_empty(len(even), DIRECTIONS * waves.places)
        pairs = _pairs(strength, waves.places)
        parts = (*alone, both.chunk(2, -1), mirrored.chunk(2, -1))
        for squared, (real, imaginary) in zip(pairs, parts, strict=True):
            torch.mul(real, real, out=squared).addcmul_(imaginary, imaginary)
        strength.add_(LEAST).sqrt_()
        ctx.save_for_backward(even, odd, both, mirrored, strength)
        ctx.waves, ctx.count = waves, len(maps)
        return strength

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        even, odd, both, mirrored, strength = ctx.saved_tensors
        waves: Waves = ctx.waves
        steep = gradients[0].reshape(strength.shape) / strength
        pairs = _pairs(steep, waves.places)
        to_even, to_odd = torch.zeros_like(even), torch.zeros_like(odd)
        alone, _, _ = _parts(even, odd, waves.places)
        to_alone, to_level, to_upright = _parts(to_even, to_odd, waves.places)
        for ends, parts, slope in zip(to_alone, alone, pairs[:2], strict=True):
            for end, part in zip(ends, parts, strict=True):
                torch.mul(part, slope, out=end)
        slopes = [pair.repeat(1, 2) for pair in pairs[2:]]
        to_both, to_mirrored = slopes[0].mul_(both), slopes[1].mul_(mirrored)
        torch.add(to_both, to_mirrored, out=to_level)
        torch.sub(to_both, to_mirrored, out=to_upright)
        across, along = (matrix.to(even.device) for matrix in _transposed(waves))
        with multiplying_in(ctx.precision, even.device):
            sums, differences = to_even @ across, to_odd @ along
        return _unfolded(sums.to(even), differences.to(even), ctx.count, waves), None


def _parts(even: Tensor, odd: Tensor, places: int) -> tuple[tuple[Any, ...], Tensor, Tensor]:
    """Where products lie: what rows' sums, and what their differences, give of directions.

    Both parts of the two without a partner; then of the three with one, real parts first.
    """
    flat = even[:, :places], even[:, places : 2 * places]
    steep = even[:, 2 * places : 3 * places], odd[:, :places]
    pairs = 2 * PAIRS * places
    return (flat, steep), even[:, 3 * places :][:, :pairs], odd[:, places:][:, :pairs]


def _pairs(rows: Tensor, places: int) -> tuple[Tensor, ...]:
    """Columns of the first direction, of the second, of the three, and of their mirror images."""
    return torch.split(rows, [places, places, PAIRS * places, PAIRS * places], 1)


def _folded(maps: Tensor, waves: Waves) -> tuple[Tensor, Tensor]:
    """What each row of places sees of maps [n, side, side]: rows above and below, folded.

    Returns:
        Sums [n x places, (half + 1) x side] of the rows as far above as below, the own row first,
        and their differences [n x places, half x side].
    """
    side, half = waves.side, waves.size // 2
    padded = F.pad(maps, (0, 0, half, half))
    sums = maps.new_empty(len(maps), waves.places, half + 1, side)
    differences = maps.new_empty(len(maps), waves.places, half, side)
    sums[:, :, 0] = _rows(padded, half, waves)
    for far in range(1, half + 1):
        below, above = _rows(padded, half + far, waves), _rows(padded, half - far, waves)
        torch.add(below, above, out=sums[:, :, far])
        torch.sub(below, above, out=differences[:, :, far - 1])
    return sums.view(-1, (half + 1) * side), differences.view(-1, half * side)


def _unfolded(sums: Tensor, differences: Tensor, count: int, waves: Waves) -> Tensor:
    """The gradient of maps [count, side, side] from those of both parts of `_folded`.

    Columns that only fill vectors are left out.
    """
    side, half = waves.side, waves.size // 2
    rows = count, waves.places, -1, side
    to_sums = sums[:, : (half + 1) * side].reshape(rows)
    to_differences = differences[:, : half * side].reshape(rows)
    padded = sums.new_zeros(count, side + 2 * half, side)
    _rows(padded, half, waves).add_(to_sums[:, :, 0])
    for far in range(1, half + 1):
        both, apart = to_sums[:, :, far], to_differences[:, :, far - 1]
        _rows(padded, half + far, waves).add_(both).add_(apart)
        _rows(padded, half - far, waves).add_(both).sub_(apart)
    return padded[:, half : half + side]


def _rows(padded: Tensor, first: int, waves: Waves) -> Tensor:
    """Every row that lies as far from its place: [n, places, side] of padded maps."""
    return padded[:, first : first + waves.side : waves.stride]


@lru_cache(maxsize=16)
def _matrices(waves: Waves) -> tuple[Tensor, Tensor]:
    """All wavelets in a strip, for sums of rows and for differences; columns as `_parts` says."""
    half = waves.size // 2
    kernels = torch.stack([_wavelet(waves, i * math.pi / DIRECTIONS) for i in range(PAIRS + 2)])
    upside = kernels.flip(1)
    even = ((kernels + upside) / 2)[:, half:]
    odd = ((kernels - upside) / 2)[:, half + 1 :]
    level, pairs = even[[0, PAIRS + 1]], slice(1, PAIRS + 1)
    of_sums = [level[:1].real, level[:1].imag, level[1:].real, even[pairs].real, even[pairs].imag]
    of_differences = [odd[PAIRS + 1 :].imag, odd[pairs].real, odd[pairs].imag]
    return tuple(_at_places(torch.cat(bank), waves) for bank in (of_sums, of_differences))  # type: ignore[return-value]


def _at_places(bank: Tensor, waves: Waves) -> Tensor:
    """Matrix [height x side, kernels x places, filled up] of kernels [kernels, height, size]."""
    height = bank.shape[1]
    points = torch.eye(height * waves.side).view(-1, 1, height, waves.side)
    padding = (0, waves.size // 2)
    with torch.autocast("cpu", enabled=False):  # kept for all, so not in one caller's precision
        matrix = F.conv2d(points, bank[:, None].float(), stride=(1, waves.stride), padding=padding)
    return _filled(matrix.flatten(1))


@lru_cache(maxsize=16)
def _transposed(waves: Waves) -> tuple[Tensor, Tensor]:
    across, along = _matrices(waves)
    return _filled(across.mT), _filled(along.mT)


def _filled(matrix: Tensor) -> Tensor:
    return F.pad(matrix, (0, -matrix.shape[1] % LANES)).contiguous()


def _wavelet(waves: Waves, angle: float) -> Tensor:
    """A Morlet wavelet, complex128 [size, size]: a plane wave in a Gaussian window, of mean 0."""
    steps = torch.arange(waves.size, dtype=torch.float64) - waves.size // 2
    down, right = torch.meshgrid(steps, steps, indexing="ij")
    along = right * math.cos(angle) + down * math.sin(angle)
    across = down * math.cos(angle) - right * math.sin(angle)
    window = torch.exp(-(along**2 + SLANT**2 * across**2) / (2 * waves.width**2))
    wave = torch.exp(1j * waves.frequency * along)
    wave = (wave - (wave * window).sum() / window.sum()) * window
    return wave * SLANT / (2 * math.pi * waves.width**2)
