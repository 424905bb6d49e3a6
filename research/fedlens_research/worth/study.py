"""Runs of several sizes and ε over a data set: their own verdict beside what is true of them.

Simulation only: a judge and students are tested on real images, which is in no budget.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
import torch

from fedlens.api.simulations import SimulationSettings, prepare, train
from fedlens.data.registry import Dataset, load
from fedlens.models.shapes import from_pixels
from fedlens.simulations.engine import measure_taught_student
from fedlens.simulations.run_artifacts import fresh_samples, kept_sampler
from fedlens.simulations.students.students import StudentResult, predict, train_student
from fedlens.store.worth import RECOGNISED, figure_of, signal_of

SAMPLES, SEED = 2000, 8_000_003
JUDGE_EPOCHS = 3
TAUGHT_IMAGES, TAUGHT_EPOCHS = 12_000, 2


@dataclass(frozen=True)
class WorthRow:
    """One run: what it said of itself, and what is true."""

    data: str
    users: int
    epsilon: float
    classes: int
    worth: str
    signal: float
    recognised: float
    fidelity: float
    student: float
    """Accuracy on real test images of a student that its annotator taught."""
    majority: float
    """Accuracy of always saying the commonest class."""
    real: float
    """Accuracy of a network that learned from the real training images."""
    judged: float
    """Of how many samples that network finds the class that was asked for."""

    @property
    def skill(self) -> float:
        """The student's way from guessing to the real network, 0 to 1."""
        return (self.student - self.majority) / max(1e-9, self.real - self.majority)


@dataclass(frozen=True)
class WorthPlan:
    """Which runs are trained: every data set with every number of users and every ε."""

    data: tuple[str, ...]
    users: tuple[int, ...]
    epsilons: tuple[float, ...]
    preset: str
    settings: dict[str, object]
    out: Path

    def rows(self) -> Iterator[WorthRow]:
        """Each run's row; those that are in the folder already are read, not trained again."""
        for name in self.data:
            dataset = load(name)
            held = len(np.unique(dataset.user_ids)) if dataset.user_ids is not None else None
            judge = cache(partial(_judge, dataset))
            for users in sorted({min(users, held or users) for users in self.users}):
                for epsilon in self.epsilons:
                    yield self._row(name, dataset, users, epsilon, judge)

    def _row(
        self,
        name: str,
        dataset: Dataset,
        users: int,
        epsilon: float,
        judge: Callable[[], StudentResult],
    ) -> WorthRow:
        label = f"{Path(name.partition(':')[2] or name).stem}-{users}-{epsilon:g}"
        kept = self.out / f"{label}.json"
        if kept.exists():
            return WorthRow(**json.loads(kept.read_text(encoding="utf-8")))
        scheme = "iid" if dataset.user_ids is None else "column"
        where = {"data.name": name, "data.users": users, "data.scheme": scheme}
        asked = SimulationSettings(
            self.preset, {**self.settings, **where}, epsilon=epsilon, student=False
        )
        config = asked.configuration()
        place = prepare(config, label, out=self.out / label, overwrite=True)
        summary = train(config, place.directory, asked, None).summary
        taught = measure_taught_student(
            config, place.directory, images=TAUGHT_IMAGES, epochs=TAUGHT_EPOCHS
        )
        images, labels = fresh_samples(kept_sampler(place.directory), SAMPLES, SEED)
        found = judge()
        row = WorthRow(
            data=label.rsplit("-", 2)[0],
            users=users,
            epsilon=epsilon,
            classes=dataset.classes,
            worth=summary.worth,
            signal=signal_of(summary.fidelity),
            recognised=summary.fidelity.get(RECOGNISED, 0.0),
            fidelity=figure_of(summary.fidelity),
            student=taught.accuracy,
            majority=float(np.bincount(dataset.test_labels).max() / len(dataset.test_labels)),
            real=found.accuracy,
            judged=float((predict(found.model, images).argmax(1) == labels).float().mean()),
        )
        kept.write_text(json.dumps(asdict(row)), encoding="utf-8")
        return row


def _judge(dataset: Dataset) -> StudentResult:
    """A network that learned from the real images."""
    return train_student(
        from_pixels(dataset.train_images),
        torch.from_numpy(dataset.train_labels.copy()),
        from_pixels(dataset.test_images),
        torch.from_numpy(dataset.test_labels.copy()),
        classes=dataset.classes,
        epochs=JUDGE_EPOCHS,
    )


NOISE_SKILL, GOOD_SKILL = 0.1, 0.5
"""Skill of a student below which a run is noise in truth, and from which it is good."""


def wrong_verdicts(rows: Sequence[WorthRow]) -> dict[str, tuple[int, int]]:
    """How many runs the verdict is wrong about, of how many.

    Returns:
        ``noise called something else``: of runs that are noise in truth; ``good called noise``: of
        runs that are good in truth.
    """
    noise = [row for row in rows if row.skill < NOISE_SKILL]
    good = [row for row in rows if row.skill >= GOOD_SKILL]
    return {
        "noise called something else": (sum(r.worth != "noise" for r in noise), len(noise)),
        "good called noise": (sum(r.worth == "noise" for r in good), len(good)),
    }
