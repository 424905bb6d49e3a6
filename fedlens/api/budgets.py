"""What a schedule of releases costs, and how much noise or how many rounds a budget allows.

Everything here is arithmetic: no data is looked at, and neither PyTorch nor Flower is loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from fedlens.accountant.dp.calibration import CalibrationError, noise_for, rounds_within
from fedlens.accountant.events import GaussianRelease, Sampler, SubsampledGaussian, Unit
from fedlens.accountant.planning import Cost, PlannedSchedule, WhatIf, tables
from fedlens.foundation.errors import WrongUse

Sought = Literal["noise_multiplier", "rounds"]


@dataclass(frozen=True)
class Budget:
    """What a schedule costs in differential privacy.

    Attributes:
        plan: the schedule.
        cost: by the moments accountant, by a tight one, and the least of what is valid.
    """

    plan: PlannedSchedule
    cost: Cost

    @property
    def epsilon(self) -> float:
        """The least valid ε at the plan's δ; infinite without noise."""
        return self.cost.best.epsilon

    @property
    def statement(self) -> str:
        """The guarantee in words, with what it leaves out."""
        return self.plan.statement(self.cost.best)

    def delta_at(self, epsilon: float) -> float:
        """The δ that holds at another ε.

        Raises:
            WrongUse: ``epsilon`` is negative or not finite.
        """
        return self.plan.accountant().delta(epsilon)

    def what_if(self) -> dict[str, list[WhatIf]]:
        """The cost against rounds, noise and (where they are known) users, from ¼ to 4 times.

        Raises:
            WrongUse: the schedule has no noise.
        """
        return {name: list(lines) for name, lines in tables(self.plan).items()}

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "rdp": self.cost.rdp.to_json(),
            "tight": self.cost.tight.to_json(),
            **self.cost.best.to_json(),
            "order": self.cost.rdp.order,
            "delta": self.plan.delta,
            "schedule": [{"event": e.to_json(), "times": n} for e, n in self.plan.schedule],
            "statement": self.statement,
        }


@dataclass(frozen=True)
class Calibration:
    """The least noise, or the most rounds, that a budget allows.

    Attributes:
        target_epsilon: the ε to stay within.
        noise_multiplier: noise standard deviation over the clipping norm.
        rounds: how many rounds; 0 where not even one fits.
        budget: what that costs; None where no round fits.
        moments: the same answer by the moments accountant alone (its noise multiplier where
            rounds were given, else its rounds); None where it reaches no such budget.
        sought: which of the two was looked for.
    """

    target_epsilon: float
    noise_multiplier: float
    rounds: int
    budget: Budget | None
    moments: float | None
    sought: Sought

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        found = {"noise_multiplier": self.noise_multiplier, "rounds": self.rounds}
        record = {
            **found,
            "target_epsilon": self.target_epsilon,
            "rdp": None if self.moments is None else {**found, self.sought: self.moments},
        }
        if self.budget is None:
            return {**record, "epsilon": 0.0, "order": 0.0, "method": "", "statement": ""}
        cost = self.budget.to_json()
        kept = ("epsilon", "method", "delta", "statement")
        return {**record, **{key: cost[key] for key in kept}, "order": self.budget.cost.best.order}


def budget(
    *,
    sampling_rate: float,
    noise_multiplier: float,
    rounds: int,
    delta: float,
    sampler: Sampler | None = None,
    unit: Unit = "user",
    users: int | None = None,
    releases: Sequence[tuple[str, float]] = (),
) -> Budget:
    """What ``rounds`` releases cost, before anything is released.

    Args:
        sampling_rate: chance q of one unit to take part in a round, in (0, 1].
        noise_multiplier: noise standard deviation over the clipping norm, on the sum.
        rounds: how many, at least 1.
        delta: in (0, 1), well below one over the number of users.
        sampler: how cohorts are drawn; Poisson by default, ``none`` where q is 1.
        unit: whom it protects.
        users: how many are enrolled, to judge δ by.
        releases: vectors released once besides: a name, and noise over the sensitivity.

    Raises:
        WrongUse: an argument is out of range, or together they cannot be accounted for.
    """
    event = event_of(unit, sampler, sampling_rate, noise_multiplier)
    once = tuple(
        GaussianRelease(unit, "add-remove", 1.0, noise, 1, name) for name, noise in releases
    )
    plan = PlannedSchedule(event, rounds, delta, once, check_users(users))
    return Budget(plan, plan.cost())


def calibrate(
    *,
    epsilon: float,
    delta: float,
    sampling_rate: float,
    rounds: int | None = None,
    noise_multiplier: float | None = None,
    sampler: Sampler | None = None,
    unit: Unit = "user",
    users: int | None = None,
) -> Calibration:
    """The least noise for ``rounds``, or the most rounds for ``noise_multiplier``, within (ε, δ).

    Args:
        epsilon: to stay within, above 0.
        rounds: how many; leave it out to find it.
        noise_multiplier: of every round; leave it out to find it.
        delta: as in `budget`, like all that follow.
        sampling_rate: chance of one unit to take part in a round.
        sampler: how cohorts are drawn.
        unit: whom it protects.
        users: how many are enrolled.

    Raises:
        WrongUse: both or neither of ``rounds`` and ``noise_multiplier``, an argument out of range,
            or a budget that no noise keeps.
    """
    if (rounds is None) == (noise_multiplier is None):
        raise WrongUse("give one of --rounds (to find the noise) and --noise-multiplier")
    noise = 1.0 if noise_multiplier is None else noise_multiplier
    event = event_of(unit, sampler, sampling_rate, noise)
    plan = PlannedSchedule(event, rounds or 1, delta, users=check_users(users))
    best = _search(plan, epsilon, rounds, "best")
    try:
        moments: float | None = _search(plan, epsilon, rounds, "rdp")
    except CalibrationError:
        moments = None
    if rounds is None:
        plan = replace(plan, rounds=int(best))
    else:
        plan = replace(plan, round=replace(event, noise_multiplier=best))
    cost = Budget(plan, plan.cost()) if plan.rounds else None
    sought: Sought = "rounds" if rounds is None else "noise_multiplier"
    return Calibration(epsilon, plan.round.noise_multiplier, plan.rounds, cost, moments, sought)


def _search(
    plan: PlannedSchedule, epsilon: float, rounds: int | None, method: Literal["best", "rdp"]
) -> float:
    event = plan.round
    if rounds is None:
        return rounds_within(event, epsilon=epsilon, delta=plan.delta, method=method)
    return noise_for(
        epsilon=epsilon,
        delta=plan.delta,
        rounds=rounds,
        sampling_rate=event.sampling_rate,
        sampler=event.sampler,
        method=method,
    )


def event_of(
    unit: Unit, sampler: Sampler | None, sampling_rate: float, noise_multiplier: float
) -> SubsampledGaussian:
    """One round; where no sampler is named, Poisson sampling unless everybody takes part."""
    drawn: Sampler = sampler or ("none" if sampling_rate == 1 else "poisson")
    return SubsampledGaussian(unit, drawn, "add-remove", sampling_rate, noise_multiplier, 1.0)


def check_users(users: int | None) -> int | None:
    """``users``, if they are some or unknown.

    Raises:
        WrongUse: fewer than one.
    """
    if users is not None and users < 1:
        raise WrongUse(f"--users {users}: give a whole number ≥ 1")
    return users
