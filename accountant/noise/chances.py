"""Secret cohorts: each position with the same probability, independently of the others."""

from __future__ import annotations

import math
from array import array
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from fedlens.accountant.noise.bits import BitSource
from fedlens.foundation.errors import WrongUse

_BLOCK = 2048
_RARE = 40 * math.log(2)


def chosen(count: int, probability: float, bits: BitSource) -> NDArray[np.int64]:
    """Poisson sampling: the positions in [0, count) that are drawn, ascending, int64 [drawn].

    Each is drawn independently when its own 64 random bits lie below the probability. That happens
    with at most ``probability`` and less than 2^-64 below it, so amplification that is accounted
    for at ``probability`` is never overstated. Memory grows with those drawn; the bits that are
    used do not depend on who is.

    Raises:
        WrongUse: a probability outside [0, 1].
    """
    if not 0 <= probability <= 1:
        raise WrongUse(f"probability {probability} of being drawn: give one in [0, 1]")
    threshold = int(Fraction(probability) * 2**64)
    found = array("q")  # grows without a NumPy array for each block
    for start in range(0, count, _BLOCK):
        words = bits.words(min(_BLOCK, count - start))
        # 2^64 itself is no word: at probability 1 everything is below it
        below = words < np.uint64(threshold) if threshold < 2**64 else words >= np.uint64(0)
        found.extend((start + np.flatnonzero(below)).tolist())
    return np.array(found, dtype=np.int64)


def most_chosen(count: int, probability: float) -> int:
    """How many `chosen` draws at most, but with a probability below 2^-40.

    By Bernstein's inequality, P[X ≥ np + t] ≤ exp(−t² / (2 (np(1 − p) + t/3))).

    Raises:
        WrongUse: a probability outside [0, 1].
    """
    if not 0 <= probability <= 1:
        raise WrongUse(f"probability {probability} of being drawn: give one in [0, 1]")
    variance = count * probability * (1 - probability)
    above = _RARE / 3 + math.sqrt((_RARE / 3) ** 2 + 2 * variance * _RARE)
    return min(count, math.ceil(count * probability + above))
