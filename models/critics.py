"""The critic that users train: a Wasserstein score of an image given its class.

Kept small, since one noisy update per round has to carry it, and free of batch statistics, since
these would make one user's update depend on another's images, outside the clip.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedlens.models.shapes import ImageShape, check_classes, check_shape, one_hot
from fedlens.models.weights import initialise, unset_weights


class WganCritic(nn.Module):
    """Three strided convolutions with SELU and a class-projection head.

    The score is ``(w + W[label]) . h(image) + b[label]``, so the label reaches the critic only
    inside the user's clipped update. Works under ``torch.func.functional_call`` with
    ``vmap(grad(...))``: ``forward`` has no state and no randomness.

    Maps end at an eighth of the side, rounded up: 28 x 28 and 32 x 32 images both as 4 x 4 maps.
    23,619 parameters for (1, 28, 28), 10 classes and the default width and hidden units;
    23,875 for (3, 32, 32).

    Args:
        shape: (channels, height, width) of an image.
        classes: number of classes.
        width: channels of the first convolution; the next two have 2x and 4x.
        hidden: units before the head.
        generator: CPU generator of the weights; ``None`` is seed 0.

    Raises:
        ShapeError: on a shape or number of classes that is not supported.
    """

    def __init__(
        self,
        shape: ImageShape,
        classes: int,
        width: int = 8,
        hidden: int = 32,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.shape = check_shape(shape)
        self.classes = check_classes(classes)
        with unset_weights():
            self.conv1 = nn.Conv2d(self.shape[0], width, 4, stride=2, padding=1)
            self.conv2 = nn.Conv2d(width, 2 * width, 4, stride=2, padding=1)
            self.conv3 = nn.Conv2d(2 * width, 4 * width, 3, stride=2, padding=1)
            self.dense = nn.Linear(4 * width * (-(-self.shape[1] // 8)) ** 2, hidden)
            self.head = nn.Linear(hidden, 1 + self.classes)
        initialise(self, generator, "linear")

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """Scores, float32 [n], of images [n, c, h, w] under labels int64 [n]."""
        maps = F.selu(self.conv1(images))
        maps = F.selu(self.conv2(maps))
        maps = F.selu(self.conv3(maps))
        scores: Tensor = self.head(F.selu(self.dense(maps.flatten(1))))
        return scores[:, 0] + (scores[:, 1:] * one_hot(labels, self.classes)).sum(1)
