"""The parts of a run, in their order, and what they cost together.

A schedule has up to four parts: ``privatizer`` (the filter that all later ones look through),
``warmup`` (the frozen-feature critic), ``critic`` and ``annotator``. A round is one ledger entry,
and rounds are numbered 1..T over all parts. Everything here is arithmetic on the configuration: no
data is looked at.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from accountant.dp.differential import DifferentialAccountant
from accountant.dp.moments import mechanism_divergences
from accountant.events import SubsampledGaussian
from accountant.wording import shown
from foundation.rounding import rounded_up
from server.config.sections import MechanismConfig
from server.config.tree import Config, ConfigError
from server.mechanism import mechanism_event

PartName = Literal["privatizer", "warmup", "critic", "annotator"]

_MOST_NOISE = 1e9
_CLOSE = 1e-3
_DIGITS = 7


@dataclass(frozen=True)
class Part:
    """Some rounds of one mechanism, one after another."""

    name: PartName
    family: str
    """What is trained: ``privatizer``, a family of critics, or ``annotator``."""
    first: int
    """Number of the part's first round."""
    rounds: int
    event: SubsampledGaussian
    """What each of its rounds spends."""
    settings: MechanismConfig
    """The section with its sampling rate, noise multiplier and clipping norm."""

    @property
    def last(self) -> int:
        """Number of the part's last round."""
        return self.first + self.rounds - 1


def parts(config: Config) -> tuple[Part, ...]:
    """The parts that have rounds, in the order in which they are carried out."""
    planned: tuple[tuple[PartName, str, int, MechanismConfig], ...] = (
        ("privatizer", "privatizer", config.privatizer.rounds, config.privatizer),
        ("warmup", "frozen", config.warmup.rounds, config.warmup),
        ("critic", config.critic.family, config.rounds.count, config.privacy),
        ("annotator", "annotator", config.annotator.rounds, config.annotator),
    )
    found: list[Part] = []
    first = 1
    for name, family, rounds, settings in planned:
        if rounds:
            event = mechanism_event(config, settings, family)
            found.append(Part(name, family, first, rounds, event, settings))
            first += rounds
    return tuple(found)


def part_of(config: Config, number: int) -> Part:
    """The part that round ``number`` belongs to.

    Raises:
        ValueError: there is no such round.
    """
    for part in parts(config):
        if part.first <= number <= part.last:
            return part
    raise ValueError(f"number = {number}: the schedule has rounds 1 to {total_rounds(config)}")


def total_rounds(config: Config) -> int:
    """T: rounds of all parts together."""
    return sum(part.rounds for part in parts(config))


def planned_epsilon(config: Config, delta: float, *names: PartName) -> float:
    """DP ε at ``delta`` when all rounds are done, or those of the named parts alone."""
    account = DifferentialAccountant()
    for part in parts(config):
        if not names or part.name in names:
            account.compose(part.event, part.rounds)
    return account.epsilon(delta).epsilon


def costs(config: Config) -> list[tuple[PartName, float, float]]:
    """Each part's name, its DP ε at ``privacy.delta`` alone, and its share of the whole.

    The shares are those of the Rényi divergences at the order that prices the whole schedule best:
    they add up to 1, which the parts' own ε do not. Parts without noise share everything.
    """
    delta, schedule = config.privacy.delta, parts(config)
    account = DifferentialAccountant()
    for part in schedule:
        account.compose(part.event, part.rounds)
    order = account.rdp(delta).order
    weights = [_weight(part, order) for part in schedule]
    if math.inf in weights:
        weights = [float(math.isinf(weight)) for weight in weights]
    return [
        (part.name, planned_epsilon(config, delta, part.name), weight / sum(weights))
        for part, weight in zip(schedule, weights, strict=True)
    ]


def _weight(part: Part, order: float) -> float:
    if not part.event.private:
        return math.inf
    divergence = mechanism_divergences(part.event.mechanism, (max(order, 2.0),))
    return part.rounds * part.event.count * float(divergence[0])


