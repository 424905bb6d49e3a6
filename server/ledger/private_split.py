"""A run on one side of a private split: the model that scores users, where it is from, who pays.

Nodes find out by themselves on which side a user is (`fedlens.client.users.views`); the
server keeps the model, the rule and the threshold, which are public, and no side: of those it sees
what nodes' sums show before the noise. The model is a release of an earlier run, which is paid for
as `fedlens.server.ledger.prior_runs` says. A run keeps the model as it first took it, so that its
users stay the same when the earlier run goes on or is gone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from fedlens.accountant.ledger.prior import PriorReleases
from fedlens.accountant.ledger.spending import split_side
from fedlens.accountant.wording import shown
from fedlens.client.messages import SplitSettings, UserSplit
from fedlens.models.shapes import ImageShape
from fedlens.server.config.tree import Config
from fedlens.server.ledger.prior_runs import NamedRun, load_released_annotator
from fedlens.server.ledger.run_ledger import spending_of
from fedlens.server.run.directory import RunDirectory, RunDirectoryError, Snapshot

FILE = "split.safetensors"
_MODEL = "model"
_SCORES = {
    "recognised": "the share of their records whose label it finds likeliest",
    "confidence": "the mean probability that it gives their records' labels",
}


@dataclass(frozen=True, eq=False)
class PrivateSplit:
    """One side of a split, with what its model's training cost.

    Attributes:
        split: as it travels in every request.
        prior: what the run that trained the model released until then.
        epsilon: DP ε that its ledger came to.
        delta: at this δ.
    """

    split: UserSplit
    prior: PriorReleases
    epsilon: float
    delta: float

    @property
    def users(self) -> str:
        """Whom the run is about, as ledgers name them; equal where both see the same users."""
        return split_side(self.split.identity, self.split.settings.side)

    @property
    def cost(self) -> str:
        """Whom the run is about and what the split cost, in words."""
        asked = self.split.settings
        side = "below" if asked.side == "below" else "at or above"
        alone = f"cost its users DP ε = {shown(self.epsilon)} at δ = {self.delta:g} alone"
        counted = "the figures include it, as if all users were in both runs."
        if self.prior.other_people:
            counted = (
                "the operator declared that none of them is a user of this run, so these figures "
                "leave it out; a user of both would lose both."
            )
        return (
            f"Only users on one side of a private split count: by the annotator of run "
            f"{self.prior.run_id}, {_SCORES[asked.rule]} is {side} {asked.threshold:g} (of up to "
            f"{asked.records} records). No release says who they are, but for what the figures "
            f"allow. That run {alone}; {counted}"
        )


def check_split(config: Config) -> None:
    """Refuse a new run whose split cannot be made, before nodes are asked anything.

    Raises:
        ConfigError, PopulationError: as `private_split`.
    """
    if config.split.active:
        _, _, snapshot = _found(config)
        channels, height, width = snapshot.facts["shape"]
        _taken(config, (channels, height, width), int(snapshot.facts["classes"]))


def private_split(
    config: Config, shape: ImageShape, classes: int, directory: RunDirectory
) -> PrivateSplit | None:
    """The side that a run is about, kept in its own directory from then on; None for everyone.

    What is kept is durable before this returns, and what the other run does later changes nothing.

    Args:
        config: the run's.
        shape: of the images of its nodes.
        classes: of their records.
        directory: the run's.

    Raises:
        ConfigError: there is no such run, it has no annotator that has learned, or one for other
            images or classes or of filtered ones, it was itself about one side, it has no guarantee
            where this run has one or another unit, or the budget does not cover what it cost.
        PopulationError: the population has too little left to pay what it cost and this run.
        RunDirectoryError: what was kept was damaged.
    """
    if not config.split.active:
        return None
    kept = kept_split(directory)
    if kept is None:
        kept = _taken(config, shape, classes)
        facts = {
            "split": kept.split.settings.model_dump_json(),
            "prior": json.dumps(kept.prior.to_json()),
            "epsilon": repr(kept.epsilon),
            "delta": repr(kept.delta),
        }
        model = np.ascontiguousarray(kept.split.model)
        directory.save(FILE, save({_MODEL: model}, metadata=facts))
    return kept


def kept_split(directory: RunDirectory) -> PrivateSplit | None:
    """The side that a run is about, as it keeps it; None where it is about everyone, or not yet.

    Raises:
        RunDirectoryError: what was kept was damaged.
    """
    path = directory.path / FILE
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="numpy") as file:
            model, facts = file.get_tensor(_MODEL), dict(file.metadata())
        settings = SplitSettings.model_validate_json(facts["split"])
        prior = PriorReleases.from_json(json.loads(facts["prior"]))
        figures = float(facts["epsilon"]), float(facts["delta"])
    except (SafetensorError, KeyError, TypeError, ValueError):
        raise RunDirectoryError(f"{path} is damaged; restore it from a backup") from None
    return PrivateSplit(UserSplit(settings, model), prior, *figures)


def named_model(config: Config) -> NamedRun:
    """The run whose annotator scores users."""
    split = config.split
    return NamedRun("split.model", split.model, "split.other_people", split.other_people)


def _taken(config: Config, shape: ImageShape, classes: int) -> PrivateSplit:
    """The other run's annotator as it is now, and what it cost."""
    ours, (directory, theirs, _) = config.split, _found(config)
    found = load_released_annotator("split.model", ours.model, shape, classes)
    asked: dict[str, Any] = ours.model_dump(include={"side", "rule", "threshold", "records"})
    settings = SplitSettings(
        **asked, components=found.settings.components, features=found.settings.features
    )
    split = UserSplit(settings, found.vector)
    users = split_side(split.identity, settings.side)
    prior = named_model(config).releases(config, directory, users)
    spent = spending_of(theirs, directory)
    return PrivateSplit(split, prior, spent.dp_epsilon, spent.delta_dp)


def _found(config: Config) -> tuple[RunDirectory, Config, Snapshot]:
    named = named_model(config)
    directory, theirs, snapshot = named.opened()
    if snapshot is None or theirs.annotator is None:
        raise named.refused("that run has no annotator, or none yet: name another")
    if theirs.privatizer.active:
        raise named.refused("its annotator knows filtered images alone: name a run without filter")
    if theirs.split.active:
        raise named.refused(
            "that run is itself on one side of a split, and its ledger does not say what that "
            f"cost: name a run about everyone, such as {theirs.split.model}"
        )
    if theirs.privacy.unit != config.privacy.unit:
        raise named.refused(f"it protects a {theirs.privacy.unit}, and this run a user")
    named.check_private(config, theirs)
    return directory, theirs, snapshot
