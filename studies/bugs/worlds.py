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
from server.diagnosis.hypotheses import Hypothesis
from server.diagnosis.reference import LEAST_USERS, Reference
from server.diagnosis.stand_ins import planned
from server.kept_releases import KeptRelease
from server.schedule import scaled
from studies.benchmarks.bug_draws import BugDraws, DrawnDiagnosis, Projected
from studies.bugs.held import projected
from studies.bugs.plan import CLASSES, SCANS, BugTrial
from studies.framework.errors import StudyError

RECORDS = 10
"""Of each user."""
REFERENCE = 2000
"""Images of the reference, and as many that stand for samples, where there are enough."""
PRESET = Path(simulations.__file__).parent / "presets" / "demo.toml"
READ = "warmup critic"
"""Tasks whose releases are read, as `fedlens diagnose` does by default; the annotator's share of
the budget is spent and not read."""
MARGIN = 4 / 3
"""Times as many users are computed with the fault as the largest share needs, so that not all
draws have the same ones."""
STATES_AT = 2.0
"""The ε at which states of later tasks are made, whatever ε the noise is of."""
SOME = LEAST_USERS * RECORDS
"""Images of the users that scaling is checked with."""
_ENLARGED = 28


@dataclass(frozen=True, eq=False)
class Cast:
    """Who plays which part: no image is in two of them."""

    users: Records
    earlier: Records | None
    """Users of an earlier run; None where there are too few images."""
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
    test = source.permutation(len(dataset.test_labels))
    size = min(REFERENCE, len(test) // 2)
    train = (dataset.train_images, dataset.train_labels)
    public = (dataset.test_images, dataset.test_labels)
    reference = _records(*public, test[:size])
    stand_ins = _records(*public, test[size : 2 * size])
    again = order[needed : 2 * needed]
    return Cast(
        users=_records(*train, order[:needed]),
        earlier=_records(*train, again) if len(again) == needed else None,
        reference=Reference(dataset.name, *reference, dataset.classes),
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
    """One federation beside one reference, at every ε that is asked for.

    Users' updates are computed once, in units of the first ε's noise: those of another ε are the
    same over the square of how much larger its noise is, for users and what they are compared with
    are both in units of it.
    """

    def __init__(self, trial: BugTrial, epsilons: Sequence[float], data_dir: str) -> None:
        """Compute what is compared with: half a minute for each ε.

        Args:
            trial: any of this world.
            epsilons: those that will be asked for.
            data_dir: folder of data files; empty for the usual places.

        Raises:
            StudyError: there are too few images.
            DatasetError: there is no such data.
        """
        cast = cast_of(_loaded(trial.data, data_dir), trial.users, trial.seed)
        difference = trial.question == "earlier"
        if difference and cast.earlier is None:
            raise StudyError(f"{trial.data} has too few images for an earlier run's users too")
        reference = _foreign(trial, data_dir) or cast.reference
        self._images = len(reference.labels)
        left_out = trial.fault if trial.question == "unknown" else ""
        users = cast.users
        if difference and cast.earlier is not None:
            images, labels = (torch.cat(pair) for pair in zip(users, cast.earlier, strict=True))
            users = (images, labels)
        asked = _releases(trial.users, cast, difference=difference)
        noises = {epsilon: noise_at(epsilon, trial.users) for epsilon in epsilons}
        self._users, self._first = users, epsilons[0]
        self._draws: dict[float, BugDraws] = {}
        for epsilon, noise in noises.items():
            scaled_ = [replace(one, deviation=one.deviation * noise) for one in asked]
            self._draws[epsilon] = BugDraws(
                scaled_, reference, users, RECORDS, left_out, difference=difference
            )
        self._factors = {e: (noises[self._first] / noises[e]) ** 2 for e in epsilons}
        everyone, self._count = self._projected(users), trial.users
        self._check(everyone)
        before = everyone[self._count :]
        self._shift = before.mean(0) if difference else np.zeros(everyone.shape[1])
        self._sound = everyone[: self._count] - self._shift

    def _check(self, everyone: Projected) -> None:
        """That scaling is right: a few users computed anew at every ε.

        Raises:
            StudyError: a diagnosis looks at releases in a way that does not scale with their noise.
        """
        few = (self._users[0][:SOME], self._users[1][:SOME])
        for epsilon, draws in self._draws.items():
            anew = projected(draws, few)
            taken = everyone[: len(anew)] * self._factors[epsilon]
            if not np.allclose(anew, taken, rtol=1e-2, atol=1e-3 * np.abs(anew).max()):
                raise StudyError(f"updates at ε = {epsilon:g} are not those of another ε scaled")

    @property
    def reference_images(self) -> int:
        """How many images are compared with."""
        return self._images

    def smallest_detectable(self, epsilon: float) -> dict[str, float]:
        """By fault, as the diagnosis itself says."""
        return self._draws[epsilon].smallest_detectable

    def faulty(self, fault: str, share: float) -> Projected:
        """Updates of as many users with the fault as draws of this share need, for `drawn`."""
        if not fault:
            return self._sound
        chosen = CLASSES.get(FAULTS[fault].takes, ())
        most = min(self._count, math.ceil(self._count * share * MARGIN))
        variant = Variant(chosen, FAULTS[fault].amounts[0])
        last = most * RECORDS
        some = (self._users[0][:last], self._users[1][:last])
        return self._projected(some, Hypothesis(FAULTS[fault], variant)) - self._shift

    def _projected(self, users: Records, planted: Hypothesis | None = None) -> Projected:
        return projected(self._draws[self._first], users, planted)

    def drawn(
        self, epsilon: float, faulty: Projected, share: float, seeds: Sequence[int]
    ) -> list[DrawnDiagnosis]:
        """One run a seed, diagnosed."""
        factor = self._factors[epsilon]
        sound, changed = self._sound * factor, faulty * factor
        return [self._draws[epsilon].draw(sound, changed, share, seed) for seed in seeds]


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
