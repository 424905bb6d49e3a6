"""The Bayesian accountant: figures for users like those seen, beside differential privacy.

Bayesian differential privacy (Triastcyn and Faltings, arXiv:2003.00997, definition 4) promises
(ε, δ) on average over users drawn from the population, so it may use how large users' updates
really are instead of their bound C. Three figures are kept apart:

as published
    equations 6 to 8 with the mean over a round's norms in place of the expectation, both directions
    as printed and the larger one taken. No confidence bound, and each round as if its user were
    drawn anew. For comparison with the paper; it bounds nothing.
corrected
    Hölder over the declared rounds, for one user stays the same person; Student-t upper confidence
    bounds whose failure is part of δ; the exact direction; never above what norms all equal to C
    would cost. Still an estimate: a t bound presumes that a sample's mean is close to normal.
sound
    the same with confidence bounds that hold whatever the norms below C are
    (`confidence.mean_bound`), and ε of definition 4 itself instead of a bound on the loss's tail.

All presume that a round's cohort is exchangeable and drawn afresh from the population, given the
weights that it starts from; the weights depend on earlier cohorts. People who differ from all those
enrolled are outside any of them. Failures are added up over rounds and orders, which holds however
the rounds depend on each other: the same users come back, so like rounds must not be pooled into
one larger sample.

None may decide whether to release: all are computed from private norms. Stop on the accountant of
differential privacy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from fedlens.accountant.bayesian.confidence import sound_cost, student_quantile
from fedlens.accountant.bayesian.costs import (
    Conversion,
    divergence_epsilon_by_order,
    epsilon_by_order,
    hoelder_cost,
    least,
    plug_in_cost,
)
from fedlens.accountant.bayesian.diagnostics import FEWEST, Diagnostics
from fedlens.accountant.bayesian.loss_moments import checked_lambdas
from fedlens.accountant.bayesian.pricing import Norms, PricedDistances, at_largest, priced
from fedlens.accountant.bounds import (
    NOTHING_SPENT,
    UNBOUNDED,
    Bound,
    require_count,
    require_probability,
)
from fedlens.accountant.dp.binomial import Floats
from fedlens.accountant.events import Event, GaussianRelease
from fedlens.foundation.errors import WrongUse

DEFAULT_LAMBDAS: tuple[int, ...] = (
    *range(1, 65),
    *(int(order) for order in np.unique(np.round(np.geomspace(64, 512, 19)))[1:]),
)
"""Orders λ: every whole number to 64, then in steps of an eighth to 512."""


class TooManyRounds(WrongUse):
    """More rounds than were declared, which Hölder's inequality cannot cover."""


class MixedEvents(WrongUse):
    """An event of another unit than those booked; such are never added up."""


