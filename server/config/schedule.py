"""The tasks of a run, in their order, and what they cost together.

A round is one ledger entry, and rounds are numbered 1..T over all tasks. Everything here is
arithmetic on the configuration: no data is looked at.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedlens.accountant.dp.differential import DifferentialAccountant
from fedlens.accountant.dp.moments import mechanism_divergences
from fedlens.accountant.events import Event, SubsampledGaussian
from fedlens.accountant.wording import shown
from fedlens.foundation.rounding import rounded_up
from fedlens.server.config.mechanism import round_event
from fedlens.server.config.tasks import TaskConfig
from fedlens.server.config.tree import Config, ConfigError

_MOST_NOISE = 1e9
_CLOSE = 1e-3
_DIGITS = 7
_ASKING = 5
"""What asking nodes takes, in generator steps: a guess, for a display of the time that is left."""


@dataclass(frozen=True)
class ScheduledTask:
    """A task's rounds, one after another, in their place in the run."""

    name: str
    settings: TaskConfig
    first: int
    """Number of the task's first round."""
    event: SubsampledGaussian
    """What each of its rounds spends."""

    @property
    def rounds(self) -> int:
        """How many rounds it has."""
        return self.settings.rounds

    @property
    def last(self) -> int:
        """Number of the task's last round."""
        return self.first + self.rounds - 1


def scheduled(config: Config) -> tuple[ScheduledTask, ...]:
    """The tasks in the order in which they are carried out."""
    found: list[ScheduledTask] = []
    first = 1
    for name, settings in config.planned.items():
        found.append(ScheduledTask(name, settings, first, round_event(config, settings)))
        first += settings.rounds
    return tuple(found)


def expected_work(config: Config) -> tuple[int, ...]:
    """What each round is expected to take, in generator steps, asking nodes among them."""
    return tuple(
        _ASKING + task.settings.steps_after(number)
        for task in scheduled(config)
        for number in range(1, task.rounds + 1)
    )


def task_at(config: Config, number: int) -> ScheduledTask:
    """The task that round ``number`` belongs to.

    Raises:
        ValueError: there is no such round.
    """
    for task in scheduled(config):
        if task.first <= number <= task.last:
            return task
    raise ValueError(f"number = {number}: the schedule has rounds 1 to {total_rounds(config)}")


def total_rounds(config: Config) -> int:
    """T: rounds of all tasks together."""
    return sum(task.rounds for task in config.tasks.values())


def planned_epsilon(
    config: Config, delta: float, *names: str, prior: Sequence[Event] = ()
) -> float:
    """DP ε at ``delta`` when all rounds are done, or those of the named tasks alone.

    Args:
        config: the run's.
        delta: δ.
        names: of tasks; none for all.
        prior: what another run released of the same people, which is composed with it.
    """
    account = DifferentialAccountant()
    for event in prior:
        account.compose(event)
    for task in scheduled(config):
        if not names or task.name in names:
            account.compose(task.event, task.rounds)
    return account.epsilon(delta).epsilon


def costs(config: Config) -> list[tuple[str, float, float]]:
    """Each task's name, its DP ε at ``privacy.delta`` alone, and its share of the whole.

    The shares are those of the Rényi divergences at the order that prices the whole schedule best:
    they add up to 1, which the tasks' own ε do not. Parts without noise share everything.
    """
    delta, schedule = config.privacy.delta, scheduled(config)
    account = DifferentialAccountant()
    for task in schedule:
        account.compose(task.event, task.rounds)
    order = account.rdp(delta).order
    weights = [_weight(task, order) for task in schedule]
    if math.inf in weights:
        weights = [float(math.isinf(weight)) for weight in weights]
    return [
        (task.name, planned_epsilon(config, delta, task.name), weight / sum(weights))
        for task, weight in zip(schedule, weights, strict=True)
    ]


def _weight(task: ScheduledTask, order: float) -> float:
    if not task.event.private:
        return math.inf
    divergence = mechanism_divergences(task.event.mechanism, (max(order, 2.0),))
    return task.rounds * task.event.count * float(divergence[0])


