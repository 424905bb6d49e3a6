"""What is audited: one run's mechanism, how often it is released, and what is claimed of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

from fedlens.accountant.audit.finding import BOUND_ERROR
from fedlens.accountant.audit.verdicts import Claim
from fedlens.accountant.dp.calibration import noise_for
from fedlens.accountant.dp.differential import DifferentialAccountant
from fedlens.accountant.events import LEAST_NOISE, SubsampledGaussian
from fedlens.foundation.errors import FedlensError
from fedlens.server.config.schedule import ScheduledTask, planned_epsilon, scheduled
from fedlens.server.config.tree import Config
from fedlens.server.ledger.plan import noise_source
from fedlens.server.round.publication import guarantees_something


class NothingToAudit(FedlensError, ValueError):
    """There is no claim that an audit could contradict; the message says why."""


@lru_cache(maxsize=256)
def _epsilon(event: SubsampledGaussian, rounds: int, delta: float) -> float:
    account = DifferentialAccountant()
    account.compose(event, rounds)
    return account.epsilon(delta).epsilon


@dataclass(frozen=True)
class Schedule:
    """One task of a run's schedule, with the rounds and the noise that are audited."""

    config: Config
    """The run's, with the audited rounds and noise in place of its own."""
    name: str
    """The task that is audited."""

    @classmethod
    def of(
        cls,
        config: Config,
        *,
        rounds: float | None = None,
        noise_multiplier: float | None = None,
        task: str = "",
    ) -> Schedule:
        """A task of a configuration's schedule, changed where asked; the last one by default.

        Raises:
            NothingToAudit: there is no such task, or it guarantees nothing.
            ConfigError: a value out of range.
        """
        names = [found.name for found in scheduled(config)]
        name = task or names[-1]
        if name not in names:
            raise NothingToAudit(
                f"task = {name!r}: this schedule has no such task, only {', '.join(names)}"
            )
        numbers = {"rounds": rounds, "noise_multiplier": noise_multiplier}
        schedule = cls(config, name).with_mechanism(
            **{key: value for key, value in numbers.items() if value is not None}
        )
        if not schedule.event.private or noise_source(config) != "os-entropy":
            raise NothingToAudit(
                "this configuration claims no privacy (no noise, or noise from a fixed seed), so "
                "there is no claim to audit; --noise-multiplier audits the code at one that does"
            )
        return schedule

    @classmethod
    def all_of(cls, config: Config, **numbers: float | None) -> list[Schedule]:
        """Every task of a configuration's schedule that claims something, in their order.

        Raises:
            NothingToAudit: none does.
            ConfigError: a value out of range.
        """
        names, found = [task.name for task in scheduled(config)], list[Schedule]()
        for name in names:
            try:
                found.append(cls.of(config, task=name, **numbers))
            except NothingToAudit:
                if name == names[-1] and not found:
                    raise
        return found

    def with_mechanism(self, **numbers: float) -> Schedule:
        """The same task with another ``sampling_rate``, ``noise_multiplier`` or so."""
        changes = {f"tasks.{self.name}.{key}": value for key, value in numbers.items()}
        return replace(self, config=self.config.updated(changes))

    @property
    def task(self) -> ScheduledTask:
        """The task that is audited."""
        return next(task for task in scheduled(self.config) if task.name == self.name)

    @property
    def event(self) -> SubsampledGaussian:
        """One round."""
        return self.task.event

    @property
    def noise_on_sums(self) -> float:
        """Declared standard deviation of the noise on a sum of updates, over the clipping norm.

        In record mode of each step on each node. It is reckoned from what the ledger says: the
        multiplier z that is spent, less what the norms take of it.
        """
        return self.event.noise_multiplier / math.sqrt(1 - self._norms_share)

    @property
    def noise_on_norms(self) -> float:
        """Declared standard deviation of the noise on each count of norms, over its sensitivity 1.

        Infinite where no norms are released.
        """
        share = self._norms_share
        return self.event.noise_multiplier / math.sqrt(share) if share else math.inf

    @property
    def _norms_share(self) -> float:
        return 0.0 if self.record_mode else self.config.privacy.norms_share

    @property
    def rounds(self) -> int:
        """T: rounds of the task."""
        return self.task.rounds

    @property
    def record_mode(self) -> bool:
        """Whether nodes noise record by record."""
        return self.config.privacy.unit == "record"

    def claim(self, delta: float, noise_ratio: float = 1.0) -> Claim:
        """The accountant's ε of all the task's rounds at ``delta``, were the noise this larger."""
        event = self.event
        noise = event.noise_multiplier * noise_ratio
        with_noise = replace(event, noise_multiplier=noise if noise > LEAST_NOISE else 0.0)
        return Claim(_epsilon(with_noise, self.rounds, delta), delta)

    @property
    def whole_claim(self) -> Claim:
        """What is claimed of the run with all its tasks, which its samples come from.

        Raises:
            NothingToAudit: one of them adds no noise.
        """
        if not guarantees_something(self.config):
            raise NothingToAudit("the run as a whole claims no privacy: one of its tasks is open")
        delta = self.config.privacy.delta
        return Claim(planned_epsilon(self.config, delta), delta)

    def noise_for_claim(self, epsilon: float, delta: float) -> float:
        """A noise multiplier at which this schedule's claim is ``epsilon`` at most."""
        event = self.event
        rounds = self.rounds * event.count
        rate = event.sampling_rate
        return noise_for(sampling_rate=rate, rounds=rounds, epsilon=epsilon, delta=delta)

    @property
    def stated(self) -> Claim:
        """The claim at the run's own δ."""
        return self.claim(self.config.privacy.delta)

    def stated_for(self, canaries: int) -> Claim:
        """The claim at a δ that the one-run bound can bear.

        Its p-value has a term 2mδα, which at the run's own δ is as large as an alarm's error. The
        accountant's claim holds at every δ, so one is chosen that makes the term small.
        """
        return self.claim(min(self.config.privacy.delta, BOUND_ERROR / canaries))

    def in_words(self) -> str:
        """q, z, T and the unit; which task, where there are several."""
        event = self.event
        steps = f" of {event.count} steps" if event.count > 1 else ""
        several = len(scheduled(self.config)) > 1
        which = f"the {self.name} task alone, " if several else ""
        return (
            f"{which}{event.unit} level, q={event.sampling_rate:g}, z={event.noise_multiplier:g}, "
            f"{self.rounds} rounds{steps}"
        )
