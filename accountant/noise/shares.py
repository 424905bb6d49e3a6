"""Noise that many nodes add together, each its share: what a sum holds, and why it is enough.

Every part of a sum is integers on a lattice of pitch g (`fedlens.accountant.noise.lattice`). With
Δ the sensitivity in pitches, all rounding included, and z the noise multiplier, a central
mechanism draws round(N(0, s₀²)) with s₀ = ⌈zΔ⌉. Here each node adds a discrete normal number
N_Z(0, σ²) to each coordinate of its own clipped sum, with

    σ = ⌈(s₀ + 1) / √h⌉,    so that    h σ² ≥ (s₀ + 1)²,

h being the honest nodes that any opened sum is of: what a run declares to survive, less those that
it declares to collude. Noise of colluding nodes counts as none; that of more honest nodes than h is
further noise, which is post-processing.

**Why the Gaussian mechanism's accounts hold.** Write ρ(c, a) = Σ_x exp(−(x−c)²/(2a²)) over the
integers. By Poisson's summation it lies within a factor 1 ± 2.1 exp(−2π²a²) of a√(2π), whatever c.

1. P[X + Y = y] for X ~ N_Z(0, a²), Y ~ N_Z(0, b²) is exp(−y²/(2(a²+b²))) · ρ(c, ab/√(a²+b²)), c
   depending on y, over ρ(0, a) ρ(0, b). So the sum of h shares has at every point the probability
   that N_Z(0, hσ²) gives it, up to a factor exp(±10 (h−1) exp(−π²σ²)): the correction of Kairouz,
   Liu, Steinke, "The Distributed Discrete Gaussian Mechanism", arXiv:2102.06387, theorem 1.
2. Let s² = hσ² and r² = s² − s₀² ≥ 2s₀ + 1. Round a real t to the integer y with probability
   exp(−(y−t)²/(2r²)) / ρ(t, r). What that makes of N(x, s₀²) gives y the probability ∫ φ_{s₀}(t−x)
   exp(−(y−t)²/(2r²)) / ρ(t, r) dt, which is N_Z(x, s²) up to a factor exp(±10 exp(−2π²r²)).

So for *every* data set (every integer sum x, and every mixture of them over cohorts) what is
released has, at every point, the probability that a randomised rounding of the Gaussian mechanism's
output has, up to a factor exp(±τ) for each coordinate with τ = 10 (h−1) exp(−π²σ²) + 10 exp(−2π²r²)
+ 10 exp(−2π²s₀²). That holds for subsampled and composed releases as it stands: each ε(δ), Rényi or
Bayesian figure of the Gaussian mechanism at multiplier z holds with 2Pτ more a release. With σ ≥
`LEAST_SHARE`, τ is below 10^-40000: the correction is stated here and cannot be seen in a float64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedlens.accountant.noise.bits import BitSource, Words
from fedlens.accountant.noise.decisions import accepted_at
from fedlens.accountant.noise.lattice import NOISE_BITS, SUM_BITS, noise_scale, pitch
from fedlens.accountant.noise.normal import (
    DOUBT,
    LARGEST_SCALE,
    Integers,
    cells_of,
    drawn_until_kept,
)
from fedlens.foundation.errors import WrongUse

# Discrete normal numbers, exactly: integers x with probability proportional to exp(−x²/(2s²)).
#
# Canonne, Kamath, Steinke, "The Discrete Gaussian for Differential Privacy", arXiv:2004.00010.
# Drawn as `fedlens.accountant.noise.normal` draws, along the cells of Karney's algorithm D
# (arXiv:1303.6257): with x = ±(K s + J), K is drawn with probability proportional to exp(−K²/2),
# J uniformly from 0 .. s − 1, and the pair is kept with probability exp(−F (2K + F) / 2) for F =
# J/s; as (K + F)² = x²/s², that is the law. 0 is drawn with both signs, so −0 is drawn anew.

_PLACE_BITS = 63


def discrete_normal(size: int, scale: int, bits: BitSource) -> Integers:
    """Independent draws of N_Z(0, scale²), int64 [size], distributed exactly so.

    Args:
        size: how many.
        scale: s, 1 .. 2^52. The variance is s², at s = 1 up to a relative 10^-6 and closer above.
        bits: of which about 30 bytes a draw are used.

    Raises:
        WrongUse: a scale out of range.
    """
    if not 1 <= scale <= LARGEST_SCALE:
        raise WrongUse(f"scale {scale} of discrete normal noise: give one in 1 .. 2^52")
    return drawn_until_kept(size, bits, lambda words: _kept(words, scale, bits))


def _kept(words: Words, scale: int, spare: BitSource, doubt: float = DOUBT) -> Integers:
    """The proposals that three equal parts of ``words`` make, those that are kept."""
    cells_from, signed, chances = words.reshape(3, -1)
    cells = cells_of(cells_from, spare)
    shift = _PLACE_BITS - scale.bit_length()
    place = ((signed >> np.uint64(1)) >> np.uint64(shift)).astype(np.int64)
    negative = (signed & np.uint64(1)).astype(np.bool_)
    keep = _keep(cells, place, chances, scale, spare, doubt)
    magnitude = cells * scale + place
    keep &= ~(negative & (magnitude == 0))
    return np.where(negative, -magnitude, magnitude)[keep]


def _keep(
    cells: Integers,
    place: Integers,
    chances: Words,
    scale: int,
    spare: BitSource,
    doubt: float,
) -> NDArray[np.bool_]:
    """Which proposals to keep: J is below s, and V < exp(−F (2K + F) / 2)."""
    exists = place < scale
    inside = place / scale
    height = np.exp(-0.5 * inside * (2 * cells + inside))
    excess = height - np.ldexp(chances.astype(np.float64), -64)
    keep: NDArray[np.bool_] = exists & (excess > 0)
    for i in np.flatnonzero(exists & (np.abs(excess) <= doubt)):
        keep[i] = accepted_at(int(cells[i]), int(place[i]), scale, int(chances[i]), spare)
    return keep


LEAST_SHARE = 100
"""The least σ: smaller shares would need their correction in the accounts."""
TAIL = 40
"""Standard deviations of noise that there is room for: a coordinate lies outside with a probability
below 2 exp(−800), and would then wrap around, which protects no one less."""


class OffLattice(WrongUse):
    """A node's sum that is not made of clipped contributions on the lattice of sums."""


