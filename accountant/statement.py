"""What has been spent, and what that means, in words that can stand beside the result."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from fedlens.accountant.bounds import Bound
from fedlens.accountant.events import Event
from fedlens.accountant.wording import delta_in_words, differential, shown

NoiseSource = Literal["os-entropy", "fixed-seed"]
LEFT_OUT = (
    "Not covered: settings tuned while looking at real data, and anything released outside the "
    "ledger."
)
"""What no accountant can know of."""


@dataclass(frozen=True)
class Spending:
    """Figures of both accountants over the same releases. Infinite epsilon: no guarantee."""

    rounds: int
    """Releases booked, one ledger entry each."""
    dp_epsilon: float
    """The least upper bound on ε at ``delta_dp`` of the differential privacy accountants."""
    dp_order: float
    """The Rényi order that gave it; 0 if none did."""
    dp_method: str
    """Which computation gave it, see `fedlens.accountant.dp.differential`; ``none`` without a
    finite ε.
    """
    delta_dp: float
    dp_epsilon_at_bdp_delta: float
    """Differential privacy's ε at ``delta_bdp``: what to compare the Bayesian figures with."""
    bdp_as_published: float
    """Bayesian ε at ``delta_bdp`` by the paper's formulas; bounds nothing. Like all Bayesian
    figures of a run it is computed from noised norms that the run released."""
    bdp_corrected: float
    """Bayesian ε at ``delta_bdp``, corrected: an estimate; never above the sound one."""
    bdp_sound: float
    """Bayesian ε at ``delta_bdp`` that is proved: the claim of a privacy filter, where one was
    declared before the first release, or that of differential privacy if smaller."""
    bdp_order: float
    """The λ that gave the corrected figure; 0 if none did."""
    delta_bdp: float
    confidence_failure: float
    """Probability, within ``delta_bdp``, that the corrected figure's confidence bounds fail."""
    schedule: tuple[tuple[Event, int], ...]
    """The different events that the figures of differential privacy cover, in the order first met,
    with how often: those booked, or those of the whole plan (``rounds_planned``)."""
    noise_source: NoiseSource
    """``os-entropy``; or ``fixed-seed``, which protects no one."""
    warnings: tuple[str, ...]
    """What weakens the Bayesian figures."""
    percentiles: Mapping[str, float] = field(default_factory=dict)
    """Sound ε at ``delta_bdp`` that holds for a share of users at least, keyed by that share."""
    percentiles_corrected: Mapping[str, float] = field(default_factory=dict)
    """The same of the corrected figure: an estimate."""
    rounds_with_norms: int = 0
    """Rounds that released a noised histogram of norms; without any there is no Bayesian figure of
    its own, and what stands in its place is differential privacy's."""
    filtered: bool = False
    """Whether a privacy filter of fixed order was declared before the first release."""
    rounds_planned: int = 0
    """Rounds that the figures of differential privacy cover: more than ``rounds`` where the run
    ended early and its end may have been chosen by looking at what it released."""

    @property
    def private(self) -> bool:
        """Whether there is a guarantee at all."""
        return math.isfinite(self.dp_epsilon) and self.noise_source == "os-entropy"


def statement(spending: Spending, users: int) -> str:
    """The guarantee in words, with what it assumes and what it leaves out.

    Args:
        spending: of `Account.spending`.
        users: N, enrolled users; silos in record mode.
    """
    if not spending.schedule or not spending.private:
        return promise(spending)
    parts = (promise(spending), *_early(spending), _delta(spending, users), _bayesian(spending))
    return " ".join((*parts, LEFT_OUT))


def promise(spending: Spending) -> str:
    """The differential privacy guarantee alone, for a run whose rounds are still to come."""
    if spending.noise_source != "os-entropy":
        return (
            "No guarantee: the noise was drawn from a fixed seed, which anyone can repeat. "
            "Fixed seeds are for tests."
        )
    if not spending.schedule:
        return "Nothing has been released yet, so nothing has been spent."
    if not math.isfinite(spending.dp_epsilon):
        return "No guarantee: no noise was added. ε is infinite; do not call the samples private."
    bound = Bound(spending.dp_epsilon, spending.dp_order, spending.dp_method)
    return differential(spending.schedule, bound, spending.delta_dp)


def _early(spending: Spending) -> tuple[str, ...]:
    if spending.rounds_planned <= spending.rounds:
        return ()
    return (
        f"It ended after {spending.rounds} of {spending.rounds_planned} releases. That end may "
        "have been chosen by looking at them, so what is stated is the guarantee of all that were "
        "planned.",
    )


def _delta(spending: Spending, users: int) -> str:
    if spending.schedule[0][0].unit == "record":
        return f"δ must be far below one over the records of a silo ({users} silos' own numbers)."
    return delta_in_words(spending.delta_dp, users)


def _bayesian(spending: Spending) -> str:
    if not math.isfinite(spending.bdp_corrected):
        return "There is no Bayesian figure."
    delta, dp = shown(spending.delta_bdp), shown(spending.dp_epsilon_at_bdp_delta)
    if not spending.rounds_with_norms:
        return (
            f"Differential privacy at δ = {delta}: ε = {dp}. No norms were released, so there is "
            "no Bayesian figure beside it."
        )
    text = (
        f"Bayesian differential privacy at δ = {delta}: "
        f"ε = {shown(spending.bdp_corrected)} corrected, "
        f"{shown(spending.bdp_sound)} sound, {shown(spending.bdp_as_published)} as published; "
        f"differential privacy at that δ: {dp}. The Bayesian figures are averages over those "
        "enrolled; an unusual user has the differential privacy guarantee alone. They are computed "
        "from noised histograms of norms, which are part of these releases and inside the "
        "guarantee. Corrected is an estimate and presumes norms that do not react to releases; as "
        f"published bounds nothing; {_sound(spending)}."
    )
    return " ".join([text, *(f"Note: {warning}." for warning in spending.warnings)])


def _sound(spending: Spending) -> str:
    if not spending.filtered:
        return "sound is what is proved: without a declared filter, differential privacy itself"
    return (
        "sound is what a privacy filter, fixed beforehand, keeps to, if norms do not single "
        "people out"
    )
