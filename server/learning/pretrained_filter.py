"""A filter that another run made: nodes of this one look through it from the first round on.

The filter is public by now, a result of the other run. What that run released is kept with the
filter and paid for: see `fedlens.server.ledger.prior_runs`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import cast

import numpy as np

from fedlens.accountant.ledger.prior import PriorReleases
from fedlens.accountant.wording import shown
from fedlens.client.messages import Vector
from fedlens.models.shapes import ImageShape, ShapeError
from fedlens.server.config.privatizer import PretrainedPrivatizer
from fedlens.server.config.schedule import scheduled
from fedlens.server.config.tree import Config, ConfigError
from fedlens.server.generation.sampler import restored_filter
from fedlens.server.learning.privatizer import filter_task_of, kept_filter_weights
from fedlens.server.ledger.prior_runs import NamedRun
from fedlens.server.ledger.run_ledger import spending_of
from fedlens.server.run.directory import RunDirectory, Snapshot

_SAME = (
    "sensitive_attribute", "network", "width", "output_noise_std", "capacity", "highest_frequency",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class PretrainedFilter:
    """A filter with what its training cost.

    Attributes:
        vector: the filter's weights as they travel in every request, float32 [n].
        prior: what the run that trained it released until then.
        epsilon: DP ε that its ledger came to; infinite where it protects no user.
        delta: at this δ.
    """

    vector: Vector
    prior: PriorReleases
    epsilon: float
    delta: float

    @property
    def cost(self) -> str:
        """In words, for people who read what a run cost."""
        alone = f"DP ε = {shown(self.epsilon)} at δ = {self.delta:g} alone"
        through = f"Records went through the filter of run {self.prior.run_id}, whose training cost"
        if self.prior.other_people:
            return (
                f"{through} its users {alone}. The operator declared that none of them is a user "
                "of this run, so these figures leave it out; a user of both would lose both."
            )
        return f"{through} {alone}; the figures include it, as if all users were in both runs."


def check_filter(config: Config) -> None:
    """Refuse a new run whose pretrained filter cannot be used, before nodes are asked anything.

    Raises:
        ConfigError: as `pretrained_filter`.
        PopulationError: as `check_room`.
    """
    if taken := pretrained_settings(config):
        directory, _, _ = _found(config, taken)
        named_filter(taken).releases(config, directory)


def pretrained_filter(
    config: Config, shape: ImageShape, directory: RunDirectory
) -> PretrainedFilter | None:
    """The filter that a run was given, kept in its own directory from then on; None without one.

    What is kept is durable before this returns, and what the other run does later changes nothing.

    Args:
        config: the run's.
        shape: of the images of its nodes.
        directory: the run's.

    Raises:
        ConfigError: there is no such run, it is not done with its filter or did not train it, the
            filter is of other images or another kind than the configuration says, it was trained
            without a guarantee where this run has one, or the budget does not cover what it cost.
        PopulationError: the population has too little left to pay what it cost.
        RunDirectoryError: what was kept was damaged.
    """
    settings = pretrained_settings(config)
    if settings is None:
        return None
    kept = kept_pretrained(directory)
    if kept is None:
        kept = _taken(config, settings, shape)
        facts = {
            "prior": json.dumps(kept.prior.to_json()),
            "epsilon": repr(kept.epsilon),
            "delta": repr(kept.delta),
        }
        directory.save_filter(kept.vector, facts)
    return kept


def kept_pretrained(directory: RunDirectory) -> PretrainedFilter | None:
    """The filter that a run was given, as it keeps it; None where none was, or not yet.

    Raises:
        RunDirectoryError: what was kept was damaged.
    """
    kept = directory.load_filter()
    if kept is None:
        return None
    vector, facts = kept
    prior = PriorReleases.from_json(json.loads(facts["prior"]))
    return PretrainedFilter(vector, prior, float(facts["epsilon"]), float(facts["delta"]))


def _taken(config: Config, ours: PretrainedPrivatizer, shape: ImageShape) -> PretrainedFilter:
    """The other run's filter, tried on a network, and what it cost."""
    directory, snapshot, vector = _found(config, ours)
    if tuple(snapshot.facts["shape"]) != tuple(shape):
        raise _refused(ours, f"its filter is of images {snapshot.facts['shape']}, not {shape}")
    try:
        restored_filter(config, shape, vector)
    except (ValueError, ShapeError) as error:
        raise _refused(ours, f"it does not fit its network: {error}; train it again") from None
    if not np.isfinite(vector).all():
        raise _refused(ours, "its weights are not finite; train it again")
    prior = named_filter(ours).releases(config, directory)
    spent = spending_of(directory.config(), directory)
    return PretrainedFilter(vector, prior, spent.dp_epsilon, spent.delta_dp)


def pretrained_settings(config: Config) -> PretrainedPrivatizer | None:
    """The section of the privatizer, where a run takes another one's filter."""
    return cast(PretrainedPrivatizer, config.privatizer) if config.privatizer.asked_run else None


def named_filter(ours: PretrainedPrivatizer) -> NamedRun:
    """The run whose filter is taken."""
    declares = "privatizer.other_people"
    return NamedRun("privatizer.path", ours.path, declares, ours.other_people)


def _found(config: Config, ours: PretrainedPrivatizer) -> tuple[RunDirectory, Snapshot, Vector]:
    directory, theirs, snapshot = named_filter(ours).opened()
    if theirs.privatizer.asked_run:
        raise _refused(
            ours,
            "that run took its filter from another one too, and its ledger does not say what that "
            f"cost: name the one that trained it, {theirs.privatizer.asked_run}",
        )
    vector = None if snapshot is None else _trained(theirs, snapshot)
    if snapshot is None or vector is None:
        raise _refused(ours, "that run has no filter, or is not done with it yet")
    _check_alike(ours, theirs)
    named_filter(ours).check_private(config, theirs)
    return directory, snapshot, vector


def _trained(theirs: Config, snapshot: Snapshot) -> Vector | None:
    """The filter, where it is there and learned from what it was to learn from."""
    made = [task for task in scheduled(theirs) if task.name == filter_task_of(theirs)]
    for task in made:
        applied = int(snapshot.arrays.get(f"tasks/{task.name}/applied", np.zeros(())))
        if not task.settings.filter_is_trained(snapshot.round - task.first + 1, applied):
            return None
    return kept_filter_weights(theirs, snapshot.arrays)


def _check_alike(ours: PretrainedPrivatizer, theirs: Config) -> None:
    """The network is built from this run's settings, on nodes that do not know the other run."""
    own, other = ours.model_dump(), theirs.privatizer.model_dump()
    for name in _SAME:
        found = other.get(name, own[name])
        if own[name] != found:
            raise ConfigError(
                f"privatizer.{name} = {own[name]!r} does not fit privatizer.path = "
                f"{ours.path!r}, whose filter has {found!r}: set that"
            )
    told = theirs.privatizer.consenting_share > 0
    if (ours.consenting > 0) != told:
        raise ConfigError(
            f"privatizer.consenting = {ours.consenting!r} does not fit privatizer.path = "
            f"{ours.path!r}, whose filter {'is' if told else 'is not'} told who consents: give "
            + ("a share above 0" if told else "0")
        )


def _refused(ours: PretrainedPrivatizer, why: str) -> ConfigError:
    return named_filter(ours).refused(why)
