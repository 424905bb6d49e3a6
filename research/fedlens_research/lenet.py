"""LeNet-5 (LeCun et al. 1998) with ReLUs and max-pooling: the provider in the Cloak study."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedlens.models.shapes import ImageShape, ShapeError, check_classes, check_shape
from fedlens.models.weights import initialise, unset_weights

SIDES = (28, 32)
"""Pixels of a side that its three convolutions end in one place of."""


class LeNet5(nn.Module):
    """Convolutions of 6, 16 and 120 maps (5 x 5), 84 units, then the classes.

    28 x 28 images get a border of two pixels of ``border``, which makes them the paper's 32 x 32
    without stretching them: an entry of a mask is then a pixel of the data.

    Args:
        shape: (channels, height, width) of an image.
        classes: number of classes.
        border: value of the border's pixels; black of images in [-1, 1].
        generator: CPU generator of the weights; ``None`` is seed 0.

    Raises:
        ShapeError: on another side than `SIDES`, or a shape or number of classes that no network
            takes.
    """

    def __init__(
        self,
        shape: ImageShape,
        classes: int,
        *,
        border: float = -1.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.shape, self.border = check_shape(shape), border
        if self.shape[1] not in SIDES:
            raise ShapeError(
                f"shape {shape!r}: a LeNet-5 takes 28 x 28 or 32 x 32 pixels; resize them"
            )
        with unset_weights():
            self.conv1 = nn.Conv2d(self.shape[0], 6, 5)
            self.conv2 = nn.Conv2d(6, 16, 5)
            self.conv3 = nn.Conv2d(16, 120, 5)
            self.dense = nn.Linear(120, 84)
            self.head = nn.Linear(84, check_classes(classes))
        initialise(self, generator, "relu")

    def forward(self, images: Tensor) -> Tensor:
        """Logits float32 [n, classes] of images [n, c, h, w]."""
        margin = (32 - self.shape[1]) // 2
        framed = F.pad(images, (margin,) * 4, value=self.border)
        maps = F.max_pool2d(F.relu(self.conv1(framed)), 2)
        maps = F.max_pool2d(F.relu(self.conv2(maps)), 2)
        units = F.relu(self.dense(F.relu(self.conv3(maps)).flatten(1)))
        logits: Tensor = self.head(units)
        return logits
