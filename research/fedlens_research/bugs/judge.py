"""A network that tells sound images from faulty ones: the measure of what samples show of a fault.

Simulation only: it learns from real test images, and its figures are in no budget.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedlens.models.faults.tones import blurred
from fedlens.simulations.students.students import predict, train_student

BLURS = (3, 5)
"""Sides, in pixels, of the blurs through which it also learns: samples are blurred."""
EPOCHS = 4


@dataclass(frozen=True)
class Judge:
    """Says of images [n, c, h, w] which look faulty.

    With ``classes`` above 1 it knows each class in both states and compares the two of the class
    that was asked for, else it knows sound and faulty images alone.
    """

    network: nn.Module
    classes: int

    def faulty(self, images: Tensor, labels: Tensor) -> Tensor:
        """Which images look more like faulty ones of their class than like sound ones, bool [n]."""
        logits = predict(self.network, images)
        labels = labels % self.classes
        sound, faulty = (
            logits.gather(1, labels[:, None] + offset)[:, 0] for offset in (0, self.classes)
        )
        return faulty > sound


def train_judge(sound: Tensor, faulty: Tensor, labels: Tensor, classes: int, seed: int) -> Judge:
    """A judge from real images [n, c, h, w], the same ones with the fault, and their classes.

    With ``classes`` 1 it is told of no class.
    """
    labels = labels % classes
    images = torch.cat([sound, faulty])
    images = torch.cat([images, *(blurred(images, side) for side in BLURS)])
    targets = torch.cat([labels, labels + classes]).repeat(1 + len(BLURS))
    result = train_student(
        images,
        targets,
        images[:1000],
        targets[:1000],
        classes=2 * classes,
        epochs=EPOCHS,
        seed=seed,
    )
    return Judge(result.model, classes)
