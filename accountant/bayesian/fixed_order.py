"""A privacy filter for Bayesian differential privacy: one order and one budget, fixed beforehand.

Realised costs depend on the releases. Adding them up and taking the best order afterwards (an
*odometer*) is no bound where later costs react to earlier releases: some order looks cheap just
when the loss is large. A *filter* (Rogers, Roth, Ullman, Vadhan 2016; Feldman, Zrnic 2021) fixes an
order λ and a budget B before the first release and stops before the total at λ can pass B; what it
claims is known beforehand, so nothing that is released can choose it.

What the filter claims, (ε, δ) on average over the users enrolled, rests on all of these:

1. each round draws each enrolled user with probability q, independently and in secret, and the
   noise of both parts of a release is the ledger's;
2. the norms that nodes count are those of the updates that they send; a user who is not counted
   has contributed nothing;
3. the person whom it is about is any one of the N enrolled, taken at random. A person drawn from a
   population has the same if those enrolled are a random sample of it, on average over samples;
4. norms do not single people out. Either they do not react to releases (they may differ between
   users and rounds all the same); or they react in common: after any history, each user's log M_λ
   is one factor of that history and round times a number of the user's own.

The fourth cannot be checked. Where it fails (a release makes large the norms of just those people
of whom much has been released), no figure that is made of averages holds, and only differential
privacy does. Without a filter, therefore, the sound figure of a run is differential privacy's.

Why it holds. Let P be the releases with everybody, Q_x those without x, and φ_t(g) the cost
(1/T)·log mean_x exp(T·g·k_x) of a round whose common factor is g. φ_t is convex and 0 at 0, so
Σφ_t(g_t) ≤ B over T rounds bounds G = Σg_t by the G_B at which log mean_x exp(k_x·G_B) = B. Each x
then has Σ_t log M_t ≤ k_x·G_B after every history, so both E_Q[(P/Q)^(λ+1)] and E_P[(Q/P)^(λ+1)]
are at most exp(k_x·G_B), exp(B) on average over x, and the average of E[(1 − e^(ε−L))₊] is what
`costs.divergence_epsilon_by_order` makes of it. Norms that do not react need no common factor:
Hölder's inequality over the rounds is enough. That the true total stays below B is known but for
the probability that a bound of `pooled` fails, which is a share of δ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fedlens.accountant.bayesian.accountant import DEFAULT_LAMBDAS
from fedlens.accountant.bayesian.confidence import log_at, places
from fedlens.accountant.bayesian.costs import divergence_gain
from fedlens.accountant.bayesian.noised_norms import NoisedNorms
from fedlens.accountant.bayesian.pooled import Pool
from fedlens.accountant.bayesian.pricing import at_largest
from fedlens.accountant.bayesian.published import FAILURE_SHARE, Pools
from fedlens.accountant.bounds import UNBOUNDED, Bound, require_count, require_probability
from fedlens.accountant.dp.binomial import Floats
from fedlens.accountant.events import Event
from fedlens.accountant.noise.shares import ONE_SHARE, NoiseSharing
from fedlens.foundation.errors import WrongUse

METHOD = "filter"
"""How a bound of the filter is marked."""


class BudgetTooSmall(WrongUse):
    """An ε that no order can promise at the δ: it must be larger, whatever the norms are."""


class FixedOrderFilter:
    """Says which round may still be released, from what was released before.

    Guarantee: where each round is asked for with `forbids` first, and charged when it is released,
    `claim` holds under the module's assumptions, whatever the releases turn out to be.
    """

    def __init__(
        self,
        plan: Sequence[tuple[Event, int]],
        *,
        epsilon: float,
        delta: float,
        users: int,
        sharing: NoiseSharing = ONE_SHARE,
    ) -> None:
        """Fix order and budget from the plan alone.

        The order is the one at which the budget is worth most: at which it pays for the largest
        multiple of the plan with all norms at C.

        Args:
            plan: the run's rounds by their event, all with noise; T is their number.
            epsilon: > 0, what is claimed at the end.
            delta: δ in (0, 1) that it is claimed at.
            users: N, enrolled.
            sharing: who adds the noise on norms.

        Raises:
            BudgetTooSmall: no order can promise ``epsilon`` at ``delta``.
            WrongUse: an argument is out of range, or a planned round has no noise.
        """
        require_probability("delta", delta)
        require_count("users", users)
        if not (math.isfinite(epsilon) and epsilon > 0):
            raise WrongUse(f"epsilon = {epsilon!r} cannot be used: give a number above 0")
        if not plan or not all(event.private for event, _ in plan):
            raise WrongUse("plan: give one round at least, each with noise")
        self._users, self._total_rounds = users, sum(rounds for _, rounds in plan)
        self._left = delta * (1 - FAILURE_SHARE)
        self._gamma = FAILURE_SHARE * delta / len({event for event, _ in plan})
        self._known = frozenset(event for event, _ in plan)
        self._order = _best_order(plan, epsilon, self._left)
        self._budget = _budget(np.array([float(self._order)]), epsilon, self._left)[0]
        self._pools, self._noises = Pools(sharing), dict[Event, float]()
        self._kept = True

    @property
    def claim(self) -> Bound:
        """The ε that is claimed of the whole run, with its order; infinite once it was not kept."""
        return self.for_share(0.0)

    @property
    def budget(self) -> float:
        """B: what the cost at the order may sum up to."""
        return float(self._budget)

    def for_share(self, share: float) -> Bound:
        """The claim for a share of users in [0, 1) at least, by Markov's inequality."""
        if not self._kept:
            return UNBOUNDED
        order = float(self._order)
        gain = float(divergence_gain(np.array([order]))[0])
        left = math.log((1.0 - share) * self._left)
        return Bound(float(max((self._budget - left - gain) / order, 0.0)), order, METHOD)

    def spent(self) -> float:
        """Upper bound on what the rounds so far have cost at the order."""
        pooled = sum(self._cost(pool) for pool in self._pools.pooled.values())
        bare = sum(n * self._at_clip(event) for event, n in self._pools.bare.items())
        return float(pooled + bare)

    def forbids(self, event: Event) -> bool:
        """Whether the budget could be passed by one more such round, were all norms at C."""
        return bool(self.spent() + self._at_clip(event) > self._budget)

    def charge(self, event: Event, norms: NoisedNorms | None) -> None:
        """Book a round with the norms that it released, or at the clipping norm without any.

        Only planned events are pooled, each with the noise of its first norms: γ is split over
        these beforehand. A round that `forbids` would not have allowed voids the claim.
        """
        self._kept = self._kept and not self.forbids(event)
        if norms is not None and event in self._known:
            noise = self._noises.setdefault(event, norms.noise)
            self._pools.add(event, norms if norms.noise == noise else None)
        else:
            self._pools.add(event, None)

    def _at_clip(self, event: Event) -> float:
        if not event.private:
            return math.inf
        return float(event.count * at_largest(event, (self._order,)).largest[0])

    def _cost(self, pool: Pool) -> float:
        sample, power = pool.priced((self._order,)), self._total_rounds
        top = power * sample.largest
        values = places(power * sample.moments, top)
        mean = pool.bounded_mean(values, self._users, self._gamma)
        return float(pool.rounds / power * log_at(mean, top)[0])


def _budget(orders: Floats, epsilon: float, delta: float) -> Floats:
    """B at each order, float64: the summed cost whose conversion is ε at δ."""
    result: Floats = orders * epsilon + math.log(delta) + divergence_gain(orders)
    return result


def _best_order(plan: Sequence[tuple[Event, int]], epsilon: float, delta: float) -> int:
    orders = np.array(DEFAULT_LAMBDAS, dtype=np.float64)
    worst = sum(n * event.count * at_largest(event, DEFAULT_LAMBDAS).largest for event, n in plan)
    worth = _budget(orders, epsilon, delta) / worst
    best = int(worth.argmax())
    if not worth[best] > 0:
        raise BudgetTooSmall(
            f"epsilon = {epsilon!r} cannot be promised at delta = {delta!r} by any order λ up to "
            f"{DEFAULT_LAMBDAS[-1]}: give a larger one"
        )
    return DEFAULT_LAMBDAS[best]
