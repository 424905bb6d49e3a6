"""The norms of users' clipped updates in one round, as a histogram that never understates one.

The histogram is enough for every order, noise and number of rounds, and it is what a secure sum
can carry. It is private: it is never a metric, and the ledger holds a commitment to it alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedlens.foundation.errors import WrongUse

NORM_BINS = 64
BIN_EDGES = np.arange(1, NORM_BINS + 1) / NORM_BINS
"""Upper edges of the bins as shares of the clipping norm, float64 [NORM_BINS]."""
_MOST = 2**53
_ROUNDING = 1e-6
_BLOCK = 8192


@dataclass(frozen=True)
class NormHistogram:
    """Counts of norms in `NORM_BINS` equal bins of (0, C]; each norm stands for its upper edge."""

    clipping_norm: float
    """C, the upper edge of the last bin."""
    counts: tuple[int, ...]
    """How many norms lie in (iC/bins, (i+1)C/bins]; norm 0 counts in the first bin."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.clipping_norm) and self.clipping_norm > 0):
            raise WrongUse(f"clipping_norm = {self.clipping_norm!r}: give a number above 0")
        if len(self.counts) != NORM_BINS:
            raise WrongUse(f"counts has {len(self.counts)} bins: give {NORM_BINS}")
        if any(isinstance(n, bool) or not isinstance(n, int) for n in self.counts):
            raise WrongUse("counts: give whole numbers")
        if not all(0 <= n <= _MOST for n in self.counts):
            raise WrongUse(f"counts: give numbers from 0 to {_MOST}")

    @classmethod
    def from_norms(cls, norms: ArrayLike, clipping_norm: float) -> NormHistogram:
        """Count norms, each rounded up to its bin's edge.

        Args:
            norms: L2 norms after clipping, [n], at most C (up to a relative 1e-6 of rounding).
            clipping_norm: C > 0.

        Raises:
            WrongUse: another shape, a norm that is negative, not finite or above C.
        """
        values = checked_norms(norms, clipping_norm)
        edges = BIN_EDGES * clipping_norm
        index = np.minimum(np.searchsorted(edges, values, side="left"), NORM_BINS - 1)
        counts = np.bincount(index, minlength=NORM_BINS)
        return cls(float(clipping_norm), tuple(int(n) for n in counts))

    @property
    def total(self) -> int:
        """How many norms were counted."""
        return sum(self.counts)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {"clipping_norm": self.clipping_norm, "counts": list(self.counts)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> NormHistogram:
        """The histogram that `to_json` described.

        Raises:
            WrongUse: a missing key or a value out of range.
        """
        try:
            return cls(float(data["clipping_norm"]), tuple(data["counts"]))
        except (KeyError, TypeError) as error:
            raise WrongUse(f"not a norm histogram: {error}") from error


def checked_norms(norms: ArrayLike, clipping_norm: float) -> NDArray[np.float64]:
    """Norms as float64 [n], cut to C; see `NormHistogram.from_norms` for what is refused."""
    if not (math.isfinite(clipping_norm) and clipping_norm > 0):
        raise WrongUse(f"clipping_norm = {clipping_norm!r}: give a number above 0")
    values = np.asarray(norms, dtype=np.float64)
    if values.ndim != 1:
        raise WrongUse(f"norms has shape {values.shape}: give one norm per user, shape [n]")
    if not np.isfinite(values).all() or (values < 0).any():
        raise WrongUse("norms: give finite numbers ≥ 0")
    if (values > clipping_norm * (1 + _ROUNDING)).any():
        raise WrongUse(
            f"norms: the largest, {values.max():.9g}, is above clipping_norm = "
            f"{clipping_norm:.9g}: clip first"
        )
    return np.minimum(values, clipping_norm)


def norms_of(updates: NDArray[np.float32] | NDArray[np.float64]) -> NDArray[np.float64]:
    """L2 norms of updates in one pass over them, float64 [m].

    Squares are summed in the updates' own precision over blocks, and the blocks in float64: the
    relative error is below 1e-6 for float32 however long the updates are.

    Args:
        updates: one update a row, float32 or float64 [m, d].

    Raises:
        WrongUse: another shape or dtype.
    """
    if updates.ndim != 2 or updates.dtype not in (np.float32, np.float64):
        raise WrongUse(
            f"updates is {updates.dtype} {updates.shape}: give float32 or float64, [m, d]"
        )
    users, size = updates.shape
    whole = size - size % _BLOCK
    blocks = updates[:, :whole].reshape(users, -1, _BLOCK)
    squares = np.vecdot(blocks, blocks).sum(axis=1, dtype=np.float64)
    rest = updates[:, whole:]
    result: NDArray[np.float64] = np.sqrt(squares + np.vecdot(rest, rest))
    return result
