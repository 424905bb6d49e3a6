"""The Bayesian accountant: an estimate for users like those seen, beside differential privacy.

Bayesian differential privacy (Triastcyn and Faltings, arXiv:2003.00997, definition 4) promises
(ε, δ) on average over users drawn from the population, so it may use how large users' updates
really are instead of their bound C. Two figures are kept apart:

as published
    equations 6 to 8 with the mean over a round's norms in place of the expectation, both directions
    as printed and the larger one taken. No confidence bound, and each round as if its user were
    drawn anew. For comparison with the paper; it bounds nothing.
corrected
    Hölder over the declared rounds, for one user stays the same person; Student-t upper confidence
    bounds whose failure is part of δ; the exact direction; never above what norms all equal to C
    would cost. Still an estimate: a t bound presumes that a sample's mean is close to normal, and
    nothing can be known of users who were never drawn.

Neither may decide whether to release: both are computed from private norms. Stop on the moments
accountant.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accountant.binomial import Floats
from accountant.bounds import (
    NOTHING_SPENT,
    UNBOUNDED,
    Bound,
    require_count,
    require_probability,
)
from accountant.costs import (
    epsilon_by_order,
    hoelder_cost,
    largest_share,
    left_log_moments,
    plug_in_cost,
    right_log_moments,
    student_quantile,
)
from accountant.events import SubsampledGaussian
from accountant.norms import BIN_EDGES, NORM_BINS, NormHistogram, checked_norms

__all__ = ["DEFAULT_LAMBDAS", "NORM_BINS", "BayesianAccountant", "NormHistogram", "TooManyRounds"]

_TAIL_SHARE = 0.5
DEFAULT_LAMBDAS: tuple[int, ...] = (
    *range(1, 65),
    *(int(order) for order in np.unique(np.round(np.geomspace(64, 512, 19)))[1:]),
)
"""Orders λ: every whole number to 64, then in steps of an eighth to 512."""

Norms = NormHistogram | NDArray[np.float64]


class TooManyRounds(ValueError):
    """More rounds than were declared, which the corrected figure cannot cover."""


@dataclass
class _Notes:
    """Rounds that could not be estimated, wholly or at some orders."""

    missing: int = 0
    few: int = 0
    equal: int = 0


@dataclass(frozen=True)
class _Sample:
    """The norms of one round, and what one release costs at each."""

    left: Floats
    """log M, the exact direction, float64 [orders, m]."""
    right: Floats
    """log M, the other direction as printed, float64 [orders, m]."""
    weights: Floats
    """How often each norm was seen, float64 [m]."""


class BayesianAccountant:
    """Books rounds with the norms of their users' clipped updates, each round at most 5 ms.

    A round without evidence, with fewer norms than ``least_norms``, or with all norms in one place
    below C is charged at d = C, which always holds; so is any single order at which one observation
    makes up more than half of the mean. `warnings` says how often.
    """

    def __init__(
        self,
        total_rounds: int,
        delta: float,
        *,
        lambdas: Sequence[int] = DEFAULT_LAMBDAS,
        failure_share: float = 0.01,
        least_norms: int = 64,
    ) -> None:
        """Declare the run.

        Args:
            total_rounds: T, rounds that there will be at most. Fewer stay covered; more raise.
            delta: δ_μ in (0, 1) that both figures are stated at.
            lambdas: orders to try, whole numbers ≥ 1.
            failure_share: share of δ kept for failing confidence bounds, in (0, 1); it is split
                evenly over rounds and orders.
            least_norms: norms that a round needs for an estimate, at least 3.

        Raises:
            ValueError: naming the argument.
        """
        require_count("total_rounds", total_rounds)
        require_probability("delta", delta)
        require_probability("failure_share", failure_share)
        require_count("least_norms", least_norms)
        if least_norms < 3:
            raise ValueError(f"least_norms = {least_norms!r} cannot be used: give at least 3")
        if not lambdas or any(isinstance(n, bool) or n != int(n) or n < 1 for n in lambdas):
            raise ValueError(f"lambdas = {lambdas!r} cannot be used: give whole numbers ≥ 1")
        self._lambdas = tuple(sorted({int(order) for order in lambdas}))
        self._orders = np.array(self._lambdas, dtype=np.float64)
        self._total_rounds, self._delta, self._least = total_rounds, delta, least_norms
        self._gamma = failure_share * delta / (total_rounds * len(self._lambdas))
        self._published = np.zeros_like(self._orders)
        self._corrected = np.zeros_like(self._orders)
        self._rounds, self._estimated = 0, 0
        self._private = True
        self._notes = _Notes()
        self._heavy = np.zeros(len(self._lambdas), dtype=np.int64)

    @property
    def rounds(self) -> int:
        """Rounds booked so far."""
        return self._rounds

    @property
    def confidence_failure(self) -> float:
        """Probability, within δ, that a confidence bound in the corrected figure fails."""
        return self._estimated * len(self._lambdas) * self._gamma

    def compose(self, event: SubsampledGaussian, evidence: Norms | None) -> None:
        """Book one round of ``event.count`` releases.

        Args:
            event: the mechanism.
            evidence: norms of the cohort's clipped updates (pooled, for several releases in the
                round), as a histogram or float64 [m], in the unit of the event's clipping norm; or
                None, to charge the clipping norm.

        Raises:
            TooManyRounds: there were ``total_rounds`` already. Nothing was booked.
            ValueError: evidence of another clipping norm, or norms above it. Nothing was booked.
        """
        if self._rounds >= self._total_rounds:
            raise TooManyRounds(
                f"total_rounds = {self._total_rounds}: that many rounds are booked already; "
                "declare more rounds beforehand"
            )
        sample = None if evidence is None else self._sample(event, evidence)
        self._rounds += 1
        if not event.private:
            self._private = False
            return
        clip = self._at_clip(event)
        seen = clip if sample is None else sample
        cost = np.maximum(
            plug_in_cost(seen.left, seen.weights), plug_in_cost(seen.right, seen.weights)
        )
        self._published += event.count * cost
        self._corrected += self._corrected_cost(sample, event.count, clip.left[:, 0])

    def as_published(self) -> Bound:
        """Epsilon by equations 6 to 8 of arXiv:2003.00997 as printed; its order is λ.

        With M_L and M_R the inner expectations of equations 6 and 7: Σ_t max(log mean M_L, log mean
        M_R) over the norms seen in round t. No Hölder exponent, no confidence bound.
        """
        return self._bound(self._published, 0.0)

    def corrected(self) -> Bound:
        """Epsilon with Hölder over the declared rounds and confidence bounds; its order is λ.

        The tail of the privacy loss is what it bounds, so a percentile of users follows by Markov's
        inequality: with probability 1 − p over users, (ε, δ/p) holds for that user.
        """
        return self._bound(self._corrected, self.confidence_failure)

    def warnings(self) -> tuple[str, ...]:
        """What weakens the figures, in words; nothing if every round was estimated soundly."""
        notes = self._notes
        reasons = {
            "no evidence": notes.missing,
            f"fewer than {self._least} norms": notes.few,
            "norms that are all equal": notes.equal,
        }
        found = [
            f"{count} of {self._rounds} rounds had {reason} and were charged at the clipping norm"
            for reason, count in reasons.items()
            if count
        ]
        return (*found, *self._order_warnings(self.corrected().order))

    def _order_warnings(self, order: float) -> list[str]:
        if order not in self._lambdas:
            return []
        place = self._lambdas.index(int(order))
        heavy, found = int(self._heavy[place]), []
        if heavy:
            found.append(
                f"{heavy} of {self._rounds} rounds had one norm that outweighs the others at order "
                f"λ = {order:g} and were charged at the clipping norm there"
            )
        if place in (0, len(self._lambdas) - 1):
            found.append(f"the best order λ = {order:g} is at the end of those that were tried")
        return found

    def _sample(self, event: SubsampledGaussian, evidence: Norms) -> _Sample | None:
        """What was seen, or None if nothing was (or nothing counts, without noise)."""
        if isinstance(evidence, NormHistogram):
            if evidence.clipping_norm != event.clipping_norm:
                raise ValueError(
                    f"evidence is of clipping norm {evidence.clipping_norm!r}, the event of "
                    f"{event.clipping_norm!r}: give the norms of this event's updates"
                )
            counts = np.array(evidence.counts, dtype=np.float64)
            seen = counts > 0
            shares, weights = BIN_EDGES[seen], counts[seen]
        else:
            norms = checked_norms(evidence, event.clipping_norm)
            shares, times = np.unique(norms / event.clipping_norm, return_counts=True)
            weights = times.astype(np.float64)
        if not event.private or not shares.size:
            return None
        return _priced(event, self._lambdas, shares, weights)

    def _at_clip(self, event: SubsampledGaussian) -> _Sample:
        return _priced(event, self._lambdas, BIN_EDGES[-1:], np.ones(1))

    def _corrected_cost(self, sample: _Sample | None, count: int, cap: Floats) -> Floats:
        """A round's corrected cost, float64 [orders]; ``cap`` is what one release costs at C."""
        most = count * cap
        if sample is None:
            self._notes.missing += 1
            return most
        if len(sample.weights) == 1 and np.array_equal(sample.left[:, 0], cap):
            return most  # all at the clipping norm: nothing is estimated
        if sample.weights.sum() < self._least:
            self._notes.few += 1
            return most
        if len(sample.weights) == 1:
            self._notes.equal += 1
            return most
        return np.minimum(self._estimated_cost(sample, count, most), most)

    def _estimated_cost(self, sample: _Sample, count: int, most: Floats) -> Floats:
        power = self._total_rounds * count
        cost = hoelder_cost(
            sample.left,
            sample.weights,
            power=power,
            rounds=self._total_rounds,
            quantile=student_quantile(self._gamma, int(sample.weights.sum())),
        )
        heavy = largest_share(sample.left, sample.weights, power) > _TAIL_SHARE
        self._heavy += heavy
        self._estimated += 1
        return np.where(heavy, most, cost)

    def _bound(self, costs: Floats, failure: float) -> Bound:
        if not self._private:
            return UNBOUNDED
        if not self._rounds:
            return NOTHING_SPENT
        candidates = epsilon_by_order(costs, self._orders, self._delta, failure)
        best = int(candidates.argmin())
        return Bound(float(candidates[best]), float(self._orders[best]))


def _priced(
    event: SubsampledGaussian, lambdas: tuple[int, ...], shares: Floats, weights: Floats
) -> _Sample:
    """One release's moments at distances given as shares of the clipping norm, float64 [m]."""
    on_edges = shares * NORM_BINS
    if np.array_equal(on_edges, np.floor(on_edges)) and shares[0] > 0:
        left, right = _at_edges(event.sampling_rate, event.noise_multiplier, lambdas)
        columns = on_edges.astype(int) - 1
        return _Sample(left[:, columns], right[:, columns], weights)
    return _Sample(*_moments(event.sampling_rate, event.noise_multiplier, lambdas, shares), weights)


@functools.lru_cache(maxsize=256)
def _at_edges(rate: float, noise: float, lambdas: tuple[int, ...]) -> tuple[Floats, Floats]:
    return _moments(rate, noise, lambdas, BIN_EDGES)


def _moments(
    rate: float, noise: float, lambdas: tuple[int, ...], shares: Floats
) -> tuple[Floats, Floats]:
    return (
        left_log_moments(lambdas, rate, shares, noise),
        right_log_moments(lambdas, rate, shares, noise),
    )
