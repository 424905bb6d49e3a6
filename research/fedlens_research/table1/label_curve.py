"""Accuracy against the number of labelled samples: Figures 3 and 4 of arXiv:2003.00997.

A person labels n synthetic samples; a student learns from those alone, and from changed copies of
them. In place of a person a network stands that was trained on real images, so the figures tell
what a careful annotator's labels would be worth. Samples without a label cost nothing, neither
privacy nor work, so a second student learns from the first one's guesses at many of them (Lee 2013,
pseudo-labels).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fedlens.data.spec import Augmentation
from fedlens.simulations.students.augmentation import augment
from fedlens.simulations.students.students import StudentResult, predict, train_student
from fedlens_research.table1.evaluation import EvaluationBudget
from fedlens_research.table1.judges import JudgeNet

EPOCHS = 2


class LabelPoint(NamedTuple):
    """Students of n labelled samples."""

    labels: int
    annotated: float  # Accuracy with the labels of the network that stands for a person
    requested: float  # Accuracy with the classes that the samples were asked for
    extended: float
    """Accuracy with the labels in a person's place, and the first student's guesses for the rest of
    the samples."""


def label_curve(
    samples: Tensor,
    classes: int,
    judge: JudgeNet,
    test: tuple[Tensor, Tensor],
    *,
    effort: EvaluationBudget,
    seed: int,
    augmentation: Augmentation,
) -> list[LabelPoint]:
    """Students of ever more labelled ``samples``, whose ``classes`` stand in turn.

    ``judge`` gives labels in a person's place; mixtures of ``augmentation`` are left out.
    """
    most = len(samples)
    requested = torch.arange(most) % classes
    annotated = predict(judge, samples).argmax(1)

    def student(count: int, labels: Tensor) -> StudentResult:
        source = torch.Generator().manual_seed(seed + count)
        copies = max(1, effort.repeated // count)
        # every sample as it is once, all its other copies changed
        images = samples[:count].repeat(copies, 1, 1, 1)
        images[count:] = augment(images[count:], augmentation, source)
        targets = labels[:count].repeat(copies)
        return train_student(images, targets, *test, classes=classes, epochs=EPOCHS, seed=seed)

    def point(count: int) -> LabelPoint:
        first, asked = student(count, annotated), student(count, requested)
        guessed = predict(first.model, samples).argmax(1)
        guessed[:count] = annotated[:count]
        # with every sample labelled nothing is left to guess
        extended = student(most, guessed) if count < most else first
        return LabelPoint(count, first.accuracy, asked.accuracy, extended.accuracy)

    return [point(count) for count in effort.labels]
