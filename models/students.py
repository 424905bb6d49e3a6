"""Students: small classifiers trained on synthetic images, to see what those are worth.

They see large images smaller (`fedlens.models.shapes.shrinking`), as the annotator does.

Three architectures, so that a figure does not hang on one of them. None has dropout or a batch
norm: a student's answer to an image depends on that image alone, and training draws nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedlens.models.shapes import ImageShape, as_seen, check_classes, check_shape, shrinking
from fedlens.models.weights import initialise, unset_weights

GROUPS = 8
"""Groups of the residual student's group norms (Wu & He 2018)."""


class Student(nn.Module):
    """A classifier of images [n, c, h, w] in [-1, 1] with logits float32 [n, classes].

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
        with unset_weights():
            self._layers(self.shape[0], self.shape[1] // shrinking(self.shape[1]))
        initialise(self, generator, "relu")

    def forward(self, images: Tensor) -> Tensor:
        """Logits of images, or of what `as_seen` made of them."""
        return self._logits(as_seen(images) if images.shape[1:] == self.shape else images)

    def _logits(self, images: Tensor) -> Tensor:
        raise NotImplementedError

    def _layers(self, channels: int, side: int) -> None:
        """Make the layers, in the order in which their weights are drawn."""
        raise NotImplementedError


class StudentCnn(Student):
    """Two strided convolutions and two linear layers.

    Parameters for 10 classes: 207,178 for (1, 28, 28), 269,418 for (3, 32, 32).
    """

    def _layers(self, channels: int, side: int) -> None:
        self.conv1 = nn.Conv2d(channels, 16, 5, stride=2, padding=2)
        self.conv2 = nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.dense = nn.Linear(32 * (side // 4) ** 2, 128)
        self.head = nn.Linear(128, self.classes)

    def _logits(self, images: Tensor) -> Tensor:
        maps = F.relu(self.conv1(images))
        maps = F.relu(self.conv2(maps))
        logits: Tensor = self.head(F.relu(self.dense(maps.flatten(1))))
        return logits


class StudentMlp(Student):
    """Two hidden layers of 256 and 128 units on the raw pixels.

    Parameters for 10 classes: 235,146 for (1, 28, 28), 820,874 for (3, 32, 32).
    """

    def _layers(self, channels: int, side: int) -> None:
        self.dense1 = nn.Linear(channels * side**2, 256)
        self.dense2 = nn.Linear(256, 128)
        self.head = nn.Linear(128, self.classes)

    def _logits(self, images: Tensor) -> Tensor:
        units = F.relu(self.dense1(images.flatten(1)))
        logits: Tensor = self.head(F.relu(self.dense2(units)))
        return logits


class StudentResidual(Student):
    """A small residual network (He et al. 2016) with group norms, 16 and 32 channels.

    Parameters for 10 classes: 48,890 for (1, 28, 28), 53,978 for (3, 32, 32).
    """

    def _layers(self, channels: int, side: int) -> None:
        self.stem = nn.Conv2d(channels, 16, 3, stride=2, padding=1, bias=False)
        self.norm = nn.GroupNorm(GROUPS, 16)
        self.block1 = _ResidualBlock(16, 32, 2)
        self.block2 = _ResidualBlock(32, 32, 1)
        self.head = nn.Linear(32 * (side // 4) ** 2, self.classes)

    def _logits(self, images: Tensor) -> Tensor:
        maps = F.relu(self.norm(self.stem(images)))
        logits: Tensor = self.head(self.block2(self.block1(maps)).flatten(1))
        return logits


class _ResidualBlock(nn.Module):
    """Two convolutions beside a shortcut, which is a projection where the shape changes."""

    def __init__(self, channels: int, wider: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, wider, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(GROUPS, wider)
        self.conv2 = nn.Conv2d(wider, wider, 3, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(GROUPS, wider)
        same = channels == wider and stride == 1
        self.shortcut = (
            nn.Identity() if same else nn.Conv2d(channels, wider, 1, stride=stride, bias=False)
        )

    def forward(self, maps: Tensor) -> Tensor:
        inner = F.relu(self.norm1(self.conv1(maps)))
        return F.relu(self.norm2(self.conv2(inner)) + self.shortcut(maps))


ARCHITECTURES: dict[str, type[Student]] = {
    "cnn": StudentCnn,
    "mlp": StudentMlp,
    "residual": StudentResidual,
}
"""Students by name; a new one is one class and one line here."""


def build_student(
    architecture: str, shape: ImageShape, classes: int, *, generator: torch.Generator | None = None
) -> Student:
    """A student of the named architecture with fresh weights.

    Raises:
        ValueError: there is no such architecture.
        ShapeError: on a shape or number of classes that is not supported.
    """
    if architecture not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise ValueError(f"architecture={architecture!r} is unknown: choose one of {known}")
    return ARCHITECTURES[architecture](shape, classes, generator=generator)