def check_affordable(config: Config) -> None:
    """Refuse a schedule of several parts that its own budget does not cover.

    A run of one part may have more rounds than its budget: it stops before the one that would pass
    it. Of several parts the last would be cut off after the first were paid for.

    Raises:
        ConfigError: naming the part at which the budget is passed, and what each part costs alone.
    """
    schedule, privacy = parts(config), config.privacy
    if len(schedule) < 2 or not privacy.epsilon_budget:
        return
    planned = planned_epsilon(config, privacy.delta)
    if planned <= privacy.epsilon_budget:
        return
    names = [part.name for part in schedule]
    passed = next(
        name
        for i, name in enumerate(names, start=1)
        if not planned_epsilon(config, privacy.delta, *names[:i]) <= privacy.epsilon_budget
    )
    alone = ", ".join(f"{name} {shown(epsilon)}" for name, epsilon, _ in costs(config))
    raise ConfigError(
        f"privacy.epsilon_budget = {privacy.epsilon_budget!r} cannot be used: the schedule passes "
        f"it in its part {passed!r} and needs DP ε = {shown(planned)} at δ = {privacy.delta:g} "
        f"(alone: {alone}): give a larger budget, more noise or fewer rounds"
    )


def scaled(config: Config, *, epsilon: float, delta: float) -> Config:
    """The configuration with all parts' noise multipliers times one factor, to meet a guarantee.

    The planned DP ε at ``delta`` is then at most ``epsilon`` and within a relative 1e-3 of it.

    Raises:
        ConfigError: ``epsilon`` or ``delta`` is out of range, a part adds no noise that could be
            scaled, or no factor reaches the guarantee.
    """
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise ConfigError(f"epsilon = {epsilon!r} cannot be used: give a number above 0")
    if not 0 < delta < 1:
        raise ConfigError(f"delta = {delta!r} cannot be used: give a probability in (0, 1)")
    for part in parts(config):
        if not part.event.private:
            raise ConfigError(
                f"the part {part.name!r} has noise multiplier 0, which no factor makes private: "
                "give every part some noise"
            )
    low, high = _bracket(config, epsilon, delta)
    while (found := planned_epsilon(_times(config, high), delta)) < epsilon * (1 - _CLOSE):
        middle = math.sqrt(low * high)
        if middle in (low, high):
            break
        if planned_epsilon(_times(config, middle), delta) <= epsilon:
            high = middle
        else:
            low = middle
    if not found <= epsilon:
        raise ConfigError(f"epsilon = {epsilon!r} cannot be met by more noise alone")
    return _times(config, high)


def _bracket(config: Config, epsilon: float, delta: float) -> tuple[float, float]:
    """A factor that is not enough and one that is, at most a factor of 4 apart."""
    largest = max(part.event.noise_multiplier for part in parts(config))
    factor = 1.0
    if planned_epsilon(config, delta) <= epsilon:
        while planned_epsilon(_times(config, factor), delta) <= epsilon:
            factor /= 4
            if factor * largest < 1e-5:
                return factor, 4 * factor
        return factor, 4 * factor
    while planned_epsilon(_times(config, factor), delta) > epsilon:
        factor *= 4
        if factor * largest > _MOST_NOISE:
            raise ConfigError(
                f"epsilon = {epsilon!r} at delta = {delta!r} cannot be met: it needs more noise "
                "than numbers can hold; give a larger one or fewer rounds"
            )
    return factor / 4, factor


def _times(config: Config, factor: float) -> Config:
    """All parts' noise multipliers times a factor, rounded up to some digits."""
    sections = ("privacy", *(part.name for part in parts(config) if part.name != "critic"))
    flat = config.flat()
    keys = [f"{section}.noise_multiplier" for section in sections]
    return config.updated({key: rounded_up(float(flat[key]) * factor, _DIGITS) for key in keys})