@dataclass(frozen=True)
class NoiseSharing:
    """Whose noise a release has: that of the server alone, or shares of nodes.

    What is charged is the noise of the nodes that are sure to add theirs. All others' come on top:
    more noise than is charged, and a figure that reckons with the noise must know of it.
    """

    honest: int = 1
    """h: shares that noise is reckoned by."""
    parties: int = 1
    """n: shares that there are at most."""

    @property
    def excess(self) -> float:
        """How many times the deviation that is charged noise has at most."""
        return math.sqrt(self.parties / self.honest)

    def deviation(self, noise_multiplier: float, sensitivity: float, size: int) -> float:
        """Largest standard deviation of the noise on a part of ``size`` numbers, rounding included.

        Raises:
            WrongUse: as `share_scale`.
        """
        scale = share_scale(noise_multiplier, sensitivity, size, self.honest)
        return scale * math.sqrt(self.parties) * pitch(sensitivity)


ONE_SHARE = NoiseSharing()
"""The server adds all of it."""


@dataclass(frozen=True)
class SummedPart:
    """One part of what nodes add up: coordinates that are multiples of one pitch."""

    size: int
    pitch: float
    """A power of two."""
    scale: int
    """σ of the share of noise that a node adds, in pitches; 0 where nodes add none."""
    largest: int
    """Pitches that no coordinate of the sum passes: those of all users, and `TAIL` of the noise."""


