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
from fedlens.data.stand_in import stand_in_name
from fedlens.models.shapes import from_pixels
from fedlens.server.config.tree import Config
from fedlens.server.run.directory import RunDirectory
from fedlens.simulations.engine import Summary, measure_taught_student
from fedlens.simulations.run_artifacts import fresh_samples, kept_sampler
from fedlens.simulations.students.students import StudentResult, predict, train_student
from fedlens.store.worth import RECOGNISED, figure_of, signal_of

SAMPLES, SEED = 2000, 8_000_003
JUDGE_EPOCHS, JUDGE_IMAGES = 3, 60_000
"""Passes over the real images: these, or as many as make so many images in all."""
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
    rehearsed: float | None = None
    """Accuracy of such a student in the run's rehearsal on public digits; None: there was none."""

    @property
    def shown(self) -> float:
        """Share of samples that show the class that was asked for, beyond chance."""
        return (self.judged - 1 / self.classes) / (1 - 1 / self.classes)


@dataclass(frozen=True)
class WorthPlan:
    """Which runs are trained: every data set with every number of users and every ε."""

    data: tuple[str, ...]
    users: tuple[int, ...]
    epsilons: tuple[float, ...]
    preset: str
    settings: dict[str, object]
    out: Path
    rehearse: bool = False
    """Whether each is rehearsed too, on public digits that stand in for its data."""

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
        run = self._trained(label, epsilon, where)
        rehearsal = None
        if self.rehearse:
            stand_in = _stand_in(dataset, users, run.config.data.samples_per_user)
            rehearsal = self._trained(f"{label}-rehearsal", epsilon, stand_in).student
        summary = run.summary
        images, labels = fresh_samples(kept_sampler(run.place), SAMPLES, SEED)
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
            student=run.student,
            majority=float(np.bincount(dataset.test_labels).max() / len(dataset.test_labels)),
            real=found.accuracy,
            judged=float((predict(found.model, images).argmax(1) == labels).float().mean()),
            rehearsed=rehearsal,
        )
        kept.write_text(json.dumps(asdict(row)), encoding="utf-8")
        return row

    def _trained(self, label: str, epsilon: float, where: dict[str, object]) -> _Trained:
        """A run over such data, and a student that its annotator taught."""
        asked = SimulationSettings(
            self.preset, {**self.settings, **where}, epsilon=epsilon, student=False
        )
        config = asked.configuration()
        place = prepare(config, label, out=self.out / label, overwrite=True).directory
        summary = train(config, place, asked, None).summary
        taught = measure_taught_student(config, place, images=TAUGHT_IMAGES, epochs=TAUGHT_EPOCHS)
        return _Trained(config, place, summary, taught.accuracy)


@dataclass(frozen=True)
class _Trained:
    """A run that is done."""

    config: Config
    place: RunDirectory
    summary: Summary
    student: float


def _stand_in(dataset: Dataset, users: int, most: int) -> dict[str, object]:
    """Settings of a rehearsal: as many people, records of each, classes, and pixels."""
    held = max(1, round(len(dataset.train_labels) / users))
    held = min(held, most) if most else held
    channels, side, _ = dataset.train_images.shape[1:]
    return {
        "data.name": stand_in_name(side, channels, dataset.classes, users * held),
        "data.users": users,
        "data.samples_per_user": held,
        "data.scheme": "iid",
    }


def _judge(dataset: Dataset) -> StudentResult:
    """A network that learned from the real images."""
    return train_student(
        from_pixels(dataset.train_images),
        torch.from_numpy(dataset.train_labels.copy()),
        from_pixels(dataset.test_images),
        torch.from_numpy(dataset.test_labels.copy()),
        classes=dataset.classes,
        epochs=max(JUDGE_EPOCHS, round(JUDGE_IMAGES / len(dataset.train_labels))),
    )


NOISE_SHOWN, GOOD_SHOWN = 0.15, 0.5
"""Share of samples that show their class, beyond chance, below which a run is noise in truth, and
from which it is good."""


def wrong_verdicts(rows: Sequence[WorthRow]) -> dict[str, tuple[int, int]]:
    """How many runs the verdict is wrong about, of how many.

    Returns:
        ``noise called something else``: of runs that are noise in truth; ``good called noise``: of
        runs that are good in truth.
    """
    noise = [row for row in rows if row.shown < NOISE_SHOWN]
    good = [row for row in rows if row.shown >= GOOD_SHOWN]
    return {
        "noise called something else": (sum(r.worth != "noise" for r in noise), len(noise)),
        "good called noise": (sum(r.worth == "noise" for r in good), len(good)),
    }


WITHIN = 0.05


def rehearsed_within(rows: Sequence[WorthRow]) -> tuple[int, int]:
    """Of how many rehearsals the student was within `WITHIN` of the run's own, of how many."""
    off = [abs(row.rehearsed - row.student) for row in rows if row.rehearsed is not None]
    return sum(one <= WITHIN for one in off), len(off)
