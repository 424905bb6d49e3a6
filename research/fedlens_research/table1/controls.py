"""The control: public noise images in the generator's place, with the same annotator.

What a student learns from it, it owes to the annotator and to public knowledge (features, changes
of images) alone; a generator is worth what the student gains over it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from fedlens.models.shapes import ImageShape
from fedlens.simulations.students.distillation import Teacher

SEEDS_A_SIDE = 7
CONTRAST, BRIGHTNESS = 1.5, -1.0


@dataclass(frozen=True)
class NoiseTeacher:
    """Smooth random blobs of no class, labelled by a run's annotator."""

    annotator: Teacher
    shape: ImageShape

    @property
    def classes(self) -> int:
        """As many as the annotator knows."""
        return self.annotator.classes

    def draw(self, labels: Tensor, seed: int) -> Tensor:
        """Blobs [n, c, h, w] in [-1, 1]; the labels only say how many."""
        return noise_images(len(labels), self.shape, seed)

    def label(self, images: Tensor) -> Tensor:
        """The annotator's probabilities [n, classes]."""
        return self.annotator.label(images)


def noise_images(count: int, shape: ImageShape, seed: int) -> Tensor:
    """Gaussian noise of 7 x 7 pixels, resized bicubically: float32 [n, c, h, w] in [-1, 1]."""
    source = torch.Generator().manual_seed(seed)
    coarse = torch.randn(count, shape[0], SEEDS_A_SIDE, SEEDS_A_SIDE, generator=source)
    smooth = F.interpolate(coarse, shape[1:], mode="bicubic", align_corners=False)
    return (smooth * CONTRAST + BRIGHTNESS).clamp(-1, 1)
