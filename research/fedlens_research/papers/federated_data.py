"""What the study of a run with a filter attacks: its images, raw and filtered, and its samples.

Everything here is simulation only: it reads images and sensitive attributes of users, and images
that no user holds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from fedlens.models.shapes import from_pixels
from fedlens.privatizers.attacks.attack_runs import released
from fedlens.privatizers.private_data import PrivateData
from fedlens.server.config.tree import Config
from fedlens.server.generation.sampler import Sampler
from fedlens.server.learning.privatizer import kept_filter_weights
from fedlens.server.run.directory import RunDirectory
from fedlens.simulations.federation.apps import (
    hiding_users,
    simulated_federation,
    simulated_sensitive,
)
from fedlens.simulations.run_artifacts import kept_run_filter, kept_sampler
from fedlens_research.framework.errors import StudyError

MOST = 6000  # Images that attackers are trained on, or a group is represented by, at most


@dataclass(frozen=True, eq=False)
class FilteredRun:
    """A finished run with the data that it was simulated on."""

    config: Config
    network: nn.Module
    sampler: Sampler | None  # None where the run makes a filter and nothing else
    attack: PrivateData  # Images that no user holds, raw
    test: PrivateData
    seed: int
    known: PrivateData  # Every image that no user holds: attackers who have the filter learn here

    def filtered(self, data: PrivateData, *, hides: bool = True) -> PrivateData:
        """The same data through the trained filter, with noise of its own."""
        return released(self.network, data, self.seed + len(data), choice=float(hides))


def opened(config: Config, directory: RunDirectory, seed: int) -> FilteredRun:
    """A finished run, ready to be attacked.

    Raises:
        StudyError: it has no whole round, or hides nothing.
    """
    snapshot, sensitive = directory.load_state(), simulated_sensitive(config)
    if snapshot is None or sensitive is None:
        raise StudyError(f"{directory.path} holds no run with a privatizer: train one first")
    dataset, dealt = simulated_federation(config.data, config.seed)
    test = private_images(dataset.test_images, dataset.test_labels, sensitive.test, dataset.classes)
    free = np.setdiff1d(np.arange(len(dataset.train_labels)), dealt.indices)
    if len(free):
        known = private_images(
            dataset.train_images[free],
            dataset.train_labels[free],
            sensitive.train[free],
            dataset.classes,
        )
    else:  # every training image is some user's: the test set serves for both
        known, test = halves(test, seed)
    attack = known.take(slice(0, MOST))
    if kept_filter_weights(config, snapshot.arrays) is None:
        raise StudyError(f"{directory.path} ended before it had a filter: give it a larger budget")
    network, _ = kept_run_filter(directory.path)
    sampler = kept_sampler(directory) if generates(config) else None
    return FilteredRun(config, network, sampler, attack, test, seed, known)


def generates(config: Config) -> bool:
    """Whether a run has a generator that learned something, and so samples."""
    return bool(config.critics)


def samples_of(trained: FilteredRun, count: int) -> PrivateData:
    """Samples of all pairs of class and sensitive attribute, with what was asked for."""
    if trained.sampler is None:
        raise StudyError("this run makes a filter and nothing else: it has no samples")
    sensitive_classes = trained.attack.sensitive_classes
    asked = torch.arange(count) % trained.sampler.classes
    images = trained.sampler.draw(asked, trained.seed + 1)
    return replace(
        trained.attack,
        records=images,
        utility=asked // sensitive_classes,
        sensitive=asked % sensitive_classes,
    )


def groups_of(trained: FilteredRun) -> dict[str, tuple[PrivateData, PrivateData]]:
    """Released images of users by what they chose, each in two halves; none if no user consents."""
    hides = hiding_users(trained.config)
    sensitive = simulated_sensitive(trained.config)
    if hides is None or sensitive is None:
        return {}
    dataset, dealt = simulated_federation(trained.config.data, trained.config.seed)
    owners = np.repeat(np.arange(dealt.users), dealt.sizes)

    def held(chosen: np.ndarray) -> PrivateData:
        rows = dealt.indices[chosen[owners]][:MOST]
        labels = dataset.train_labels[rows]
        return private_images(
            dataset.train_images[rows], labels, sensitive.train[rows], dataset.classes
        )

    shown = {
        "consenting": trained.filtered(held(~hides), hides=False),
        "observed": trained.filtered(held(hides)),
        "unobserved": trained.filtered(trained.test),
    }
    return {name: halves(data, trained.seed) for name, data in shown.items()}


def halves(data: PrivateData, seed: int) -> tuple[PrivateData, PrivateData]:
    """The records in two halves, dealt at random."""
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))
    return data.take(order[: len(data) // 2]), data.take(order[len(data) // 2 :])


def private_images(
    images: np.ndarray, labels: np.ndarray, sensitive: np.ndarray, classes: int
) -> PrivateData:
    """Images uint8 [n, c, h, w] with their classes and sensitive attributes, in [-1, 1]."""
    utility, attribute = (torch.from_numpy(values.copy()) for values in (labels, sensitive))
    counts = classes, int(sensitive.max()) + 1
    records = from_pixels(images)
    return PrivateData("images", records, utility, attribute, None, None, *counts, -1.0, 1.0)