class BayesianAccountant:
    """Books rounds with the norms of their users' clipped updates, each round in milliseconds.

    A round without evidence, with fewer norms than ``least_norms``, or with all norms in one place
    below C is charged at d = C in the corrected figure, which always holds; so is any single order
    at which one observation makes up more than half of the mean. `warnings` says how often. The
    sound figure needs none of that.
    """

    def __init__(
        self,
        total_rounds: int,
        delta: float,
        *,
        lambdas: Sequence[int] = DEFAULT_LAMBDAS,
        failure_share: float = 0.01,
        least_norms: int = 64,
        gamma: float | None = None,
        charge_doubtful: bool = True,
    ) -> None:
        """Declare the run.

        Args:
            total_rounds: T, rounds that there will be at most. Fewer stay covered; more raise.
                One-shot releases cost every user alike and do not count.
            delta: δ_μ in (0, 1) that all figures are stated at.
            lambdas: orders to try, whole numbers ≥ 1.
            failure_share: share of δ kept for failing confidence bounds, in (0, 1); it is split
                evenly over rounds and orders.
            least_norms: norms that a round needs for an estimate, at least 3.
            gamma: probability in (0, 1/2) that one confidence bound fails, one round's at one
                order, instead of ``failure_share``'s.
            charge_doubtful: False in planning: too few norms (but 3) and one that outweighs the
                others are told of, and estimated.

        Raises:
            WrongUse: naming the argument; or ``delta`` and ``gamma``, if all confidence bounds
                together may fail with a probability of δ or more.
        """
        require_count("total_rounds", total_rounds)
        require_probability("delta", delta)
        require_probability("failure_share", failure_share)
        require_count("least_norms", least_norms)
        if least_norms < FEWEST:
            raise WrongUse(f"least_norms = {least_norms!r} cannot be used: give at least 3")
        self._lambdas = tuple(sorted(set(checked_lambdas(lambdas))))
        self._orders = np.array(self._lambdas, dtype=np.float64)
        self._total_rounds, self._delta = total_rounds, delta
        bounds = total_rounds * len(self._lambdas)
        self._gamma = failure_share * delta / bounds if gamma is None else gamma
        _require_room(delta, self._gamma, total_rounds, len(self._lambdas))
        self._published, self._corrected, self._sound, self._worst = np.zeros(
            (4, len(self._lambdas))
        )
        self._rounds = self._sampled = self._estimated = self._bounded = 0
        self._private, self._unit = True, ""
        self._diagnostics = Diagnostics(self._lambdas, least_norms, charge_doubtful)

    @property
    def rounds(self) -> int:
        """Rounds and one-shot releases booked so far."""
        return self._rounds

    @property
    def confidence_failure(self) -> float:
        """Probability, within δ, that a confidence bound in the corrected figure fails."""
        return self._estimated * len(self._lambdas) * self._gamma

    @property
    def sound_failure(self) -> float:
        """Probability, within δ, that a confidence bound in the sound figure fails."""
        return self._bounded * len(self._lambdas) * self._gamma

    def compose(self, event: Event, evidence: Norms | None, rounds: int = 1) -> None:
        """Book like rounds of ``event.count`` releases each.

        Args:
            event: the mechanism.
            evidence: the round's distances in the unit of the event's clipping norm: see
                `pricing.Norms`. For several releases in the round they are pooled, each user's
                ``event.count`` times, so that a ``count``-th of them are users that tell of the
                population. None charges the largest distance there can be, as a one-shot release
                always does.
            rounds: how many such rounds, each with this evidence.

        Raises:
            TooManyRounds: there would be more than ``total_rounds``. Nothing was booked.
            MixedEvents: another unit than before. Nothing was booked.
            WrongUse: evidence of another clipping norm or kind, or norms above it. Nothing was
                booked.
        """
        require_count("rounds", rounds)
        sampled = 0 if isinstance(event, GaussianRelease) else rounds
        self._check(event, sampled)
        sample = priced(event, self._lambdas, evidence)
        self._diagnostics.refuse(sample)
        self._unit = event.unit
        self._rounds += rounds
        self._sampled += sampled
        if not event.private:
            self._private = False
            return
        worst = at_largest(event, self._lambdas)
        most = event.count * worst.largest
        self._worst += rounds * most
        self._published += (
            rounds * event.count * _published_cost(worst if sample is None else sample)
        )
        if not sampled:
            self._corrected += rounds * most
            self._sound += rounds * most
            return
        self._corrected += rounds * self._corrected_cost(sample, event.count, most, rounds)
        self._sound += rounds * self._sound_cost(sample, event.count, most, rounds)

    def as_published(self) -> Bound:
        """Epsilon by equations 6 to 8 of arXiv:2003.00997 as printed; its order is λ.

        With M_L and M_R the inner expectations of equations 6 and 7: Σ_t max(log mean M_L, log mean
        M_R) over the norms seen in round t. No Hölder exponent, no confidence bound.
        """
        return self._least(epsilon_by_order, [(self._published, self._delta)])

    def corrected(self) -> Bound:
        """Epsilon with Hölder over the declared rounds and confidence bounds; its order is λ.

        The tail of the privacy loss is what it bounds. Never above what all norms at C would cost.
        """
        return self._figure("corrected", 1.0)

    def sound(self) -> Bound:
        """Epsilon with distribution-free confidence bounds; its order is λ.

        It holds for every distribution of norms below C, but for `sound_failure`, which δ includes.
        Never above the moments accountant's at these orders; the tight accountant may know better,
        and the less of both holds.
        """
        return self._figure("sound", 1.0)

    def percentiles(
        self, shares: Sequence[float], figure: Literal["sound", "corrected"] = "sound"
    ) -> tuple[Bound, ...]:
        """Epsilon with which (ε, δ)-DP holds for a share of users at least, by Markov's inequality.

        What holds on average at δ_μ = p·(δ − n), with n the confidence bounds' probability of
        failure, fails at δ − n for a share p of users at most; so it holds for 1 − p of them at δ,
        with confidence 1 − n in the estimator. Never above what holds for all users. Section 4.3
        of the paper, equation 11. It is one-way: no such curve implies the Bayesian figure.

        Args:
            shares: 1 − p, of the users that it is to hold for, each in (0, 1]; 1 gives the bound at
                d = C.
            figure: which costs to take.

        Raises:
            WrongUse: a share out of range, or another figure.
        """
        if figure not in ("sound", "corrected"):
            raise WrongUse(f"figure = {figure!r} cannot be used: 'sound' or 'corrected'")
        for share in shares:
            if not 0.0 < share <= 1.0:
                raise WrongUse(f"shares: {share!r} cannot be used: give numbers in (0, 1]")
        return tuple(self._figure(figure, 1.0 - share) for share in shares)

    def warnings(self) -> tuple[str, ...]:
        """What weakens the corrected figure, in words; nothing if all was estimated soundly."""
        return self._diagnostics.in_words(self._rounds, self.corrected().order)

    def _check(self, event: Event, sampled: int) -> None:
        if self._sampled + sampled > self._total_rounds:
            raise TooManyRounds(
                f"total_rounds = {self._total_rounds}: {self._sampled} rounds are booked already, "
                f"{sampled} more cannot be covered; declare more rounds beforehand"
            )
        if self._unit not in ("", event.unit):
            raise MixedEvents(
                f"unit = {event.unit!r} cannot be booked: the account is of {self._unit!r} events; "
                "keep an account for each unit"
            )

    def _corrected_cost(
        self, sample: PricedDistances | None, count: int, most: Floats, rounds: int
    ) -> Floats:
        """A round's corrected cost, float64 [orders]; ``most`` is what it costs at d = C."""
        if self._diagnostics.charge_round(sample, rounds) or sample is None:
            return most
        power = self._total_rounds * count
        users = sample.size // count  # pooled norms count each user once for every release
        if users < FEWEST:
            return most
        cost = hoelder_cost(
            sample.moments,
            sample.weights / count,
            power=power,
            rounds=self._total_rounds,
            quantile=student_quantile(self._gamma, users),
        )
        self._estimated += rounds
        charged = self._diagnostics.charge_orders(sample, power, rounds)
        return np.where(charged, most, np.minimum(cost, most))

    def _sound_cost(
        self, sample: PricedDistances | None, count: int, most: Floats, rounds: int
    ) -> Floats:
        """A round's sound cost, float64 [orders]; ``most`` is what it costs at d = C."""
        if sample is None or sample.at_largest:
            return most
        self._bounded += rounds
        cost = sound_cost(
            sample.moments,
            sample.weights / count,  # pooled norms count each user once for every release
            sample.largest,
            power=self._total_rounds * count,
            rounds=self._total_rounds,
            gamma=self._gamma,
        )
        return np.minimum(cost, most)

    def _figure(self, figure: str, left_out: float) -> Bound:
        """Epsilon on average (``left_out`` 1), or for all users but a share ``left_out``."""
        if figure == "sound":
            convert, costs, failure = divergence_epsilon_by_order, self._sound, self.sound_failure
        else:
            convert, costs, failure = epsilon_by_order, self._corrected, self.confidence_failure
        candidates = [(self._worst, self._delta)]
        if left_out > 0:
            candidates.append((costs, left_out * (self._delta - failure)))
        return self._least(convert, candidates)

    def _least(self, convert: Conversion, candidates: Sequence[tuple[Floats, float]]) -> Bound:
        """The least epsilon over orders and over candidates, costs with the δ left for them."""
        if not self._private:
            return UNBOUNDED
        if not self._rounds:
            return NOTHING_SPENT
        return least(convert, candidates, self._orders)


def _published_cost(sample: PricedDistances) -> Floats:
    left, right = (plug_in_cost(side, sample.weights) for side in (sample.left, sample.right))
    return np.maximum(left, right)


def _require_room(delta: float, gamma: float, rounds: int, orders: int) -> None:
    """Refuse confidence bounds that may fail with a probability of δ or more altogether."""
    if not 0.0 < gamma < 0.5:
        raise WrongUse(f"gamma = {gamma!r} cannot be used: give a probability in (0, 1/2)")
    failure = rounds * orders * gamma
    if not failure < delta:
        raise WrongUse(
            f"delta = {delta!r} cannot be used with gamma = {gamma!r}: over {rounds} rounds and "
            f"{orders} orders the confidence bounds may fail with probability {failure:.3g}; give "
            f"a gamma below {delta / (rounds * orders):.3g}, or a larger delta"
        )
