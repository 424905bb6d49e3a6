"""Discrete normal numbers, exactly: integers x with probability proportional to exp(−x²/(2s²)).

Canonne, Kamath, Steinke, "The Discrete Gaussian for Differential Privacy", arXiv:2004.00010. Drawn
as `fedlens.accountant.noise.normal` draws, along the cells of Karney's algorithm D
(arXiv:1303.6257): with x = ±(K s + J), K is drawn with probability proportional to exp(−K²/2), J
uniformly from 0 .. s − 1, and the pair is kept with probability exp(−F (2K + F) / 2) for F = J/s;
as (K + F)² = x²/s², that is the law. 0 is drawn with both signs, so −0 is drawn anew.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedlens.accountant.noise.bits import BitSource, Words
from fedlens.accountant.noise.decisions import accepted_at
from fedlens.accountant.noise.normal import (
    DOUBT,
    LARGEST_SCALE,
    Integers,
    cells_of,
    drawn_until_kept,
)
from fedlens.foundation.errors import WrongUse

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
