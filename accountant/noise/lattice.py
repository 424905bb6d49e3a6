"""The Gaussian mechanism on a lattice: what it releases are integers times a public pitch.

A float's low-order bits tell how it came about: noise that is a float, added to a sum that is one,
leaves values that only some sums can give (Mironov, 2012). So the sum is put on multiples of a
power of two, and integers are added that are exactly distributed as round(N(0, s²)). As the sum
is an integer too, that is the same as rounding the sum plus real-valued Gaussian noise: a
post-processing of the Gaussian mechanism, which every accountant here bounds as it stands.

What rounding may add to the sensitivity is charged, by drawing the noise for a sum that moves by

    ⌈C / pitch⌉ + 2 ⌈√P⌉ + ⌈(P + 16) / 2^16⌉ + 2^22   pitches, C / pitch lying in [2^36, 2^37):

√P for rounding each of P coordinates to the lattice and as much again for a sum that comes rounded
already; (P + 16) / 2^16 for norms that are computed in float64 before the clip; 2^22 as a margin
for float32, in which a library may compute one contribution a little differently when others are
computed beside it. The first terms are proven, and below 5·10^-8 of C up to 10^6 coordinates. The
margin, 3 to 6·10^-5 of C, is not proven but several times what was seen of 2,000 records.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from fedlens.accountant.noise.bits import BitSource
from fedlens.accountant.noise.normal import LARGEST_SCALE, Integers, rounded_normal
from fedlens.foundation.errors import WrongUse

Values = NDArray[np.float64]

NOISE_BITS = 36
"""C is at least 2^36 pitches of the noise."""
SUM_BITS = 30
"""C is at least 2^30 pitches of the sum: float64 then adds up to 2^22 contributions of norm C
without any rounding, in whatever order."""
FLOAT32_MARGIN = 2**22
"""Pitches that all others' contributions may move by, in norm, when one is added or removed."""
_LARGEST_PLACE = 2.0**61
_SMALLEST_NORM, _LARGEST_NORM = 1e-200, 1e200


def pitch(sensitivity: float, bits: int = NOISE_BITS) -> float:
    """The power of two of which the sensitivity C is 2^bits to 2^(bits + 1) multiples.

    Raises:
        WrongUse: a sensitivity that is no positive number of a usable size.
    """
    if not _SMALLEST_NORM <= sensitivity <= _LARGEST_NORM:
        fix = f"give one in [{_SMALLEST_NORM}, {_LARGEST_NORM}]"
        raise WrongUse(f"sensitivity {sensitivity} of a noised sum: {fix}")
    return math.ldexp(1.0, math.frexp(sensitivity)[1] - 1 - bits)


def sensitivity_in_pitches(sensitivity: float, size: int) -> int:
    """L2 sensitivity of a sum of P = ``size`` coordinates on the lattice, all rounding included."""
    whole = math.ceil(Fraction(sensitivity) / Fraction(pitch(sensitivity)))
    root = math.isqrt(max(size - 1, 0)) + 1
    return whole + 2 * root + -(-(size + 16) // 2**16) + FLOAT32_MARGIN


def noise_scale(noise_multiplier: float, sensitivity: float, size: int) -> int:
    """Standard deviation of the noise in pitches: z times `sensitivity_in_pitches`, rounded up.

    Raises:
        WrongUse: a multiplier that is negative, not finite or too large.
    """
    if not (math.isfinite(noise_multiplier) and noise_multiplier >= 0):
        raise WrongUse(f"noise multiplier {noise_multiplier}: give a finite number ≥ 0")
    scale = math.ceil(Fraction(noise_multiplier) * sensitivity_in_pitches(sensitivity, size))
    if scale > LARGEST_SCALE:
        most = LARGEST_SCALE >> (NOISE_BITS + 1)
        raise WrongUse(f"noise multiplier {noise_multiplier}: give one of at most {most}")
    return scale


def on_lattice(total: Values, sensitivity: float) -> Values:
    """A sum on the lattice of sums, float64 [P]: unchanged where it is on it already.

    Sums on it add up without rounding, so one node's reply cannot change how another's is rounded.
    """
    step = pitch(sensitivity, SUM_BITS)
    placed: Values = np.rint(total / step) * step
    return placed


def add_noise(
    total: Values, *, noise_multiplier: float, sensitivity: float, source: BitSource
) -> Values:
    """The Gaussian mechanism: the sum with noise, multiples of `pitch`, float64 [P].

    Never fails for what the sum holds: a coordinate beyond 2^24 contributions of norm C is cut off
    there, one that is not a number counts as 0. Without noise (z = 0, no guarantee) the sum comes
    back as it is.

    Args:
        total: float64 [P], of L2 sensitivity C.
        noise_multiplier: z; the noise has standard deviation zC, and a little more for rounding.
        sensitivity: C: the clipping norm, for a sum of clipped contributions and one of them added
            or removed.
        source: of `private_source`, used for nothing else.

    Raises:
        WrongUse: a multiplier or a sensitivity that cannot be used.
    """
    scale = noise_scale(noise_multiplier, sensitivity, len(total))
    if scale == 0:
        return total.copy()
    step = pitch(sensitivity)
    whole = _placed(total, step) + rounded_normal(len(total), scale, source)
    return whole.astype(np.float64) * step


def _placed(total: Values, step: float) -> Integers:
    with np.errstate(over="ignore"):
        places = np.nan_to_num(np.rint(total / step), nan=0.0, posinf=np.inf, neginf=-np.inf)
    whole: Integers = np.clip(places, -_LARGEST_PLACE, _LARGEST_PLACE).astype(np.int64)
    return whole


def gaussian(
    size: int, *, noise_multiplier: float, sensitivity: float, source: BitSource
) -> Values:
    """The noise alone, float64 [size]: what `add_noise` releases of a sum that is zero."""
    return add_noise(
        np.zeros(size), noise_multiplier=noise_multiplier, sensitivity=sensitivity, source=source
    )
