"""One run's account: differential privacy and the published Bayesian figures, same releases."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import get_args

from fedlens.accountant.bayesian.fixed_order import FixedOrderFilter
from fedlens.accountant.bayesian.noised_norms import NoisedNorms
from fedlens.accountant.bayesian.published import PublishedAccountant
from fedlens.accountant.bounds import Bound, require_probability
from fedlens.accountant.dp.differential import DifferentialAccountant
from fedlens.accountant.events import Event, SubsampledGaussian
from fedlens.accountant.ledger.evidence import EvidenceFile
from fedlens.accountant.ledger.ledger import LedgerEntry
from fedlens.accountant.noise.shares import ONE_SHARE, NoiseSharing
from fedlens.accountant.statement import NoiseSource, Spending, statement
from fedlens.foundation.errors import WrongUse

__all__ = ["Account", "Spending", "statement"]

SHARES = (0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999)
"""Shares of users that a run's percentile curve is kept at."""


class Account:
    """What a run has spent. It changes by `charge` and `replay` alone, or not at all."""

    def __init__(
        self,
        total_rounds: int,
        delta_dp: float,
        delta_bdp: float,
        noise_source: NoiseSource = "os-entropy",
        *,
        users: int | None = None,
        norms_filter: FixedOrderFilter | None = None,
        sharing: NoiseSharing = ONE_SHARE,
    ) -> None:
        """Declare the run.

        Args:
            total_rounds: rounds that there will be at most, one release each.
            delta_dp: δ of differential privacy.
            delta_bdp: δ of Bayesian differential privacy.
            noise_source: ``os-entropy``, or ``fixed-seed`` in tests: no guarantee then.
            users: N, enrolled users, over whom Bayesian figures are an average; None where norms
                are not released: every round is charged at the clipping norm then.
            norms_filter: empty, at ``delta_bdp``, where one was declared before the first release.
            sharing: who adds the noise on norms; the filter's too.

        Raises:
            WrongUse: naming the argument.
        """
        require_probability("delta_dp", delta_dp)
        known = get_args(NoiseSource)
        if noise_source not in known:
            raise WrongUse(
                f"noise_source = {noise_source!r} cannot be used: {' or '.join(map(repr, known))}"
            )
        self._noise_source = noise_source
        self._delta_dp, self._delta_bdp = delta_dp, delta_bdp
        self._differential = DifferentialAccountant()
        self._bayesian = PublishedAccountant(total_rounds, delta_bdp, users, sharing=sharing)
        self._filter = norms_filter
        self._schedule: dict[Event, int] = {}
        self._known: Spending | None = None
        self._unfit = 0

    def charge(self, event: Event, norms: NoisedNorms | None) -> None:
        """Book one round with the norms that it released; without any, at the clipping norm.

        Raises:
            TooManyRounds: more rounds than were declared. Nothing was booked.
            WrongUse: an event of another privacy unit, or norms that are not part of its release.
                Nothing was booked.
        """
        if norms is not None and not _fits(norms, event):
            raise WrongUse(
                "norms: their clipping norm and noise are not those of a round's second part; "
                "give what `noised_norms` made with the noise of `split_noise`"
            )
        self._bayesian.compose(event, norms)
        self._differential.compose(event)
        if self._filter is not None:
            self._filter.charge(event, norms)
        self._known = None
        self._schedule[event] = self._schedule.get(event, 0) + 1

    def replay(self, entries: Iterable[LedgerEntry], evidence: EvidenceFile | None = None) -> None:
        """Book a ledger's entries.

        Evidence that is missing or that an entry did not commit to is not used: such a round is
        charged at the clipping norm.
        """
        for entry in entries:
            norms = evidence.matching(entry) if evidence is not None else None
            if norms is not None and not _fits(norms, entry.event):
                norms = None
            self._unfit += norms is None and entry.evidence_digest is not None
            self.charge(entry.event, norms)

    def would_exceed(self, event: Event, epsilon: float) -> bool:
        """Whether booking ``event`` too would take differential privacy's ε above ``epsilon``.

        Ask before the release. The answer depends on no data, so stopping on it reveals nothing.
        """
        return self._differential.would_exceed(event, epsilon=epsilon, delta=self._delta_dp)

    def filter_forbids(self, event: Event) -> bool:
        """Whether the declared filter, if there is one, forbids to release ``event`` too.

        The answer depends on releases alone, so stopping on it reveals nothing.
        """
        return self._filter is not None and self._filter.forbids(event)

    @property
    def schedule(self) -> Mapping[Event, int]:
        """Each different event that was booked, with how often."""
        return dict(self._schedule)

    def spending(self) -> Spending:
        """Both accountants' figures so far; asking again costs nothing."""
        if self._known is None:
            self._known = self._reckoned(self)
        return self._known

    def at_any_end(self, plan: Account) -> Spending:
        """What is proved of the rounds so far, however it was chosen to end after them.

        Who may stop a run after looking at its releases has made its length one of them: what the
        rounds so far add up to is then no bound, but what ``plan`` adds up to is, for all that was
        released is a part of what the whole plan would have released. So the figures of
        differential privacy, and those that rest on them, are the plan's; in the corrected one
        the rounds that were left out are charged at the clipping norm. As published bounds nothing,
        and stays that of the rounds so far.

        Args:
            plan: all rounds that there could have been, at the same δ.
        """
        if not 0 < self._bayesian.rounds < plan._bayesian.rounds:
            return self.spending()
        return self._reckoned(plan)

    def _bayesian_of(self, plan: Account) -> PublishedAccountant:
        """The Bayesian account with the plan's further rounds, of which no norms are known."""
        if plan is self:
            return self._bayesian
        whole = copy.deepcopy(self._bayesian)
        for event, rounds in (Counter(plan._schedule) - Counter(self._schedule)).items():
            whole.compose(event, None, rounds)
        return whole

    def _reckoned(self, plan: Account) -> Spending:
        differential = plan._differential.epsilon(self._delta_dp)
        for_all = plan._differential.epsilon(self._delta_bdp)
        bayesian = self._bayesian_of(plan)
        sound, corrected = self._sound(0.0, for_all), bayesian.corrected()
        return Spending(
            rounds=self._bayesian.rounds,
            dp_epsilon=differential.epsilon,
            dp_order=differential.order,
            dp_method=differential.method or "none",
            delta_dp=self._delta_dp,
            dp_epsilon_at_bdp_delta=for_all.epsilon,
            bdp_as_published=self._bayesian.as_published().epsilon,
            bdp_corrected=min(corrected.epsilon, sound, for_all.epsilon),
            bdp_sound=sound,
            bdp_order=corrected.order,
            delta_bdp=self._delta_bdp,
            confidence_failure=bayesian.confidence_failure,
            schedule=tuple(plan._schedule.items()),
            rounds_planned=plan._bayesian.rounds,
            noise_source=self._noise_source,
            warnings=self._warnings(),
            percentiles=self._curve(for_all),
            percentiles_corrected=self._curve(for_all, bayesian),
            rounds_with_norms=self._bayesian.rounds_with_norms,
            filtered=self._filter is not None,
        )

    def _sound(self, share: float, for_all: Bound) -> float:
        """What is proved for a share of users: the filter's claim, or differential privacy."""
        if self._filter is None:
            return for_all.epsilon
        return min(self._filter.for_share(share).epsilon, for_all.epsilon)

    def _curve(
        self, for_all: Bound, corrected: PublishedAccountant | None = None
    ) -> dict[str, float]:
        """The curve, keyed by share; share 1 is all users, who have differential privacy."""
        if not self._schedule:
            return {}
        points = {share: self._sound(share, for_all) for share in SHARES}
        if corrected is not None:
            found = {share: corrected.for_share(share).epsilon for share in SHARES}
            points = {share: min(found[share], points[share]) for share in SHARES}
        return {**{f"{share:g}": point for share, point in points.items()}, "1": for_all.epsilon}

    def statement(self, users: int) -> str:
        """`statement` of the spending so far, for N = ``users``."""
        return statement(self.spending(), users)

    def _warnings(self) -> tuple[str, ...]:
        rounds, known = self._bayesian.rounds, self._bayesian.rounds_with_norms
        found = []
        if self._unfit:
            found.append(
                f"{self._unfit} ledger entries name norms that are missing or do not fit them"
            )
        if 0 < known < rounds:
            found.append(f"{rounds - known} of {rounds} rounds were charged at the clipping norm")
        return tuple(found)


def _fits(norms: NoisedNorms, event: Event) -> bool:
    """Whether norms can be the second part of what an event released."""
    if not isinstance(event, SubsampledGaussian):
        return False
    alike = event.clipping_norm == norms.clipping_norm and event.count == 1
    return alike and 0 < event.noise_multiplier < norms.noise
