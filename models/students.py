"""The student: a small classifier trained on synthetic images, to see what they are worth."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.shapes import ImageShape, check_classes, check_shape
from models.weights import initialise, unset_weights


class StudentCnn(nn.Module):
    """Two strided convolutions and two linear layers; no dropout, so no hidden randomness.

    Parameters for 10 classes: 207,178 for (1, 28, 28), 269,418 for (3, 32, 32).

    Args:
        shape: (channels, height, width) of an image.
        classes: number of classes.
        generator: CPU generator of the weights; ``None`` is seed 0.

    Raises:
        ShapeError: on a shape or number of classes that is not supported.
    """

    def __init__(
        self, shape: ImageShape, classes: int, *, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.shape = check_shape(shape)
        self.classes = check_classes(classes)
        side = self.shape[1] // 4
        with unset_weights(self):
            self.conv1 = nn.Conv2d(self.shape[0], 16, 5, stride=2, padding=2)
            self.conv2 = nn.Conv2d(16, 32, 3, stride=2, padding=1)
            self.dense = nn.Linear(32 * side * side, 128)
            self.head = nn.Linear(128, self.classes)
        initialise(self, generator, "relu")

    def forward(self, images: Tensor) -> Tensor:
        """Logits float32 [n, classes] of images [n, c, h, w] in [-1, 1]."""
        maps = F.relu(self.conv1(images))
        maps = F.relu(self.conv2(maps))
        logits: Tensor = self.head(F.relu(self.dense(maps.flatten(1))))
        return logits
