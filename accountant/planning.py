"""What a schedule of releases would cost, before anything is released: tables for plans and plots.

Everything here is arithmetic on the schedule; no data is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedlens.accountant.bounds import Bound
from fedlens.accountant.dp.differential import DifferentialAccountant
from fedlens.accountant.events import LEAST_NOISE, GaussianRelease, SubsampledGaussian
from fedlens.accountant.statement import LEFT_OUT
from fedlens.accountant.wording import Schedule, delta_in_words, differential
from fedlens.foundation.errors import WrongUse

_POINTS = 9
_SPREAD = 4.0
"""What-if tables go from a quarter of the plan's own value to four times it."""


@dataclass(frozen=True)
class Cost:
    """What a plan costs by each differential privacy accountant, at one δ."""

    rdp: Bound
    tight: Bound
    """Infinite where no tight computation is known to be valid."""
    best: Bound
    """The least of what is valid."""


@dataclass(frozen=True)
class PlannedSchedule:
    """Rounds of one mechanism, and whatever else is released once."""

    round: SubsampledGaussian
    rounds: int
    delta: float
    once: tuple[GaussianRelease, ...] = ()
    users: int | None = None
    """N, if known; what-if over users needs it."""

    @property
    def schedule(self) -> Schedule:
        """Different events with how often each happens."""
        return [(self.round, self.rounds), *((event, 1) for event in self.once)]

    def accountant(self) -> DifferentialAccountant:
        """An account in which all of it is booked."""
        account = DifferentialAccountant()
        for event, times in self.schedule:
            account.compose(event, times)
        return account

    def cost(self) -> Cost:
        """What all of it costs at the plan's δ."""
        account = self.accountant()
        rdp, tight, best = (f(self.delta) for f in (account.rdp, account.tight, account.epsilon))
        return Cost(rdp, tight, best)

    def statement(self, bound: Bound) -> str:
        """What the plan would guarantee, in words."""
        if not bound.epsilon < float("inf"):
            return "No guarantee: without noise ε is infinite."
        parts = [differential(self.schedule, bound, self.delta)]
        if self.round.unit == "record":
            parts.append("δ must be far below one over the number of records.")
        elif self.users is not None:
            parts.append(delta_in_words(self.delta, self.users))
        return " ".join([*parts, LEFT_OUT])


@dataclass(frozen=True)
class WhatIf:
    """One line of a what-if table: the plan with one number changed."""

    value: float
    cost: Cost


def against_rounds(plan: PlannedSchedule) -> list[WhatIf]:
    """ε for fewer and more rounds, the plan's own among them."""
    numbers = sorted({max(1, round(x)) for x in _around(plan.rounds)} | {plan.rounds})
    return [WhatIf(n, replace(plan, rounds=n).cost()) for n in numbers]


def against_noise(plan: PlannedSchedule) -> list[WhatIf]:
    """ε for less and more noise in the rounds, the plan's own among them."""

    def changed(noise: float) -> PlannedSchedule:
        return replace(plan, round=replace(plan.round, noise_multiplier=noise))

    values = (z for z in _around(plan.round.noise_multiplier) if z >= LEAST_NOISE)
    return [WhatIf(z, changed(z).cost()) for z in values]


def against_users(plan: PlannedSchedule) -> list[WhatIf]:
    """ε for fewer and more enrolled users with cohorts of the same expected size.

    Raises:
        WrongUse: the plan does not say how many users there are, or draws no cohorts.
    """
    if plan.users is None or plan.round.sampler == "none":
        raise WrongUse("users: give the number of users and a sampling rate below 1")
    cohort = plan.round.sampling_rate * plan.users
    numbers = sorted({round(x) for x in _around(plan.users) if x > cohort} | {plan.users})
    return [WhatIf(n, _with_users(plan, n, cohort).cost()) for n in numbers]


def tables(plan: PlannedSchedule) -> dict[str, Sequence[WhatIf]]:
    """All what-if tables that the plan allows, by what they vary."""
    if not plan.round.private:
        raise WrongUse("noise_multiplier = 0: there is nothing to compare, ε is infinite")
    found: dict[str, Sequence[WhatIf]] = {
        "rounds": against_rounds(plan),
        "noise multiplier": against_noise(plan),
    }
    if plan.users is not None and plan.round.sampler != "none":
        found["users"] = against_users(plan)
    return found


def _with_users(plan: PlannedSchedule, users: int, cohort: float) -> PlannedSchedule:
    event = replace(plan.round, sampling_rate=min(1.0, cohort / users))
    return replace(plan, users=users, round=event)


def _around(value: float) -> Iterator[float]:
    """Geometric steps about a value, itself in the middle."""
    factors = np.geomspace(1 / _SPREAD, _SPREAD, _POINTS)
    return (value if abs(f - 1) < 1e-9 else float(value * f) for f in factors)
