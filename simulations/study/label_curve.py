"""Accuracy against the number of labelled samples: Figures 3 and 4 of arXiv:2003.00997.

Somebody labels n synthetic samples; a student learns from those alone, and from changed copies of
them. In place of a person a network stands that was trained on real images, so the figures tell
what a careful annotator's labels would be worth.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from simulations.augmentation import Augmentation, augment
from simulations.distillation import Source
from simulations.students import predict, train_student
from simulations.study.effort import Effort
from simulations.study.judges import LeNet

EPOCHS = 2


class Point(NamedTuple):
    """Students of n labelled samples."""

    labels: int
    annotated: float
    """Accuracy with the labels of the network that stands for a person."""
    requested: float
    """Accuracy with the classes that the samples were asked for."""


def label_curve(
    sampler: Source,
    judge: LeNet,
    test: tuple[Tensor, Tensor],
    *,
    effort: Effort,
    seed: int,
    augmentation: Augmentation,
) -> list[Point]:
    """Students of ever more labelled samples, all classes equally often.

    Args:
        sampler: what the samples are drawn from.
        judge: gives labels in a person's place.
        test: real test images and labels.
        effort: which numbers of samples, and how many changed copies in total.
        seed: decides samples, changes and students.
        augmentation: which changes; mixtures are left out.
    """
    most = max(effort.labels)
    requested = torch.arange(most) % sampler.classes
    samples = sampler.draw(requested, seed)
    annotated = predict(judge, samples).argmax(1)

    def accuracy(count: int, labels: Tensor) -> float:
        source = torch.Generator().manual_seed(seed + count)
        copies = max(1, effort.repeated // count)
        # every sample as it is once, all its other copies changed
        images = samples[:count].repeat(copies, 1, 1, 1)
        images[count:] = augment(images[count:], augmentation, source)
        return train_student(
            images,
            labels[:count].repeat(copies),
            *test,
            classes=sampler.classes,
            epochs=EPOCHS,
            seed=seed,
        ).accuracy

    return [Point(n, accuracy(n, annotated), accuracy(n, requested)) for n in effort.labels]
