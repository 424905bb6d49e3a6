"""Students of what people said about samples: few labels, so each sample is shown often, changed.

What such a student is worth is found on real test images where a simulation has some that are
called the same, and else on samples that people labelled and it never saw.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fedlens.data.spec import Augmentation
from fedlens.foundation.errors import WrongUse
from fedlens.simulations.students.augmentation import augment
from fedlens.simulations.students.students import StudentResult, train_student

IMAGES, EPOCHS = 20_000, 2
"""Images that it learns from, most of them changed, and passes over them."""
HELD_OUT = 5
"""Where no real test image is to be had one labelled sample in so many is kept for the test."""


@dataclass(frozen=True)
class LabelledSet:
    """Samples with what people said of them.

    Attributes:
        images: float32 [n, c, h, w] in [-1, 1]; one that several people labelled is there as often.
        labels: int64 [n], numbers of ``names``.
        names: of the classes.
    """

    images: Tensor
    labels: Tensor
    names: tuple[str, ...]

    def part(self, chosen: Tensor) -> LabelledSet:
        """Those of a mask bool [n] or of places int64 [m]."""
        return LabelledSet(self.images[chosen], self.labels[chosen], self.names)

    def held_out(self) -> Tensor:
        """Which are for the test, bool [n]: by a hash of the pixels, so equal ones go together."""
        digests = (hashlib.sha256(image.numpy().tobytes()).digest()[0] for image in self.images)
        return torch.tensor([first % HELD_OUT == 0 for first in digests], dtype=torch.bool)


def people_student(
    given: LabelledSet,
    test: tuple[Tensor, Tensor],
    *,
    augmentation: Augmentation | None = None,
    images: int = IMAGES,
    epochs: int = EPOCHS,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> StudentResult:
    """Train a student on labelled samples, each as it is and under random changes, and test it.

    Args:
        given: what it learns from.
        test: images float32 [m, c, h, w] in [-1, 1], and their classes int64 [m].
        augmentation: which changes; affine maps by default.
        images: how many it learns from in all.
        epochs: passes over them.
        seed: decides changes, weights and batches.
        progress: as `train_student`.

    Raises:
        WrongUse: fewer than two classes were given to any sample.
    """
    if len(set(given.labels.tolist())) < 2:
        raise WrongUse(
            "a student needs samples of two classes at least, and people named one or none: label "
            "more"
        )
    settings = augmentation if augmentation is not None else Augmentation()
    source = torch.Generator().manual_seed(seed)
    rounds = max(1, -(-images // len(given.labels)))
    shown = [given.images, *(augment(given.images, settings, source) for _ in range(rounds - 1))]
    return train_student(
        torch.cat(shown),
        given.labels.repeat(rounds),
        *test,
        classes=len(given.names),
        epochs=epochs,
        seed=seed,
        progress=progress,
    )
