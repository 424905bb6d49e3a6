"""The moments accountant: differential privacy of a run through Rényi divergences.

Composition adds divergences order by order, whatever mechanisms were chosen
beforehand; a query converts each order and takes the least. Divergences of one event are computed
once and kept, so a query over thousands of rounds costs well under a millisecond.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from fedlens.accountant.bounds import (
    NOTHING_SPENT,
    UNBOUNDED,
    Bound,
    require_count,
    require_probability,
)
from fedlens.accountant.dp.binomial import Floats
from fedlens.accountant.dp.renyi import DEFAULT_ORDERS, deltas, epsilons, renyi_divergences
from fedlens.accountant.events import Event, PricedMechanism
from fedlens.foundation.errors import WrongUse

__all__ = ["DEFAULT_ORDERS", "MomentsAccountant", "mechanism_divergences"]


class MomentsAccountant:
    """An upper bound on (ε, δ) of everything booked, through Rényi divergences.

    It prices the mechanisms that were booked, as they were described. The unit and the clipping
    norm do not enter: noise counts relative to each event's own sensitivity.
    """

    def __init__(self, orders: Sequence[float] = DEFAULT_ORDERS) -> None:
        """Choose the Rényi orders to try.

        Args:
            orders: α > 1, each a different valid bound.

        Raises:
            WrongUse: no order, or one that is not finite and above 1.
        """
        if not orders or not all(math.isfinite(a) and a > 1 for a in orders):
            raise WrongUse(f"orders = {orders!r}: give finite numbers above 1, one at least")
        self._orders = tuple(float(order) for order in orders)
        self._alphas = np.array(self._orders)
        self._counts: Counter[PricedMechanism] = Counter()
        self._total: Floats | None = None

    def compose(self, event: Event, count: int = 1) -> None:
        """Book ``count`` occurrences of ``event``."""
        require_count("count", count)
        self._counts[event.mechanism] += count * event.count
        self._total = None

    def epsilon(self, delta: float) -> Bound:
        """Epsilon of everything booked at ``delta`` in (0, 1), with its order."""
        require_probability("delta", delta)
        return self._best(self._divergences(), delta) if self._counts else NOTHING_SPENT

    def delta(self, epsilon: float) -> float:
        """Delta of everything booked at ``epsilon`` ≥ 0."""
        if not epsilon >= 0:
            raise WrongUse(f"epsilon = {epsilon!r} cannot be used: give a number ≥ 0")
        if not self._counts or math.isinf(epsilon):
            return 0.0
        totals = self._divergences()
        finite = np.isfinite(totals)
        if not finite.any():
            return 1.0
        return float(deltas(totals[finite], self._alphas[finite], epsilon).min())

    def would_exceed(self, event: Event, *, epsilon: float, delta: float) -> bool:
        """Whether booking ``event`` as well would take epsilon at ``delta`` above ``epsilon``.

        It looks at no data, so stopping on its answer reveals nothing.
        """
        require_probability("delta", delta)
        if not epsilon >= 0:
            raise WrongUse(f"epsilon = {epsilon!r} cannot be used: give a number ≥ 0")
        after = self._divergences() + self._of(event.mechanism, event.count)
        return self._best(after, delta).epsilon > epsilon

    def _divergences(self) -> Floats:
        """Totals per order, float64 [orders]; the same whatever the order of booking was."""
        if self._total is None:
            parts = [self._of(what, n) for what, n in sorted(self._counts.items())]
            self._total = np.sum(parts, axis=0) if parts else np.zeros(len(self._orders))
        return self._total

    def _of(self, mechanism: PricedMechanism, count: int) -> Floats:
        return count * mechanism_divergences(mechanism, self._orders)

    def _best(self, totals: Floats, delta: float) -> Bound:
        finite = np.isfinite(totals)
        if not finite.any():
            return UNBOUNDED
        alphas = self._alphas[finite]
        candidates = epsilons(totals[finite], alphas, delta)
        best = int(candidates.argmin())
        return Bound(float(candidates[best]), float(alphas[best]), "rdp")


def mechanism_divergences(mechanism: PricedMechanism, orders: tuple[float, ...]) -> Floats:
    """D_α of one release at each order, float64 [orders], read-only and cached.

    Exact for ``gaussian`` and, but for fractional orders of tiny noise, for ``poisson``.
    """
    return renyi_divergences(mechanism.sampling_rate, mechanism.noise, orders)