@dataclass(frozen=True)
class SumLayout:
    """A round's sum of updates, and behind it the histogram of norms."""

    update: SummedPart
    norms: SummedPart

    @property
    def size(self) -> int:
        """Numbers that a node sends."""
        return self.update.size + self.norms.size

    @property
    def largest(self) -> int:
        """What no number of the sum passes."""
        return max(self.update.largest, self.norms.largest)

    def encoded(
        self, total: NDArray[np.float64], norms: NDArray[np.int64], *sources: BitSource
    ) -> Integers:
        """A node's part of the sum with its share of noise, int64 [size].

        Args:
            total: the node's sum of clipped contributions, float64 [P].
            norms: its histogram, int64 [bins].
            sources: one of noise for each part; used for nothing else.

        Raises:
            OffLattice: the sum is not on the lattice of sums, so its rounding would not be
                accounted for; sums of `fedlens.client.update.clipping` always are.
        """
        parts = []
        for part, values, source in zip(
            (self.update, self.norms), (total, norms), sources, strict=True
        ):
            if values.shape != (part.size,):
                raise OffLattice("a sum has another size than its layout: it was not sent")
            places = np.rint(values / part.pitch)
            if not np.array_equal(places * part.pitch, values):
                raise OffLattice("a sum is not on the lattice of sums: it was not sent")
            noise = discrete_normal(part.size, part.scale, source) if part.scale else 0
            parts.append(places.astype(np.int64) + noise)
        return np.concatenate(parts)

    def decoded(self, whole: Integers) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The sum of updates, float64 [P], and that of histograms, float64 [bins]."""
        values = whole.astype(np.float64)
        update, norms = np.split(values, [self.update.size])
        return update * self.update.pitch, norms * self.norms.pitch


def plain_layout(size: int, sensitivity: float, users: int, bins: int) -> SumLayout:
    """Sums without noise, exact: the server adds it when the sum is opened.

    Args:
        size: P.
        sensitivity: C.
        users: most that contribute.
        bins: of the histogram.
    """
    step = pitch(sensitivity, SUM_BITS)
    update = SummedPart(size, step, 0, users * _whole(sensitivity, step))
    return SumLayout(update, SummedPart(bins, 1.0, 0, users))


def noised_layout(
    size: int,
    sensitivity: float,
    users: int,
    bins: int,
    *,
    multipliers: tuple[float, float],
    honest: int,
    parties: int,
) -> SumLayout:
    """Sums that come with the nodes' own noise.

    Args:
        size: P.
        sensitivity: C.
        users: most that contribute.
        bins: of the histogram.
        multipliers: z of the updates, over C, and of the histogram, over 1.
        honest: h, nodes whose shares of noise any opened sum has.
        parties: n.

    Raises:
        WrongUse: a multiplier that cannot be used, or noise too little for so many shares.
    """
    parts = []
    for part_size, bound, z in zip((size, bins), (sensitivity, 1.0), multipliers, strict=True):
        step, scale = pitch(bound, NOISE_BITS), share_scale(z, bound, part_size, honest)
        room = math.isqrt(parties) + 1
        largest = users * _whole(bound, step) + TAIL * scale * room
        parts.append(SummedPart(part_size, step, scale, largest))
    return SumLayout(*parts)


def share_scale(noise_multiplier: float, sensitivity: float, size: int, honest: int) -> int:
    """σ of one node's share in pitches; 0 for a part without coordinates, or without noise.

    Raises:
        WrongUse: no honest node, or noise too little or too much.
    """
    if honest < 1:
        raise WrongUse(f"{honest} honest nodes: noise of nodes needs one at least")
    if size == 0 or noise_multiplier == 0:
        return 0
    whole = noise_scale(noise_multiplier, sensitivity, size) + 1
    share = math.isqrt((whole * whole - 1) // honest) + 1  # the least σ with h σ² ≥ whole²
    if not LEAST_SHARE <= share <= LARGEST_SCALE:
        raise WrongUse(f"noise multiplier {noise_multiplier}, {honest} shares: too little of it")
    return share


def _whole(sensitivity: float, step: float) -> int:
    return math.ceil(sensitivity / step)