def check_affordable(config: Config, prior: Sequence[Event] = ()) -> None:
    """Refuse a schedule of several tasks that its own budget does not cover.

    A run of one task may have more rounds than its budget: it stops before the one that would pass
    it. Of several tasks the last would be cut off after the first were paid for.

    Args:
        config: the run's.
        prior: what the run whose filter is taken released of the same people.

    Raises:
        ConfigError: naming the task at which the budget is passed, and what each task costs alone.
    """
    schedule, privacy = scheduled(config), config.privacy
    if len(schedule) < 2 or not privacy.epsilon_budget:
        return
    planned = planned_epsilon(config, privacy.delta, prior=prior)
    if planned <= privacy.epsilon_budget:
        return
    names = [task.name for task in schedule]
    passed = next(
        name
        for i, name in enumerate(names, start=1)
        if not planned_epsilon(config, privacy.delta, *names[:i], prior=prior)
        <= privacy.epsilon_budget
    )
    alone = ", ".join(f"{name} {shown(epsilon)}" for name, epsilon, _ in costs(config))
    beside = ", beside what the filter cost" if prior else ""
    raise ConfigError(
        f"privacy.epsilon_budget = {privacy.epsilon_budget!r} cannot be used: the schedule passes "
        f"it in its task {passed!r} and needs DP ε = {shown(planned)} at δ = {privacy.delta:g} "
        f"(alone: {alone}{beside}): give a larger budget, more noise or fewer rounds"
    )


def scaled(config: Config, *, epsilon: float, delta: float, prior: Sequence[Event] = ()) -> Config:
    """The configuration with all tasks' noise multipliers times one factor, to meet a guarantee.

    The planned DP ε at ``delta`` is then at most ``epsilon`` and within a relative 1e-3 of it,
    ``prior`` included: what the run that it builds on released of the same people.

    Raises:
        ConfigError: ``epsilon`` or ``delta`` is out of range, a task adds no noise that could be
            scaled, or no factor reaches the guarantee.
    """
    _require_scalable(config, epsilon, delta, prior)

    def cost(factor: float) -> float:
        return planned_epsilon(_times(config, factor), delta, prior=prior)

    low, high = _bracket(config, epsilon, cost)
    while (found := cost(high)) < epsilon * (1 - _CLOSE):
        middle = math.sqrt(low * high)
        if middle in (low, high):
            break
        if cost(middle) <= epsilon:
            high = middle
        else:
            low = middle
    if not found <= epsilon:
        raise ConfigError(f"epsilon = {epsilon!r} cannot be met by more noise alone")
    return _times(config, high)


def _require_scalable(config: Config, epsilon: float, delta: float, prior: Sequence[Event]) -> None:
    """Refuse a guarantee that no factor reaches, whatever it is."""
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise ConfigError(f"epsilon = {epsilon!r} cannot be used: give a number above 0")
    if not 0 < delta < 1:
        raise ConfigError(f"delta = {delta!r} cannot be used: give a probability in (0, 1)")
    for task in scheduled(config):
        if not task.event.private:
            raise ConfigError(
                f"the task {task.name!r} has noise multiplier 0, which no factor makes private: "
                "give every task some noise"
            )
    account = DifferentialAccountant()
    for event in prior:
        account.compose(event)
    if (before := account.epsilon(delta).epsilon) >= epsilon:
        raise ConfigError(
            f"epsilon = {epsilon!r} at delta = {delta!r} cannot be met: what this run builds on "
            f"cost the same people {shown(before)} already; give a larger one"
        )


def _bracket(config: Config, epsilon: float, cost: Callable[[float], float]) -> tuple[float, float]:
    """A factor that is not enough and one that is, at most a factor of 4 apart."""
    largest = max(task.event.noise_multiplier for task in scheduled(config))
    factor = 1.0
    if cost(1.0) <= epsilon:
        while cost(factor) <= epsilon:
            factor /= 4
            if factor * largest < 1e-5:
                return factor, 4 * factor
        return factor, 4 * factor
    while cost(factor) > epsilon:
        factor *= 4
        if factor * largest > _MOST_NOISE:
            raise ConfigError(
                f"epsilon = {epsilon!r} cannot be met: it needs more noise "
                "than numbers can hold; give a larger one or fewer rounds"
            )
    return factor / 4, factor


def _times(config: Config, factor: float) -> Config:
    """All tasks' noise multipliers times a factor, rounded up to some digits."""
    flat = config.flat()
    keys = [f"tasks.{name}.noise_multiplier" for name in config.schedule]
    return config.updated({key: rounded_up(float(flat[key]) * factor, _DIGITS) for key in keys})
