"""What a run takes from an earlier one is paid for: that run's releases, held to both budgets.

The other run's training cost is in that run's ledger, and where both runs are about the same people
they lose both. So what it released goes into this run's ledger header, and is composed with its own
rounds, unless the settings declare that the other run was about other people.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedlens.accountant.ledger.ledger import Ledger
from fedlens.accountant.ledger.prior import PriorReleases
from fedlens.server.config.schedule import check_affordable
from fedlens.server.config.tree import Config, ConfigError
from fedlens.server.ledger.plan import planned
from fedlens.server.ledger.population import check_room, joined
from fedlens.server.run.directory import RunDirectory, RunDirectoryError, Snapshot


@dataclass(frozen=True)
class NamedRun:
    """A run that a setting names."""

    setting: str
    """The setting's key."""
    path: str
    """Its value."""
    declares: str
    """Key of the setting by which an operator declares that it was about other people."""
    other_people: bool
    """Whether that is declared."""

    def refused(self, why: str) -> ConfigError:
        """What is raised where the run cannot be used."""
        return ConfigError(f"{self.setting} = {self.path!r} cannot be used: {why}")

    def opened(self) -> tuple[RunDirectory, Config, Snapshot | None]:
        """The run's folder, its configuration and its last state, if there is one.

        Raises:
            ConfigError: there is no such run, or it was damaged.
        """
        if not Path(self.path).is_absolute():
            raise self.refused("give the absolute path of that run's folder")
        try:
            directory = RunDirectory.open(Path(self.path))
            return directory, directory.config(), directory.load_state()
        except RunDirectoryError as error:
            raise self.refused(str(error)) from None
        except OSError as error:
            raise self.refused(f"it cannot be read: {error.strerror}") from None

    def check_private(self, config: Config, theirs: Config) -> None:
        """Refuse what was trained without a guarantee where this run has one.

        Raises:
            ConfigError: saying so.
        """
        if _private(config) and not _private(theirs):
            raise self.refused(
                "it was trained without noise or with repeatable noise, so it may tell of single "
                "people, and this run promises that nothing does; train it again with noise"
            )

    def released(self, directory: RunDirectory) -> PriorReleases:
        """What that run released, and its plan's further rounds, whichever budget covers it."""
        return PriorReleases.of(
            Ledger.read(directory.ledger),
            other_people=self.other_people,
            plan=planned(directory.config()).schedule,
        )

    def releases(self, config: Config, directory: RunDirectory, users: str = "") -> PriorReleases:
        """What that run released, where both budgets cover it.

        Args:
            config: of the run that takes something of it.
            directory: the other run's.
            users: whom this run is about, as ledgers name them; empty for the slice it names.

        Raises:
            ConfigError: this run's budget does not cover it, or it is declared to be about other
                people and was not.
            PopulationError: as `check_room`.
        """
        prior = self.released(directory)
        population = joined(config) if prior.other_people else None
        if population is not None and population.knows(prior):
            raise self.refused(
                f"{self.declares} = true, but that run spent from this run's population "
                f"{config.privacy.population!r} or was booked there, so its users may be the "
                "same: give false"
            )
        check_affordable(config, prior.in_bulk)
        check_room(config, prior, users, self.declares)
        return prior


def _private(config: Config) -> bool:
    return config.noised and config.privacy.fixed_seed < 0
