"""Moments of the privacy loss at given distances, every order at once.

Distances d are L2 norms of the difference between the sums that two neighbouring data sets give;
``noise_std`` is absolute, in the same unit. Under adding or removing one user of a Poisson cohort,
d is the norm of that user's clipped update. λ is the order of the moment (α − 1 in Rényi terms).

Paper: A. Triastcyn, B. Faltings, "Generating Higher-Fidelity Synthetic Datasets with Privacy
Guarantees", arXiv:2003.00997, equations 6 and 7. With n = λ + 1 and X_k = k(k−1)·d²/(2s²) the
first is Σ_k b_k·exp(X_k) over the binomial probabilities b_k of B(n, q). The second, shifted by
one, is Σ_k b_k·(k/(nq))·exp(X_k): the same terms, so both come from one table over k.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedlens.accountant.dp.binomial import Floats, log_binomial
from fedlens.foundation.errors import WrongUse

_OVERFLOW = 600.0
_NEGLIGIBLE = -50.0
"""Terms below exp of this times the largest change no bit, however many there are."""
_UNDERFLOW = -700.0


def log_moments(
    lambdas: Sequence[int], rate: float, distances: ArrayLike, noise_std: float
) -> tuple[Floats, Floats]:
    """Log of the expectations of equations 6 and 7 at each distance, each float64 [orders, m].

    Args:
        lambdas: orders, whole numbers ≥ 1.
        rate: q in [0, 1].
        distances: d ≥ 0, [m].
        noise_std: s > 0, absolute.

    Returns:
        log E_{k~B(λ+1,q)} exp((k² − k)·d²/(2s²)), the exact moment of the privacy loss towards the
        larger data set and an upper bound on the other direction's: all that the corrected and the
        sound figure need; and log E_{k~B(λ,q)} exp((k² + k)·d²/(2s²)), equation 7 as printed, which
        bounds the other direction through Jensen's inequality, at a cost of order q where the truth
        is of order q². Only the figure as published uses the second.
    """
    a, orders = squared_over_noise(distances, noise_std), checked_lambdas(lambdas)
    shape = (len(orders), a.size)
    if rate == 0.0 or not a.any():
        return np.zeros(shape), np.zeros(shape)
    n = np.array(orders, dtype=np.float64)[:, None] + 1
    if rate == 1.0:
        whole = n * (n - 1) * a
        return whole, whole
    rising = np.argsort(a)
    sides = _LossTable(orders, rate, a[rising]).log_sums()
    left, right = np.empty(shape), np.empty(shape)
    left[:, rising], right[:, rising] = sides
    return left, right


def checked_lambdas(lambdas: Sequence[int]) -> tuple[int, ...]:
    """The orders, refused unless whole numbers ≥ 1, one at least.

    Raises:
        WrongUse: naming ``lambdas``.
    """
    whole = (not isinstance(n, bool) and n == n and n >= 1 and n == math.floor(n) for n in lambdas)
    if len(lambdas) == 0 or any(math.isinf(n) for n in lambdas) or not all(whole):
        raise WrongUse(f"lambdas = {lambdas!r} cannot be used: give whole numbers ≥ 1")
    return tuple(int(order) for order in lambdas)


class _LossTable:
    """The table of log(exp(X_k) − 1) at k = 2 … and each distance, rising from left to right."""

    def __init__(self, orders: tuple[int, ...], rate: float, a: Floats) -> None:
        self._orders, self._rate = orders, rate
        k = np.arange(2, max(orders) + 2, dtype=np.float64)
        self._log_grown = np.multiply.outer(k * (k - 1), a)  # X_k, to begin with
        self._grown = np.expm1(np.minimum(self._log_grown, _OVERFLOW))
        close = self._log_grown < -_NEGLIGIBLE
        with np.errstate(divide="ignore"):
            self._log_grown[close] = np.log(self._grown[close])
        n = np.array(orders) + 1
        self._light = (n[:, None] * (n[:, None] - 1) * a <= _OVERFLOW).sum(axis=1)

    def log_sums(self) -> tuple[Floats, Floats]:
        """Both log-moments, float64 [orders, m]: where no exponential overflows, one product."""
        left_weights, right_weights = _weights(self._orders, self._rate)
        left, right = np.log1p(left_weights @ self._grown), np.log1p(right_weights @ self._grown)
        users = left.shape[1]
        for at in np.flatnonzero(self._light < users):
            for columns in self._groups(self._orders[at] + 1, self._light[at], users):
                left[at, columns], right[at, columns] = self._large(self._orders[at] + 1, columns)
        return left, right

    def _groups(self, n: int, first: int, last: int) -> list[slice]:
        """Columns in which small k make up the sum, and those in which k close to n do."""
        ends = self._log_grown[n - 2, first:last]
        between = first + int(np.searchsorted(ends, -n * math.log(self._rate)))
        return [slice(*ends) for ends in ((first, between), (between, last)) if ends[0] < ends[1]]

    def _large(self, n: int, columns: slice) -> tuple[Floats, Floats]:
        """One order n = λ + 1 in the log domain."""
        k, log_weights = _log_weights(n, self._rate)
        kept = self._window(log_weights, columns)
        exponents = self._log_grown[kept, columns] + log_weights[kept, None]
        top = exponents.max(axis=0)
        exponents -= top
        terms = np.exp(np.maximum(exponents, 2 * _NEGLIGIBLE, out=exponents), out=exponents)
        left, right = terms.sum(axis=0), (k[kept] / (n * self._rate)) @ terms
        return np.logaddexp(0.0, top + np.log(left)), np.logaddexp(0.0, top + np.log(right))

    def _window(self, log_weights: Floats, columns: slice) -> slice:
        """The k whose terms count in any of the columns.

        As the distance grows, terms grow faster the larger their k is: what is too small at the
        first column and lies below its largest term stays too small, and likewise at the last.
        """
        size = log_weights.size
        first = self._log_grown[:size, columns.start] + log_weights
        last = self._log_grown[:size, columns.stop - 1] + log_weights
        low = int(np.argmax(first > first.max() + _NEGLIGIBLE))
        high = size - int(np.argmax(last[::-1] > last.max() + _NEGLIGIBLE))
        return slice(low, high)


@functools.lru_cache(maxsize=4096)
def _log_weights(n: int, rate: float) -> tuple[Floats, Floats]:
    """The numbers k = 2 … n, float64 [n − 1], and the logarithms of their probabilities."""
    return np.arange(2, n + 1, dtype=np.float64), log_binomial(n, rate)[2:]


@functools.lru_cache(maxsize=16)
def _weights(orders: tuple[int, ...], rate: float) -> tuple[Floats, Floats]:
    """b_k and b_k·k/(nq), each float64 [orders, max λ], at k = 2 … max λ + 1."""
    left = np.zeros((len(orders), max(orders)))
    right = np.zeros_like(left)
    for at, order in enumerate(orders):
        k, logs = _log_weights(order + 1, rate)
        left[at, :order] = np.where(logs > _UNDERFLOW, np.exp(logs), 0.0)
        right[at, :order] = left[at, :order] * k / ((order + 1) * rate)
    return left, right


def squared_over_noise(distances: ArrayLike, noise_std: float) -> NDArray[np.float64]:
    """d²/(2s²) at each distance, float64 [m].

    Raises:
        WrongUse: naming ``distances`` or ``noise_std``.
    """
    d = np.asarray(distances, dtype=np.float64)
    if d.ndim != 1:
        raise WrongUse(f"distances has shape {d.shape}: give one distance a sample, shape [m]")
    if not np.isfinite(d).all() or (d < 0).any():
        raise WrongUse("distances: give finite numbers ≥ 0")
    if not (math.isfinite(noise_std) and noise_std > 0):
        raise WrongUse(f"noise_std = {noise_std!r} cannot be used: give a number above 0")
    result: Floats = (d / noise_std) ** 2 / 2
    return result
