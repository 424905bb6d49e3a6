"""What has been spent, and what that means, in words that can stand beside the result."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from accountant.events import SubsampledGaussian

NoiseSource = Literal["os-entropy", "fixed-seed"]


@dataclass(frozen=True)
class Spending:
    """Figures of both accountants over the same releases. Infinite epsilon: no guarantee."""

    rounds: int
    """Releases booked, one ledger entry each."""
    dp_epsilon: float
    """Moments accountant's upper bound on ε at ``delta_dp``."""
    dp_order: float
    """The Rényi order that gave it; 0 if none did."""
    delta_dp: float
    dp_epsilon_at_bdp_delta: float
    """Moments accountant's ε at ``delta_bdp``: what the Bayesian figures must be compared with."""
    bdp_as_published: float
    """Bayesian ε at ``delta_bdp`` by the paper's formulas; bounds nothing."""
    bdp_corrected: float
    """Bayesian ε at ``delta_bdp``, corrected: an estimate."""
    bdp_order: float
    """The λ that gave the corrected figure; 0 if none did."""
    delta_bdp: float
    confidence_failure: float
    """Probability, within ``delta_bdp``, that the corrected figure's confidence bounds fail."""
    event: SubsampledGaussian | None
    """The mechanism of the last round; None before the first."""
    uniform: bool
    """Whether all rounds had that mechanism."""
    noise_source: NoiseSource
    """``os-entropy``; or ``fixed-seed``, which protects nobody."""
    warnings: tuple[str, ...]
    """What weakens the Bayesian figures."""

    @property
    def private(self) -> bool:
        """Whether there is a guarantee at all."""
        return math.isfinite(self.dp_epsilon) and self.noise_source == "os-entropy"


def statement(spending: Spending, users: int) -> str:
    """The guarantee in words, with what it assumes and what it leaves out.

    Args:
        spending: of `Account.spending`.
        users: N, enrolled users.
    """
    if spending.event is None or not spending.private:
        return promise(spending)
    return " ".join((promise(spending), _delta(spending, users), _bayesian(spending), _left_out()))


def promise(spending: Spending) -> str:
    """The differential privacy guarantee alone, for a run whose rounds are still to come."""
    if spending.noise_source != "os-entropy":
        return (
            "No guarantee: the noise was drawn from a fixed seed, which anybody may repeat. "
            "Fixed seeds are for tests."
        )
    if spending.event is None:
        return "Nothing has been released yet, so nothing has been spent."
    if not math.isfinite(spending.dp_epsilon):
        return "No guarantee: no noise was added. ε is infinite; do not call the samples private."
    return _differential(spending, spending.event)


def _differential(spending: Spending, event: SubsampledGaussian) -> str:
    rounds = "1 round" if spending.rounds == 1 else f"{spending.rounds} rounds"
    if event.count > 1:
        rounds += f" of {event.count} noised releases each"
    if not spending.uniform:
        rounds += " (they were not all alike; this describes the last)"
    who = (
        "one user with all of their data"
        if event.unit == "user"
        else "one record (not all of a user's)"
    )
    drawn = (
        f"each {event.unit} drawn with probability {event.sampling_rate:g} by Poisson sampling "
        "whose outcome is kept secret"
        if event.sampler == "poisson"
        else f"every {event.unit} in each of them"
    )
    return (
        f"({spending.dp_epsilon:.3g}, {spending.delta_dp:.3g})-differential privacy for adding or "
        f"removing {who}, whoever that is and whatever the others hold: {rounds}, {drawn}, noise "
        f"{event.noise_multiplier:g} times the clipping norm, moments accountant of order "
        f"{spending.dp_order:g}."
    )


def _delta(spending: Spending, users: int) -> str:
    if spending.event is not None and spending.event.unit == "record":
        return f"δ must be far below one over the records of a silo ({users} silos' own numbers)."
    ratio = spending.delta_dp * users
    if ratio < 1:
        return f"δ is {ratio:.2g} of 1/N for N = {users} users."
    return (
        f"Caution: δ = {spending.delta_dp:.3g} is not below 1/N = {1 / users:.3g}; publishing "
        "somebody's data outright could satisfy such a δ. Choose a smaller one."
    )


def _bayesian(spending: Spending) -> str:
    if math.isfinite(spending.bdp_corrected):
        text = (
            f"Bayesian differential privacy at δ = {spending.delta_bdp:.3g}: "
            f"ε = {spending.bdp_corrected:.3g} corrected, "
            f"{spending.bdp_as_published:.3g} as published; "
            f"differential privacy at that δ: {spending.dp_epsilon_at_bdp_delta:.3g}. The Bayesian "
            "figures are estimates, for users drawn like those seen and norms without a heavy "
            "tail; an unusual user has the differential privacy guarantee alone. They are "
            "computed from private norms, as nodes report them, and so are outside any guarantee "
            "themselves."
        )
        return " ".join([text, *(f"Note: {warning}." for warning in spending.warnings)])
    return "There is no Bayesian figure."


def _left_out() -> str:
    return (
        "Not covered: settings tuned while looking at real data, and anything released outside "
        "the ledger."
    )
