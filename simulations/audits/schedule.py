"""What is audited: one run's mechanism, how often it is released, and what is claimed of it."""

from __future__ import annotations

from dataclasses import dataclass

from accountant.audit.finding import BOUND_ERROR
from accountant.audit.verdicts import Claim
from accountant.calibration import noise_for
from accountant.differential import DifferentialAccountant
from accountant.events import SubsampledGaussian
from server.config import Config
from server.mechanism import round_event
from server.publication import guarantees_something


class NothingToAudit(ValueError):
    """There is no claim that an audit could contradict; the message says why."""


@dataclass(frozen=True)
class Schedule:
    """A run's configuration, with the rounds and the noise that are audited."""

    config: Config
    """The run's, with the audited rounds and noise in place of its own."""

    @classmethod
    def of(
        cls, config: Config, *, rounds: int | None = None, noise_multiplier: float | None = None
    ) -> Schedule:
        """The schedule of a configuration, changed where asked.

        Raises:
            NothingToAudit: it guarantees nothing.
            ConfigError: a value out of range.
        """
        changes: dict[str, object] = {}
        if rounds is not None:
            changes["rounds.count"] = rounds
        if noise_multiplier is not None:
            changes["privacy.noise_multiplier"] = noise_multiplier
        changed = config.updated(changes)
        if not guarantees_something(changed):
            raise NothingToAudit(
                "this configuration claims no privacy (no noise, or noise from a fixed seed), so "
                "there is no claim to audit; --noise-multiplier audits the code at one that does"
            )
        return cls(changed)

    @property
    def event(self) -> SubsampledGaussian:
        """One round."""
        return round_event(self.config)

    @property
    def rounds(self) -> int:
        """T."""
        return self.config.rounds.count

    @property
    def record_mode(self) -> bool:
        """Whether nodes noise record by record."""
        return self.config.privacy.unit == "record"

    def claim(self, delta: float, noise_ratio: float = 1.0) -> Claim:
        """The accountant's ε of all rounds at ``delta``, were the noise this much larger."""
        event, rounds = self.event, self.rounds
        noise = event.noise_multiplier * noise_ratio
        changed = self.config.updated({"privacy.noise_multiplier": noise if noise > 1e-6 else 0.0})
        account = DifferentialAccountant()
        account.compose(round_event(changed), rounds)
        return Claim(account.epsilon(delta).epsilon, delta)

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
        """q, z, T and the unit."""
        event = self.event
        steps = f" of {event.count} steps" if event.count > 1 else ""
        return (
            f"{event.unit} level, q={event.sampling_rate:g}, z={event.noise_multiplier:g}, "
            f"{self.rounds} rounds{steps}"
        )
