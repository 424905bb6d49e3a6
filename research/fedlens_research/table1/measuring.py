"""Everything that is measured of a trial. Real images are used here, and nowhere else in a study.

Nothing of it flows back: no generator, annotator, sample or choice of either depends on it.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedlens.data.registry import Dataset, spec_of
from fedlens.models.shapes import as_pixels
from fedlens.simulations.plots.run import contact_sheet
from fedlens.simulations.students.distillation import (
    Source,
    Teacher,
    training_set,
    varied_samples,
)
from fedlens.simulations.students.students import ARCHITECTURES, predict, train_student
from fedlens_research.framework.trials import Report
from fedlens_research.metrics.generation import coverage_and_density, frechet_distance
from fedlens_research.table1.controls import NoiseTeacher
from fedlens_research.table1.evaluation import EvaluationBudget
from fedlens_research.table1.judges import (
    JudgeNet,
    features_of,
    orientation_judge,
    recogniser,
    test_tensors,
    training_tensors,
)
from fedlens_research.table1.label_curve import label_curve

CONTROL_STUDENT = "cnn"
DRAW_SEED = 5_000_011


class Measuring:
    """The measurements of one trial, over one sampler."""

    def __init__(
        self, sampler: Source, dataset: Dataset, effort: EvaluationBudget, seed: int, judges: Path
    ) -> None:
        """Take what is measured and what it is measured against.

        The clean data's test images measure, its training images train the judges, which
        ``judges`` keeps.
        """
        self._sampler, self._dataset, self._effort, self._seed = sampler, dataset, effort, seed
        self._test = test_tensors(dataset)
        spec = spec_of(dataset.name)
        self._augmentation, self._distortion = spec.augmentation, spec.distortion
        self._judge = recogniser(dataset, judges, effort.recogniser_epochs)
        self._orientation = orientation_judge(dataset, judges, effort.orientation_epochs)
        self._teacher = _teacher(sampler)
        self._draws = seed * 1_000 + DRAW_SEED
        self._drawn: Tensor | None = None

    def all(self, *, curve: bool, sheet: Path, caption: str, report: Report) -> dict[str, Any]:
        """Every figure of the trial as a JSON object; writes its contact sheet with a caption."""
        started = time.perf_counter()
        found: dict[str, Any] = {"taught": self._teacher is not None}
        report("judging samples")
        found |= self.judged()
        self.draw_sheet(sheet, caption)
        report("students of requested classes")
        found["own_label"] = self.own_labels(CONTROL_STUDENT)
        report("taught students")
        found["students"] = self.students(found["own_label"])
        report("control")
        found["control"], found["annotator"] = self.control(), self.annotator()
        if curve:
            report("students of few labels")
            found["curve"] = [point._asdict() for point in self.curve()]
        return {**found, "seconds": round(time.perf_counter() - started, 1)}

    def judged(self) -> dict[str, Any]:
        """What networks trained on real images say of samples, and of real test images."""
        labels = torch.arange(self._effort.judged) % self._sampler.classes
        images = self._samples(len(labels))
        seen = predict(self._judge, images).argmax(1)
        real, truth = self._test
        return {
            "recognised": _share(seen == labels),
            "recognised_per_class": [
                _share(seen[labels == c] == c) for c in range(self._sampler.classes)
            ],
            "recognised_real": _share(predict(self._judge, real).argmax(1) == truth),
            **_distances(self._judge, real[: len(images)], images),
            "judged_rotated": self._rotated(images),
            "judged_rotated_real": self._rotated(real),
            **self._unfiltered(labels),
        }

    def _samples(self, count: int) -> Tensor:
        """So many samples [count, c, h, w] of the classes in turn; drawn once."""
        if self._drawn is None or len(self._drawn) < count:
            most = max(self._effort.judged, *self._effort.labels)
            self._drawn = self._sampler.draw(
                torch.arange(most) % self._sampler.classes, self._draws
            )
        return self._drawn[:count]

    def _unfiltered(self, labels: Tensor) -> dict[str, float]:
        """The same of the generator's samples before the annotator picks among them."""
        whole = getattr(self._sampler, "unfiltered", None)
        if whole is None:
            return {}
        images = whole().draw(labels, self._draws)
        recognised = _share(predict(self._judge, images).argmax(1) == labels)
        rotated = self._rotated(images)
        return {"recognised_unfiltered": recognised, "judged_rotated_unfiltered": rotated}

    def _rotated(self, images: Tensor) -> float:
        return _share(predict(self._orientation, images).argmax(1) == 1)

    def real_reference(self) -> dict[str, float]:
        """The same distances with real training images in the samples' place."""
        images, _ = training_tensors(self._dataset)
        real, _ = self._test
        source = torch.Generator().manual_seed(self._seed)
        drawn = images[torch.randperm(len(images), generator=source)[: self._effort.judged]]
        return _distances(self._judge, real[: len(drawn)], drawn)

    def students(self, own_label: float) -> dict[str, float]:
        """Accuracy of each architecture, taught where there is an annotator to teach."""
        if self._teacher is None:
            others = (a for a in ARCHITECTURES if a != CONTROL_STUDENT)
            return {CONTROL_STUDENT: own_label, **{a: self.own_labels(a) for a in others}}
        images, targets = self._taught(self._teacher)
        return {a: self._student(images, targets, a) for a in ARCHITECTURES}

    def _taught(self, teacher: Teacher) -> tuple[Tensor, Tensor]:
        return training_set(
            teacher, images=self._effort.images, seed=self._draws,
            augmentation=self._augmentation, distortion=self._distortion,
        )  # fmt: skip

    def own_labels(self, architecture: str) -> float:
        """Accuracy of a student of samples and changed samples with their requested classes."""
        images, augmentation = self._effort.images, self._augmentation
        varied = varied_samples(
            self._sampler, images=images, seed=self._draws, augmentation=augmentation
        )
        return self._student(*varied, architecture)

    def control(self) -> float | None:
        """Accuracy of a student taught on noise images by the same annotator."""
        if self._teacher is None:
            return None
        taught = self._taught(NoiseTeacher(self._teacher, self._dataset.shape))
        return self._student(*taught, CONTROL_STUDENT)

    def annotator(self) -> float | None:
        """Accuracy of the annotator itself."""
        if self._teacher is None:
            return None
        images, labels = self._test
        found = [self._teacher.label(part).argmax(1) for part in torch.split(images, 1000)]
        return _share(torch.cat(found) == labels)

    def curve(self) -> list[Any]:
        """Accuracy against the number of labelled samples."""
        samples = self._samples(max(self._effort.labels))
        return label_curve(
            samples, self._sampler.classes, self._judge, self._test, effort=self._effort,
            seed=self._draws, augmentation=self._augmentation,
        )  # fmt: skip

    def draw_sheet(self, path: Path, caption: str) -> None:
        """Write a contact sheet: a column a class."""
        labels = torch.arange(self._sampler.classes).repeat(self._effort.sheet)
        images = as_pixels(self._sampler.draw(labels, self._draws))
        contact_sheet(images, labels.numpy(), rows=self._effort.sheet, caption=caption, path=path)

    def _student(self, images: Tensor, targets: Tensor, architecture: str) -> float:
        return train_student(
            images, targets, *self._test, classes=self._sampler.classes, architecture=architecture,
            epochs=self._effort.epochs[architecture], seed=self._seed,
        ).accuracy  # fmt: skip


def _distances(judge: JudgeNet, real: Tensor, others: Tensor) -> dict[str, float]:
    there, here = features_of(judge, real), features_of(judge, others)
    cover = coverage_and_density(there, here)
    return {"frechet": frechet_distance(there, here), **cover._asdict()}


def _teacher(sampler: Source) -> Teacher | None:
    """The sampler as a teacher, if it has an annotator."""
    if not hasattr(sampler, "label"):
        return None
    try:
        sampler.label(sampler.draw(torch.zeros(1, dtype=torch.int64), 0))
    except ValueError:
        return None
    return sampler  # type: ignore[return-value]


def _share(hits: Tensor) -> float:
    return float(hits.float().mean())
