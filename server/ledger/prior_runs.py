"""Other runs that this one uses and pays for: whose filter, split or network it takes.

The other run's training cost is in that run's ledger, and where both runs are about the same people
they lose both. So what it released goes into this run's ledger header, and is composed with its own
rounds, unless the settings declare that the other run was about other people. The networks that
probes ask are an exception: what their training released is not the probe's, and its words say so.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from fedlens.accountant.ledger.ledger import Ledger
from fedlens.accountant.ledger.prior import PriorReleases
from fedlens.client.messages import Vector
from fedlens.models.annotators import Annotator
from fedlens.models.shapes import ImageShape
from fedlens.models.weights import load_vector, to_vector
from fedlens.server.config import needs
from fedlens.server.config.schedule import check_affordable
from fedlens.server.config.tasks import AnnotatorConfig
from fedlens.server.config.tree import Config, ConfigError
from fedlens.server.ledger.plan import planned
from fedlens.server.ledger.population import check_room, joined
from fedlens.server.run.arrays import within
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


def check_probed_models(config: Config) -> None:
    """Refuse a probe that would ask a network trained without a guarantee, where it has one.

    Such a network may tell of single people, and so may what users answer about it, whatever the
    probe's own noise.

    Raises:
        ConfigError: saying so, or there is no such run.
    """
    for setting, model in _probed_models(config).items():
        named = NamedRun(setting, model, "", other_people=False)
        named.check_private(config, named.opened()[1])


def cost_of_models(config: Config) -> str:
    """In words, what a probe's figures leave out; empty where they leave out nothing."""
    runs = sorted({Path(model).name for model in _probed_models(config).values()})
    if not runs:
        return ""
    return (
        f"The question asks the annotator of run {', '.join(runs)}: what that run released of the "
        "same users comes on top, and these figures leave it out."
    )


def _probed_models(config: Config) -> dict[str, str]:
    return {
        f"tasks.{name}.model": task.asked_run
        for name, task in config.planned.items()
        if task.asked_run
    }


@dataclass(frozen=True, eq=False)
class ReleasedAnnotator:
    """A network that knows the classes: what a run's noised releases taught it."""

    settings: AnnotatorConfig
    vector: Vector
    """All of its state, float32 [n]."""


def load_released_annotator(
    setting: str, named: str, shape: ImageShape, classes: int
) -> ReleasedAnnotator:
    """The annotator of a run for images of a shape and so many classes.

    Args:
        setting: key of the setting that names the run, for messages.
        named: the run's folder.
        shape: channels, height, width of the images that it is to name.
        classes: their number of classes.

    Raises:
        ConfigError: there is none there, or it is for other images or classes.
        RunDirectoryError: there is no run there, or it was damaged.
    """
    directory = RunDirectory.open(Path(named))
    snapshot, config = directory.load_state(), directory.config()
    names = config.providers(needs.LABELS)
    settings = config.annotator
    if snapshot is None or not names or settings is None:
        raise ConfigError(f"{setting} = {named!r}: that run has no annotator, name another")
    theirs = tuple(snapshot.facts["shape"])
    if (theirs, snapshot.facts["classes"]) != (tuple(shape), classes):
        raise ConfigError(
            f"{setting} = {named!r}: that run has {snapshot.facts['classes']} classes of "
            f"images {theirs}, this one {classes} of {tuple(shape)}: name another"
        )
    state = within(f"tasks/{names[0]}", snapshot.arrays)
    if not bool(state["begun"]) or not int(state["applied"]):
        raise ConfigError(f"{setting} = {named!r}: its annotator has learned nothing yet")
    network = Annotator(shape, classes, settings.components, settings.features)
    load_vector(network, state["iterate"].astype(np.float32))
    network.weight.copy_(torch.from_numpy(state["mean"].astype(np.float32)))
    return ReleasedAnnotator(settings, to_vector(network))
