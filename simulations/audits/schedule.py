"""What is audited: one run's mechanism, how often it is released, and what is claimed of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from accountant.audit.finding import BOUND_ERROR
from accountant.audit.verdicts import Claim
from accountant.dp.calibration import noise_for
from accountant.dp.differential import DifferentialAccountant
from accountant.events import LEAST_NOISE, SubsampledGaussian
from foundation.errors import FedlensError
from server.config.tree import Config
from server.publication import guarantees_something
from server.run_ledger import noise_source
from server.schedule import Part, PartName, parts, planned_epsilon

SECTIONS: dict[PartName, str] = {
    "privatizer": "privatizer",
    "warmup": "warmup",
    "critic": "privacy",
    "annotator": "annotator",
}
"""The section of the configuration with a part's mechanism."""


class NothingToAudit(FedlensError, ValueError):
    """There is no claim that an audit could contradict; the message says why."""


@dataclass(frozen=True)
class Schedule:
    """One part of a run's schedule, with the rounds and the noise that are audited."""

    config: Config
    """The run's, with the audited rounds and noise in place of its own."""
    name: PartName = "critic"
    """The part that is audited."""

    @classmethod
    def of(
        cls,
        config: Config,
        *,
        rounds: int | None = None,
        noise_multiplier: float | None = None,
        part: PartName = "critic",
    ) -> Schedule:
        """A part of a configuration's schedule, changed where asked.

        Raises:
            NothingToAudit: there is no such part, or it guarantees nothing.
            ConfigError: a value out of range.
        """
        names = [found.name for found in parts(config)]
        if part not in names:
            raise NothingToAudit(
                f"part = {part!r}: this schedule has no such part, only {', '.join(names)}"
            )
        section = SECTIONS[part]
        changes: dict[str, object] = {}
        if rounds is not None:
            changes["rounds.count" if part == "critic" else f"{section}.rounds"] = rounds
        if noise_multiplier is not None:
            changes[f"{section}.noise_multiplier"] = noise_multiplier
        schedule = cls(config.updated(changes), part)
        if rounds == 0 or not schedule.event.private or noise_source(config) != "os-entropy":
            raise NothingToAudit(
                "this configuration claims no privacy (no noise, or noise from a fixed seed), so "
                "there is no claim to audit; --noise-multiplier audits the code at one that does"
            )
        return schedule

    def with_mechanism(self, **numbers: float) -> Schedule:
        """The same part with another ``sampling_rate``, ``noise_multiplier`` or so."""
        changes = {f"{SECTIONS[self.name]}.{key}": value for key, value in numbers.items()}
        return replace(self, config=self.config.updated(changes))

    @property
    def part(self) -> Part:
        """The part that is audited."""
        return next(part for part in parts(self.config) if part.name == self.name)

    @property
    def event(self) -> SubsampledGaussian:
        """One round."""
        return self.part.event

    @property
    def rounds(self) -> int:
        """T: rounds of the part."""
        return self.part.rounds

    @property
    def record_mode(self) -> bool:
        """Whether nodes noise record by record."""
        return self.config.privacy.unit == "record"

    def claim(self, delta: float, noise_ratio: float = 1.0) -> Claim:
        """The accountant's ε of all the part's rounds at ``delta``, were the noise this larger."""
        event = self.event
        noise = event.noise_multiplier * noise_ratio
        account = DifferentialAccountant()
        account.compose(
            replace(event, noise_multiplier=noise if noise > LEAST_NOISE else 0.0), self.rounds
        )
        return Claim(account.epsilon(delta).epsilon, delta)

    @property
    def whole_claim(self) -> Claim:
        """What is claimed of the run with all its parts, which its samples come from.

        Raises:
            NothingToAudit: one of them adds no noise.
        """
        if not guarantees_something(self.config):
            raise NothingToAudit("the run as a whole claims no privacy: one of its parts is open")
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
        """q, z, T and the unit; which part, where there are several."""
        event = self.event
        steps = f" of {event.count} steps" if event.count > 1 else ""
        several = len(parts(self.config)) > 1
        which = f"the {self.name} part alone, " if several else ""
        return (
            f"{which}{event.unit} level, q={event.sampling_rate:g}, z={event.noise_multiplier:g}, "
            f"{self.rounds} rounds{steps}"
        )
