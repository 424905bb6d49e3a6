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

import simulations
from client.datasets.dataset import Dataset
from client.datasets.registry import load
from models.faults import FAULTS
from models.faults.protocol import Records, Variant
from models.pixels import from_pixels
from server.config.reading import read_config
from server.config.tree import Config
from server.diagnosis.evidence import observed_of
from server.diagnosis.hypotheses import Hypothesis, library
from server.diagnosis.inquiry import Inquiry
from server.diagnosis.reference import Reference, like_all
from server.diagnosis.stand_ins import planned
from server.kept_releases import KeptRelease
from server.schedule import scaled
from studies.bugs.drawing import DrawnDiagnosis, NoisyDraws, Projected
from studies.bugs.held import Crowd
from studies.bugs.plan import CLASSES, SCANS, BugTrial
from studies.framework.errors import StudyError

RECORDS = 10
"""Of each user."""
REFERENCE = 2000
"""Images of the reference, and as many that stand for samples, where there are enough."""
PRESET = Path(simulations.__file__).parent / "presets" / "demo.toml"
PEOPLE = 3
"""Times as many as a run has users, where there are enough images: each run picks its own, so that
runs differ in their users too."""
READ = "warmup critic annotator"
"""Tasks whose releases are read, as `fedlens diagnose` does by default."""
MARGIN = 4 / 3
"""Times as many users are computed with the fault as the largest share needs, so that not all
draws have the same ones."""
STATES_AT = 2.0
"""The ε at which states of later tasks are made, whatever ε the noise is of."""
_ENLARGED = 28


@dataclass(frozen=True, eq=False)
class Cast:
    """Who plays which part: no image is in two of them."""

    people: Records
    """Of whom each run picks its users."""
    reference: Reference
    stand_ins: Reference
    """What states of later tasks are made of."""


def cast_of(dataset: Dataset, users: int, seed: int) -> Cast:
    """Deal a data set's training images out to users, its test images to the other parts.

    Raises:
        StudyError: there are too few training images for so many users.
    """
    source = np.random.default_rng([seed, users])
    needed = users * RECORDS
    count = len(dataset.train_labels)
    if count < needed:
        raise StudyError(
            f"{users} users of {RECORDS} images: {dataset.name} has {count} training images; ask "
            f"for at most {count // RECORDS} users"
        )
    order = source.permutation(count)
    size = min(REFERENCE, len(dataset.test_labels) // 2)
    test = like_all(dataset.test_labels, 2 * size, source)
    own = like_all(dataset.test_labels[test], size, source)
    train = (dataset.train_images, dataset.train_labels)
    public = (dataset.test_images, dataset.test_labels)
    reference = _records(*public, test[own])
    stand_ins = _records(*public, np.delete(test, own))
    people = min(PEOPLE * users, count // RECORDS)
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


def demo_at(epsilon: float, users: int) -> Config:
    """The preset demo for so many users, its whole schedule at this DP ε."""
    config = read_config(PRESET)
    delta = min(config.privacy.delta, 1 / users)
    sized = {"data.users": users, "data.records_per_user": RECORDS, "privacy.delta": delta}
    return scaled(config.updated(sized), epsilon=epsilon, delta=delta)


class BugWorld:
    """One federation beside one reference, at every ε that is asked for."""

    def __init__(
        self, trial: BugTrial, epsilons: Sequence[float], most: float, data_dir: str
    ) -> None:
        """Compute what is compared with, and what sound users release: a minute or two.

        Args:
            trial: any of this world.
            epsilons: those that will be asked for.
            most: the largest share of users that will have a fault.
            data_dir: folder of data files; empty for the usual places.

        Raises:
            StudyError: there are too few images.
            DatasetError: there is no such data.
        """
        cast = cast_of(_loaded(trial.data, data_dir), trial.users, trial.seed)
        people = len(cast.people[1]) // RECORDS
        if trial.question == "earlier" and people < 2 * trial.users:
            raise StudyError(f"{trial.data} has too few images for an earlier run's users too")
        reference = _foreign(trial, data_dir) or cast.reference
        self.reference_images, self._users = len(reference.labels), trial.users
        self._inquiry = inquiry = _inquiry(trial, cast, reference)
        self._draws = {
            epsilon: NoisyDraws(inquiry, reference, noise_at(epsilon, trial.users))
            for epsilon in epsilons
        }
        kept = min(people, math.ceil(trial.users * most * MARGIN))
        self._crowd = Crowd(inquiry, cast.people, kept)

    def smallest_detectable(self, epsilon: float) -> dict[str, float]:
        """By fault, as the diagnosis itself says."""
        return self._draws[epsilon].smallest_detectable

    def least_visible(self, epsilon: float, fault: str) -> float | None:
        """The share below which no reader could find a fault; None where the library lacks it."""
        planted = _planted(fault)
        known = self._inquiry.hypotheses
        return self._draws[epsilon].least_visible(planted) if planted in known else None

    def faulty(self, fault: str) -> Projected:
        """Updates of users with the fault, or of sound ones where it is not named."""
        return self._crowd.faulty(_planted(fault)) if fault else self._crowd.sound

    def drawn(
        self, epsilon: float, faulty: Projected, share: float, seeds: Sequence[int]
    ) -> list[DrawnDiagnosis]:
        """One run a seed, diagnosed."""
        draws = self._draws[epsilon]
        sound, users = self._crowd.sound, self._users
        return [draws.draw(sound, faulty, users, share, seed) for seed in seeds]


def _planted(fault: str) -> Hypothesis:
    variant = Variant(CLASSES.get(FAULTS[fault].takes, ()), FAULTS[fault].amounts[0])
    return Hypothesis(FAULTS[fault], variant)


def _inquiry(trial: BugTrial, cast: Cast, reference: Reference) -> Inquiry:
    difference = trial.question == "earlier"
    left_out = trial.fault if trial.question == "unknown" else ""
    wanted = [
        one for one in library(reference.shape, reference.classes) if one.fault.name != left_out
    ]
    asked = _releases(trial.users, cast, difference=difference)
    observed = replace(observed_of(asked), difference=difference)
    return Inquiry(observed, reference, RECORDS, wanted)


@lru_cache(maxsize=3)
def _loaded(name: str, data_dir: str) -> Dataset:
    return load(name, data_dir or None)


def _foreign(trial: BugTrial, data_dir: str) -> Reference | None:
    if not trial.reference:
        return None
    if trial.reference == SCANS:
        return scans()
    return cast_of(_loaded(trial.reference, data_dir), trial.users, trial.seed).reference


def noise_at(epsilon: float, users: int) -> float:
    """How much noise a run at this ε adds, relative to one at `STATES_AT`; all tasks alike."""
    own, base = (demo_at(e, users).planned["warmup"] for e in (epsilon, STATES_AT))
    return float(own.noise_multiplier / base.noise_multiplier)


def _releases(users: int, cast: Cast, *, difference: bool) -> list[KeptRelease]:
    """How a run asks, in states that stand-ins make at ε = `STATES_AT`."""
    config = demo_at(STATES_AT, users)
    found = planned(config.updated({"schedule": READ, "release.agreement": 0.0}), cast.stand_ins)
    if not difference:
        return found
    # two runs' warm-ups are subtracted: both have noise; later tasks never ask the same twice
    first = [one for one in found if one.request.kind == "frozen"]
    return [replace(one, deviation=one.deviation * math.sqrt(2)) for one in first]
