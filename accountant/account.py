"""One run's account: the moments accountant and the Bayesian accountant over the same events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

from accountant.bayesian.accountant import BayesianAccountant
from accountant.bayesian.norms import NormHistogram
from accountant.bayesian.percentiles import percentile_curve
from accountant.bounds import Bound, require_probability
from accountant.dp.differential import DifferentialAccountant
from accountant.events import Event, SubsampledGaussian
from accountant.ledger.evidence import EvidenceFile
from accountant.ledger.ledger import LedgerEntry
from accountant.statement import NoiseSource, Spending, statement
from foundation.errors import WrongUse

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
    ) -> None:
        """Declare the run.

        Args:
            total_rounds: rounds that there will be at most, one release each.
            delta_dp: δ of differential privacy.
            delta_bdp: δ of Bayesian differential privacy.
            noise_source: ``os-entropy``, or ``fixed-seed`` in tests: no guarantee then.

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
        self._bayesian = BayesianAccountant(total_rounds, delta_bdp)
        self._schedule: dict[Event, int] = {}
        self._known: Spending | None = None
        self._unfit = 0

    def charge(self, event: Event, evidence: NormHistogram | None) -> None:
        """Book one round; see `BayesianAccountant.compose` for the evidence.

        Raises:
            TooManyRounds: more rounds than were declared. Nothing was booked.
            WrongUse: an event of another privacy unit, or evidence of another clipping norm.
                Nothing was booked.
        """
        self._bayesian.compose(event, evidence)
        self._differential.compose(event)
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

    def spending(self) -> Spending:
        """Both accountants' figures so far; asking again costs nothing."""
        if self._known is None:
            self._known = self._reckoned()
        return self._known

    def _reckoned(self) -> Spending:
        differential = self._differential.epsilon(self._delta_dp)
        for_all = self._differential.epsilon(self._delta_bdp)
        corrected, sound = self._bayesian.corrected(), self._bayesian.sound().epsilon
        return Spending(
            rounds=self._bayesian.rounds,
            dp_epsilon=differential.epsilon,
            dp_order=differential.order,
            dp_method=differential.method or "none",
            delta_dp=self._delta_dp,
            dp_epsilon_at_bdp_delta=for_all.epsilon,
            bdp_as_published=self._bayesian.as_published().epsilon,
            bdp_corrected=min(corrected.epsilon, sound, for_all.epsilon),
            bdp_sound=min(sound, for_all.epsilon),
            bdp_order=corrected.order,
            delta_bdp=self._delta_bdp,
            confidence_failure=self._bayesian.confidence_failure,
            schedule=tuple(self._schedule.items()),
            noise_source=self._noise_source,
            warnings=self._warnings(),
            percentiles=self._curve("sound", for_all),
            percentiles_corrected=self._curve("corrected", for_all),
        )

    def _curve(self, figure: Literal["sound", "corrected"], for_all: Bound) -> dict[str, float]:
        """The curve, keyed by share; share 1 is all users, who have differential privacy."""
        curves = [percentile_curve(self._bayesian, for_all, shares=SHARES)]
        if figure == "corrected":  # it presumes more than the sound one, so it is never above
            curves.append(percentile_curve(self._bayesian, for_all, shares=SHARES, figure=figure))
        points = {
            f"{same[0].share:g}": min(point.bound.epsilon for point in same)
            for same in zip(*curves, strict=True)
        }
        return {**points, "1": for_all.epsilon} if self._schedule else {}

    def statement(self, users: int) -> str:
        """`statement` of the spending so far, for N = ``users``."""
        return statement(self.spending(), users)

    def _warnings(self) -> tuple[str, ...]:
        if not self._unfit:
            return self._bayesian.warnings()
        lost = f"{self._unfit} ledger entries name evidence that is missing or does not fit them"
        return (lost, *self._bayesian.warnings())


def _fits(norms: NormHistogram, event: Event) -> bool:
    """Whether norms can be an event's evidence: one-shot releases and replaced units have none."""
    if not isinstance(event, SubsampledGaussian) or event.adjacency != "add-remove":
        return False
    return norms.clipping_norm == event.clipping_norm
