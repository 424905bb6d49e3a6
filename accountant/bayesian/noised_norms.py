"""A round's histogram of norms, released with noise: all that published Bayesian figures are of.

A round of users releases two parts of the same secret Poisson cohort: the sum of clipped updates,
to which a user adds a vector of norm C at most, and the histogram of their norms, to which a user
adds 1 in one bin. Two releases of one cohort do not compose like releases of two, so both are
priced as *one* Gaussian release of the joined vector. With z_u·C on the sum, z_h on each count and

    1/z_u² + 1/z_h² = 1/z²

one user moves the joined vector, each part over its own noise, by 1/z at most: the round is exactly
a subsampled Gaussian release of multiplier z. The share s of 1/z² that the norms take leaves
z_u = z/√(1−s) and z_h = z/√s.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedlens.accountant.bayesian.norms import NORM_BINS
from fedlens.accountant.dp.binomial import Floats
from fedlens.accountant.noise import BitSource, add_noise
from fedlens.foundation.errors import WrongUse

PUBLIC_BINS = 16
"""Bins that are released; each holds whole bins of what nodes count in."""
PUBLIC_EDGES = np.arange(1, PUBLIC_BINS + 1) / PUBLIC_BINS
"""Upper edges of the released bins as shares of the clipping norm, float64 [PUBLIC_BINS]."""


@dataclass(frozen=True)
class SplitNoise:
    """The noise of a round's two parts, each over its own L2 sensitivity to one user."""

    update: float
    """z_u: standard deviation on the sum of updates, over its sensitivity C."""
    norms: float
    """z_h: standard deviation on each count of the histogram, over its sensitivity 1; infinite
    where no norms are released."""


def split_noise(noise_multiplier: float, share: float) -> SplitNoise:
    """The noise of both parts of a round that together spend a multiplier z.

    Args:
        noise_multiplier: z ≥ 0, over the sensitivity of the joined vector; 0 for no noise at all:
            then there is nothing to share, and no norms are released.
        share: s in [0, 1), of 1/z², spent on the norms; 0 for none.

    Raises:
        WrongUse: ``share`` is out of range.
    """
    if not 0.0 <= share < 1.0:
        raise WrongUse(f"share = {share!r} cannot be used: give a number from 0 up to below 1")
    if share == 0.0 or noise_multiplier == 0.0:
        return SplitNoise(noise_multiplier, math.inf)
    return SplitNoise(noise_multiplier / math.sqrt(1 - share), noise_multiplier / math.sqrt(share))


@dataclass(frozen=True)
class NoisedNorms:
    """Counts of clipped norms with Gaussian noise: a release, so it may be shown to anyone."""

    clipping_norm: float
    """C, the upper edge of the last bin."""
    noise: float
    """z_h > 0: standard deviation of the noise on each count, whose L2 sensitivity to one user is
    1."""
    counts: tuple[float, ...]
    """Bin i: norms in (iC/bins, (i+1)C/bins], and 0 in the first, plus noise; may be negative."""

    def __post_init__(self) -> None:
        for name in ("clipping_norm", "noise"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise WrongUse(f"{name} = {value!r} cannot be used: give a number above 0")
        if len(self.counts) != PUBLIC_BINS:
            raise WrongUse(f"counts has {len(self.counts)} bins: give {PUBLIC_BINS}")
        if not all(math.isfinite(count) for count in self.counts):
            raise WrongUse("counts: give finite numbers")

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "clipping_norm": self.clipping_norm,
            "noise": self.noise,
            "counts": list(self.counts),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> NoisedNorms:
        """What `to_json` described.

        Raises:
            WrongUse: a missing key or a value out of range.
        """
        try:
            counts = tuple(float(count) for count in data["counts"])
            return cls(float(data["clipping_norm"]), float(data["noise"]), counts)
        except (KeyError, TypeError, ValueError) as error:
            raise WrongUse(f"no noised histogram of norms: {error}") from error


def noised_norms(
    counts: Sequence[int] | ArrayLike,
    *,
    clipping_norm: float,
    noise: float,
    source: BitSource,
) -> NoisedNorms:
    """Merge the bins that nodes count in, and add the noise, once.

    Args:
        counts: users by norm, [NORM_BINS], each user in one bin at most; private.
        clipping_norm: C.
        noise: z_h of `split_noise`, over the histogram's L2 sensitivity 1.
        source: a fresh `fedlens.accountant.noise.private_source`, used for nothing else.

    Raises:
        WrongUse: another number of bins, or noise that is not finite and above 0.
    """
    fine = np.asarray(counts, dtype=np.float64)
    if fine.shape != (NORM_BINS,):
        raise WrongUse(f"counts has shape {fine.shape}: give {NORM_BINS} bins")
    if not (math.isfinite(noise) and noise > 0):
        raise WrongUse(f"noise = {noise!r} cannot be used: give a finite number above 0")
    merged = fine.reshape(PUBLIC_BINS, -1).sum(axis=1)
    noised = add_noise(merged, noise_multiplier=noise, sensitivity=1.0, source=source)
    return NoisedNorms(clipping_norm, noise, tuple(noised.tolist()))


def joint_shares(noise_multiplier: float, noise: float) -> Floats:
    """How far a user of each bin moves the joined vector, over the most that any does.

    A user of norm d moves the sum by d and the histogram by 1, whatever d is: over z that is
    √((1−s)·(d/C)² + s), with s = (z/z_h)². Only at d = C is it 1.

    Args:
        noise_multiplier: z of the round.
        noise: z_h of its histogram.

    Returns:
        float64 [PUBLIC_BINS], in (0, 1].
    """
    share = (noise_multiplier / noise) ** 2
    shares: Floats = np.sqrt((1 - share) * PUBLIC_EDGES**2 + share)
    shares[-1] = 1.0
    return shares
