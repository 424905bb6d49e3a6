"""A privacy filter: one budget for mechanisms that are chosen by what earlier ones released.

Accountants compose a list of mechanisms that no release has a say in. Where someone looks at a
release and then decides on the next noise, rate or number of rounds, the best order and the best
bound are chosen by the releases too, and what is paid for may be twice the δ that was declared.

A filter fixes a Rényi order α and a total D before the first release, and admits a mechanism only
while the divergences of order α of all that was admitted add up to D at most, on every path. Let P
and Q be the releases on neighbours. Given the past, the next mechanism multiplies the expected
(P/Q)^α under Q by at most exp((α−1)·D_α), D_α being its own divergence. So that ratio times
exp(−(α−1)·spent) never grows in expectation, and as spent ≤ D on every path, the whole has a
divergence of at most D, in both directions, whoever chose and whenever they stopped (Lécuyer,
"Practical Privacy Filters and Odometers with Rényi Differential Privacy and Applications to
Differentially Private Deep Learning", arXiv:2103.01379; Feldman and Zrnic, "Individual Privacy
Accounting via a Rényi Filter", arXiv:2008.11193).

Nothing is claimed of a part: what is spent so far is a share of the one budget.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedlens.accountant.dp.binomial import Floats
from fedlens.accountant.dp.renyi import DEFAULT_ORDERS, divergence_budgets, renyi_divergences
from fedlens.accountant.events import Event, PricedMechanism
from fedlens.foundation.errors import WrongUse

KEPT = 0.95
"""Share of the rounds of its best order that `default_order` keeps for releases of all units."""


@dataclass(frozen=True)
class PrivacyFilter:
    """ε at δ for whatever is admitted, at one order."""

    epsilon: float
    delta: float
    order: float

    def __post_init__(self) -> None:
        order, most = self.order, DEFAULT_ORDERS[-1]
        if not 1 < order <= most:
            raise WrongUse(
                f"order = {order!r} cannot be used: give a number above 1, of {most:g} at most"
            )
        if not self.total > 0:
            raise WrongUse(
                f"order = {order:g} cannot be used: at this order no release fits "
                f"epsilon = {self.epsilon:g} at delta = {self.delta:g}; give a larger one of either"
            )

    @property
    def total(self) -> float:
        """D: what the divergences of this order may add up to."""
        return float(divergence_budgets(np.array([self.order]), self.epsilon, self.delta)[0])

    def price(self, mechanism: PricedMechanism, count: int = 1) -> float:
        """The divergence of ``count`` releases; infinite without noise."""
        one = renyi_divergences(mechanism.sampling_rate, mechanism.noise, (self.order,))
        return float(count * one[0])

    def spent(self, counts: Mapping[PricedMechanism, int]) -> float:
        """The divergences of all that was admitted, the same in whatever order it was."""
        return math.fsum(self.price(what, count) for what, count in counts.items())

    def admits(self, counts: Mapping[PricedMechanism, int], event: Event) -> bool:
        """Whether an event fits beside what was admitted. It looks at no data."""
        return self.spent(counts) + self.price(event.mechanism, event.count) <= self.total

    def rounds_of(self, event: Event) -> int:
        """How many events of one kind an empty budget pays for."""
        return math.floor(self.total / self.price(event.mechanism, event.count))

    def rounds_beforehand(self, event: Event) -> int:
        """The same by the moments accountant, of a number of rounds that no release has a say in.

        It may take the order that is best for this event. The difference is what a filter costs.
        """
        orders, what = np.array(DEFAULT_ORDERS), event.mechanism
        totals = divergence_budgets(orders, self.epsilon, self.delta)
        prices = renyi_divergences(what.sampling_rate, what.noise, DEFAULT_ORDERS)
        best = float((totals / (event.count * prices)).max())
        return max(math.floor(best), self.rounds_of(event))


def default_order(epsilon: float, delta: float) -> float:
    """An order for a budget of which nobody knows yet how it will be spent.

    Releases in which all units take part have divergences α/(2z²), and so has most of what is
    sampled with enough noise: the best order for them is where D/α is largest. Sampled releases of
    little noise cost far more from some order on. So this is the lowest order that leaves the first
    kind `KEPT` of what the best one pays for.

    Raises:
        WrongUse: no order can promise ``epsilon`` at ``delta``.
    """
    near = np.unique(np.round(DEFAULT_ORDERS, 4))  # a number that a header can be read by
    orders = near[near > 1]
    worth: Floats = divergence_budgets(orders, epsilon, delta) / orders
    if not worth.max() > 0:
        raise WrongUse(
            f"epsilon = {epsilon:g} cannot be promised at delta = {delta:g} to runs whose settings "
            "are chosen by earlier ones: give a larger one of either"
        )
    return float(orders[np.flatnonzero(worth >= KEPT * worth.max())[0]])
