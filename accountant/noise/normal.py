"""Normal numbers rounded to integers, exactly: no float decides where a value falls.

The magnitude of a standard normal number is X = K + F with K = 0, 1, 2, … and F in [0, 1). K is
drawn with probability proportional to exp(−K²/2), F uniformly, and the pair is kept with
probability exp(−F (2K + F) / 2), else drawn anew (von Neumann's rejection, cell by cell; Karney,
arXiv:1303.6257, draws exact normal numbers along the same split). Floats only settle comparisons
that are clear by far more than their rounding; the others, one in 10^11, are settled with further
bits (`fedlens.accountant.noise.decisions`). So the same bits give the same integers on every
machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedlens.accountant.noise.bits import BitSource, Words
from fedlens.accountant.noise.decisions import accepted, cell, shares_below
from fedlens.foundation.errors import WrongUse

Integers = NDArray[np.int64]

LARGEST_SCALE = 2**52
DOUBT = 2.0**-40
"""Comparisons closer than this are not left to floats; their error is below 2^-45."""
_BLOCK = 1 << 15
_PLACE_BITS = 63
_TABLE_DIGITS = 60


def _table() -> Words:
    """The first 64 bits of P(K < j), j ≥ 1, as far as these tell the cells apart."""
    shares = (int(share * 2**64) for share in shares_below(10, _TABLE_DIGITS)[1:])
    return np.array([share for share in shares if share < 2**64 - 1], dtype=np.uint64)


_BELOW = np.append(_table(), np.uint64(2**64 - 1))
"""Ascending; a word that equals one of them is in doubt, the last standing for all further."""


@dataclass(frozen=True)
class _Places:
    """F as one of ``count`` equal places, of which the leading ``parts`` are told apart."""

    parts: int
    shift: int

    @classmethod
    def of(cls, parts: int) -> _Places:
        return cls(parts, _PLACE_BITS - parts.bit_length())

    @property
    def count(self) -> int:
        return self.parts << self.shift


def rounded_normal(size: int, scale: int, bits: BitSource) -> Integers:
    """Independent draws of round(N(0, scale²)), int64 [size], distributed exactly so.

    Args:
        size: how many.
        scale: the standard deviation before rounding, 1 .. 2^52.
        bits: of which about 30 bytes a draw are used.

    Raises:
        WrongUse: a scale out of range.
    """
    if not 1 <= scale <= LARGEST_SCALE:
        raise WrongUse(f"scale {scale} of rounded normal noise: give one in 1 .. 2^52")
    places = _Places.of(2 * scale)
    return drawn_until_kept(size, bits, lambda words: _kept(words, places, bits))


def drawn_until_kept(size: int, bits: BitSource, kept: Callable[[Words], Integers]) -> Integers:
    """The first ``size`` draws that are kept, int64 [size].

    Args:
        size: how many.
        bits: makes three words a proposal.
        kept: the draws that some proposals' words make, those that are kept, in their order.
    """
    found, missing = [np.empty(0, dtype=np.int64)], size
    while missing > 0:
        proposals = min(_BLOCK, 2 * missing + 16)
        found.append(kept(bits.words(3 * proposals))[:missing])
        missing -= len(found[-1])
    return np.concatenate(found)


def _kept(words: Words, places: _Places, spare: BitSource, doubt: float = DOUBT) -> Integers:
    """The proposals that three equal parts of ``words`` make, those that are kept."""
    cells_from, signed, chances = words.reshape(3, -1)
    cells = cells_of(cells_from, spare)
    place = signed >> np.uint64(1)
    keep = _keep(cells, place, chances, places, spare, doubt)
    # twice the scale, rounded down, halves to the nearest integer of the scale itself
    doubled = cells * places.parts + (place >> np.uint64(places.shift)).astype(np.int64)
    rounded = (doubled + 1) >> 1
    return np.where(signed & np.uint64(1), -rounded, rounded)[keep]


def cells_of(words: Words, spare: BitSource) -> Integers:
    """K of each word, int64, by inversion."""
    cells = np.searchsorted(_BELOW, words, side="right")
    for i in np.flatnonzero(_BELOW[np.maximum(cells, 1) - 1] == words):
        cells[i] = cell(int(words[i]), spare)
    return cells.astype(np.int64)


def _keep(
    cells: Integers,
    place: Words,
    chances: Words,
    places: _Places,
    spare: BitSource,
    doubt: float,
) -> NDArray[np.bool_]:
    """Which proposals to keep: F exists, and V < exp(−F (2K + F) / 2)."""
    exists = place < np.uint64(places.count)
    inside = place.astype(np.float64) / places.count
    height = np.exp(-0.5 * inside * (2 * cells + inside))
    excess = height - np.ldexp(chances.astype(np.float64), -64)
    keep: NDArray[np.bool_] = exists & (excess > 0)
    for i in np.flatnonzero(exists & (np.abs(excess) <= doubt)):
        k, at, chance = int(cells[i]), int(place[i]), int(chances[i])
        keep[i] = accepted(k, at, places.count, chance, spare)
    return keep
