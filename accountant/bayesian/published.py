"""The Bayesian figures of a run, as post-processing of what it has released.

Only noised histograms of norms are looked at (`noised_norms`), and each round is charged for both
parts of what it releases, so every figure here is a function of releases that differential privacy
covers: it tells no more of anyone than they do. Two figures:

as published
    equations 6 to 8 of Triastcyn and Faltings (arXiv:2003.00997) with the histograms of like rounds
    pooled, negative counts taken as 0, in place of the expectation. It bounds nothing.
corrected
    Hölder over the declared rounds, for one user stays the same person; the exact direction; the
    pooled mean plus as many standard errors, of cohorts and noise, as δ leaves room for; ε of the
    paper's definition 4 itself instead of a bound on the loss's tail. An estimate: it takes the
    error to be normal, and norms not to react to the releases.

`fixed_order` has the third, sound one, and says what all of them assume.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.special import ndtri

from fedlens.accountant.bayesian.accountant import DEFAULT_LAMBDAS, BayesianAccountant
from fedlens.accountant.bayesian.confidence import log_at, places
from fedlens.accountant.bayesian.costs import (
    Conversion,
    divergence_epsilon_by_order,
    epsilon_by_order,
    least,
    plug_in_cost,
)
from fedlens.accountant.bayesian.noised_norms import NoisedNorms
from fedlens.accountant.bayesian.pooled import Pool
from fedlens.accountant.bayesian.pricing import at_largest
from fedlens.accountant.bounds import NOTHING_SPENT, UNBOUNDED, Bound
from fedlens.accountant.dp.binomial import Floats
from fedlens.accountant.events import Event, SubsampledGaussian
from fedlens.accountant.noise.shares import ONE_SHARE, NoiseSharing

FAILURE_SHARE = 0.01
"""Share of δ that all confidence bounds together may fail with at most."""


@dataclass
class Pools:
    """Rounds, pooled where their norms were released, counted where they were not."""

    sharing: NoiseSharing = ONE_SHARE
    """Who adds the noise on norms."""
    pooled: dict[tuple[Event, float], Pool] = field(default_factory=dict)
    bare: dict[Event, int] = field(default_factory=dict)

    def add(self, event: Event, norms: NoisedNorms | None, rounds: int = 1) -> None:
        """Book one event, or several alike of which no norms are known."""
        if norms is None or not isinstance(event, SubsampledGaussian):
            self.bare[event] = self.bare.get(event, 0) + rounds
            return
        key = (event, norms.noise)
        none = Pool.of(event, norms.noise, self.sharing)
        self.pooled[key] = self.pooled.get(key, none).joined(norms)

    @property
    def rounds(self) -> int:
        """Rounds with norms."""
        return sum(pool.rounds for pool in self.pooled.values())


class PublishedAccountant:
    """Books rounds with their noised norms; each query takes milliseconds."""

    def __init__(
        self,
        total_rounds: int,
        delta: float,
        users: int | None,
        *,
        lambdas: Sequence[int] = DEFAULT_LAMBDAS,
        sharing: NoiseSharing = ONE_SHARE,
    ) -> None:
        """Declare the run.

        Args:
            total_rounds: T, rounds that there will be at most.
            delta: δ of every figure.
            users: N, enrolled users; None where that is unknown: then every round is charged at
                the clipping norm.
            lambdas: orders to try, whole numbers ≥ 1.
            sharing: who adds the noise on norms.

        Raises:
            WrongUse: naming the argument.
        """
        self._booked = BayesianAccountant(total_rounds, delta, lambdas=lambdas)
        self._lambdas = tuple(sorted({int(order) for order in lambdas}))
        self._orders = np.array(self._lambdas, dtype=np.float64)
        self._total_rounds, self._delta, self._users = total_rounds, delta, users
        self._gamma = FAILURE_SHARE * delta / (total_rounds * len(self._lambdas))
        self._pools, self._private = Pools(sharing), True
        self._known: tuple[Floats, Bound] | None = None
        """What rounds so far cost, and at the clipping norm: each share of users asks for it."""

    @property
    def rounds(self) -> int:
        """Releases booked so far."""
        return self._booked.rounds

    @property
    def rounds_with_norms(self) -> int:
        """How many of them came with norms."""
        return self._pools.rounds

    @property
    def confidence_failure(self) -> float:
        """Probability, within δ, that a confidence bound in the corrected figure fails."""
        return len(self._pools.pooled) * len(self._lambdas) * self._gamma

    def compose(self, event: Event, norms: NoisedNorms | None, rounds: int = 1) -> None:
        """Book a round, or several alike without norms, which are charged at the clipping norm.

        Raises:
            TooManyRounds: more rounds than were declared. Nothing was booked.
            WrongUse: another unit than before. Nothing was booked.
        """
        self._booked.compose(event, None, rounds)
        self._private = self._private and event.private
        self._known = None
        if event.private:
            self._pools.add(event, norms if self._users is not None else None, rounds)

    def as_published(self) -> Bound:
        """Epsilon by the paper's formulas; its order is λ."""
        costs = sum((self._published(pool) for pool in self._pools.pooled.values()), self._bare())
        return self._epsilon(epsilon_by_order, costs, self._delta)

    def corrected(self) -> Bound:
        """The estimate, never above what norms all at C would cost; its order is λ."""
        return self.for_share(0.0)

    def for_share(self, share: float) -> Bound:
        """The estimate for all but a share p of users, by Markov's inequality; 0: on average.

        What holds on average at p·δ holds at δ for 1 − p of the users at least.

        Args:
            share: users that it is to hold for, 1 − p in [0, 1): 0 is the figure itself.
        """
        room = (1.0 - share) * (self._delta - self.confidence_failure)
        if self._known is None:
            self._known = self._costs(), self._booked.sound()
        costs, at_clip = self._known
        found = self._epsilon(divergence_epsilon_by_order, costs, room)
        return found if found.epsilon < at_clip.epsilon else at_clip

    def _costs(self) -> Floats:
        return sum(
            (self._corrected(pool) for pool in self._pools.pooled.values()), self._bare(True)
        )

    def _epsilon(self, convert: Conversion, costs: Floats, delta: float) -> Bound:
        if not self._private:
            return UNBOUNDED
        if not self.rounds:
            return NOTHING_SPENT
        return least(convert, [(costs, delta)], self._orders)

    def _bare(self, exact: bool = False) -> Floats:
        """What rounds without norms cost: in the exact direction, or as printed."""
        total = np.zeros(len(self._lambdas))
        for event, times in self._pools.bare.items():
            worst = at_largest(event, self._lambdas)
            cost = worst.largest if exact else np.maximum(worst.left, worst.right)[:, 0]
            total += times * event.count * cost
        return total

    def _published(self, pool: Pool) -> Floats:
        sample = pool.priced(self._lambdas)
        if not sample.weights.any():
            return pool.rounds * np.maximum(sample.left, sample.right)[:, -1]
        left, right = (plug_in_cost(side, sample.weights) for side in (sample.left, sample.right))
        return pool.rounds * np.maximum(left, right)

    def _corrected(self, pool: Pool) -> Floats:
        sample, power = pool.priced(self._lambdas), self._total_rounds
        top = power * sample.largest
        values = places(power * sample.moments, top)
        users = self._users or 1
        mean = pool.estimated_mean(values, users, float(-ndtri(self._gamma)))
        return pool.rounds / power * log_at(mean, top)
