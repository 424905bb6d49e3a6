"""Federations to draw from: users, a reference and stand-ins for samples that share no image."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor

from fedlens import simulations
from fedlens.data.dataset import Dataset
from fedlens.diagnosis.evidence import observed_of
from fedlens.diagnosis.expected import Matrix
from fedlens.diagnosis.hypotheses import library
from fedlens.diagnosis.inquiry import Inquiry
from fedlens.diagnosis.reference import Reference, like_all
from fedlens.diagnosis.stand_ins import planned
from fedlens.models.faults.protocol import Records
from fedlens.models.shapes import from_pixels
from fedlens.server.config.loading import read_config
from fedlens.server.config.schedule import scaled
from fedlens.server.config.tree import Config
from fedlens.server.round.releases import ArchivedRelease
from fedlens_research.bugs.drawing import DrawnDiagnosis, NoisyDraws
from fedlens_research.bugs.held import Crowd
from fedlens_research.bugs.outsiders import planted
from fedlens_research.bugs.plan import DELTA, SCANS, BugTrial
from fedlens_research.bugs.writers import WRITERS, data_set
from fedlens_research.framework.errors import StudyError

RECORDS = 10
"""Of each user."""
REFERENCE = 2000
"""Images of the reference, and as many that stand for samples, where there are enough."""
PRESET = Path(simulations.__file__).parent / "presets" / "demo.toml"
PEOPLE = 3
"""Times as many as a small run has users, where there are enough images: each run picks its own, so
that runs differ in their users too."""
READ = "card warmup critic annotator"
"""Tasks whose releases are read, as `fedlens diagnose` does by default."""
MARGIN = 4 / 3
"""Times as many users are computed with the fault as the largest share needs, so that not all
draws have the same ones."""
GROUP = 10
"""People who take part, and have a fault, together: only sums over users are ever released, and one
sum for ten people is a tenth of the work. Writers who are known are few: each takes part alone."""
STATES_AT = 2.0
"""The ε at which states of later tasks are made, whatever ε the noise is of."""
_ENLARGED = 28


def group_of(data: str) -> int:
    """People of a data set who take part together."""
    return 1 if data in WRITERS else GROUP


@dataclass(frozen=True, eq=False)
class Cast:
    """Who plays which part: no image is in two of them."""

    people: Records
    """Of whom each run picks its users."""
    reference: Reference
    stand_ins: Reference
    """What states of later tasks are made of."""


def cast_of(dataset: Dataset, sizes: Sequence[int], seed: int) -> Cast:
    """Deal a data set's training images out to people, its test images to the other parts.

    Args:
        dataset: whose images.
        sizes: of the federations that pick their users among the people.
        seed: of who plays which part.

    Raises:
        StudyError: there are too few training images for so many users.
    """
    users, count = max(sizes), len(dataset.train_labels)
    source = np.random.default_rng([seed, users])
    if count < users * RECORDS:
        raise StudyError(
            f"{users} users of {RECORDS} images: {dataset.name} has {count} training images; ask "
            f"for at most {count // RECORDS} users"
        )
    people = min(max(PEOPLE * min(sizes), round(MARGIN * users)), count // RECORDS)
    order = source.permutation(count)
    if dataset.name in WRITERS:  # whole people, one after another
        order = source.permutation(count // RECORDS)[:, None] * RECORDS + np.arange(RECORDS)
        order = order.flatten()
    size = min(REFERENCE, len(dataset.test_labels) // 2)
    test = like_all(dataset.test_labels, 2 * size, source)
    own = like_all(dataset.test_labels[test], size, source)
    train = (dataset.train_images, dataset.train_labels)
    public = (dataset.test_images, dataset.test_labels)
    reference = _records(*public, test[own])
    stand_ins = _records(*public, np.delete(test, own))
    return Cast(
        people=_records(*train, order[: people * RECORDS]),
        reference=Reference(dataset.name, *reference, dataset.classes, len(dataset.test_labels)),
        stand_ins=Reference("stand-ins", *stand_ins, dataset.classes),
    )


def _records(
    images: np.ndarray[tuple[int, ...], np.dtype[np.uint8]],
    labels: np.ndarray[tuple[int, ...], np.dtype[np.int64]],
    rows: np.ndarray[tuple[int, ...], np.dtype[np.int64]],
) -> tuple[Tensor, Tensor]:
    return from_pixels(images[rows]), torch.from_numpy(labels[rows].copy())


def scans() -> Reference:
    """Digits of scikit-learn, 1,797 of 8 x 8 pixels, enlarged: another source of the classes."""
    found = load_digits()
    images = torch.from_numpy(found.images).float()[:, None] / 8 - 1
    size = (_ENLARGED, _ENLARGED)
    large = torch.nn.functional.interpolate(images, size=size, mode="bilinear")
    return Reference(SCANS, large.clamp(-1, 1), torch.from_numpy(found.target).long(), 10)


def demo_at(epsilon: float, users: int, delta: float) -> Config:
    """The preset demo for so many users, its whole schedule at this DP guarantee."""
    config, delta = read_config(PRESET), min(delta, 1 / users)
    sized = {"data.users": users, "data.records_per_user": RECORDS, "privacy.delta": delta}
    return scaled(config.updated(sized), epsilon=epsilon, delta=delta)


class BugWorld:
    """One set of people beside one reference: runs of every size, at every ε that is asked for."""

    def __init__(self, trials: Sequence[BugTrial], data_dir: str) -> None:
        """Compute what is compared with, and what sound people release: a minute or two.

        Args:
            trials: all that will be asked for, of one world.
            data_dir: folder of data files; empty for the usual places.

        Raises:
            StudyError: there are too few images.
            DatasetError: there is no such data.
        """
        first, sizes = trials[0], sorted({trial.users for trial in trials})
        cast = cast_of(_loaded(first.data, data_dir), sizes, first.seed)
        people = len(cast.people[1]) // RECORDS
        if first.question == "earlier" and people < 2 * sizes[-1]:
            raise StudyError(f"{first.data} has too few images for an earlier run's users too")
        reference = _foreign(first, data_dir) or cast.reference
        self.reference_images, self._data_dir = len(reference.labels), data_dir
        self._inquiry = inquiry = _inquiry(sizes[0], first, cast, reference)
        group = group_of(first.data)
        base = noise_at(STATES_AT, sizes[0], DELTA)
        self._draws = {
            kind: NoisyDraws(inquiry, reference, noise_at(*kind) / base, kind[1], group)
            for kind in {(trial.epsilon, trial.users, trial.delta) for trial in trials}
        }
        most = max(share * trial.users for trial in trials for share in trial.shares)
        kept = min(people, math.ceil(most * MARGIN))
        self._crowd = Crowd(inquiry, cast.people, kept, group)

    def smallest_detectable(self, trial: BugTrial) -> dict[str, float]:
        """By fault, as the diagnosis itself says."""
        return self._of(trial).smallest_detectable

    def least_visible(self, trial: BugTrial) -> float | None:
        """The share below which no reader could find a fault; None where the library lacks it."""
        asked = planted(trial.fault, self._data_dir)
        return self._of(trial).least_visible(asked) if asked in self._inquiry.hypotheses else None

    def faulty(self, fault: str) -> Matrix:
        """Updates of people with the fault, or of sound ones where it is not named."""
        if not fault:
            return self._crowd.sound
        return self._crowd.faulty(planted(fault, self._data_dir))

    def drawn(
        self, trial: BugTrial, faulty: Matrix, share: float, seeds: Sequence[int]
    ) -> list[DrawnDiagnosis]:
        """One run a seed, diagnosed."""
        draws, sound = self._of(trial), self._crowd.sound
        without = trial.fault if trial.question == "unknown" else ""
        return [draws.draw(sound, faulty, share, seed, without) for seed in seeds]

    def _of(self, trial: BugTrial) -> NoisyDraws:
        return self._draws[trial.epsilon, trial.users, trial.delta]


def _inquiry(users: int, trial: BugTrial, cast: Cast, reference: Reference) -> Inquiry:
    difference = trial.question == "earlier"
    asked = _releases(users, cast, difference=difference)
    observed = replace(observed_of(asked), difference=difference)
    return Inquiry(observed, reference, RECORDS, library(reference.shape, reference.classes))


@lru_cache(maxsize=3)
def _loaded(name: str, data_dir: str) -> Dataset:
    return data_set(name, data_dir)


def _foreign(trial: BugTrial, data_dir: str) -> Reference | None:
    if not trial.reference:
        return None
    if trial.reference == SCANS:
        return scans()
    return cast_of(_loaded(trial.reference, data_dir), [trial.users], trial.seed).reference


def noise_at(epsilon: float, users: int, delta: float) -> float:
    """Noise in the mean of such a run; all tasks change alike with it."""
    task = demo_at(epsilon, users, delta).planned["warmup"]
    return float(task.noise_multiplier) / users


def _releases(users: int, cast: Cast, *, difference: bool) -> list[ArchivedRelease]:
    """How a run asks, in states that stand-ins make at ε = `STATES_AT`."""
    config = demo_at(STATES_AT, users, DELTA)
    found = planned(config.updated({"schedule": READ, "release.agreement": 0.0}), cast.stand_ins)
    if not difference:
        return found
    # two runs' warm-ups are subtracted: both have noise; later tasks never ask the same twice
    first = [one for one in found if one.request.kind == "frozen"]
    return [replace(one, deviation=one.deviation * math.sqrt(2)) for one in first]
