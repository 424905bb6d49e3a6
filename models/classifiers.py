"""Small classifiers of records: adversaries and utility classifiers, and attackers afterwards.

None has dropout or a batch norm: an answer depends on its own record alone, which per-user
gradients need, and training draws nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedlens.models.shapes import ShapeError, check_classes
from fedlens.models.weights import initialise, unset_weights

LEAST_SIDE = 8


class Mlp(nn.Module):
    """Linear layers with ReLUs between, on whatever a record is, flattened.

    Args:
        inputs: entries of a record.
        classes: number of classes.
        hidden: units of each hidden layer; none makes it logistic regression.
        side: entries of side information, beside the record's.
        generator: CPU generator of the weights; ``None`` is seed 0.

    Raises:
        ShapeError: there is no class, or no input.
    """

    def __init__(
        self,
        inputs: int,
        classes: int,
        hidden: Sequence[int] = (32, 32),
        *,
        side: int = 0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if inputs < 1:
            raise ShapeError(f"inputs={inputs} must be at least 1")
        sizes = (inputs + side, *hidden, check_classes(classes))
        with unset_weights():
            self.layers = nn.ModuleList(nn.Linear(*pair) for pair in pairwise(sizes))
        initialise(self, generator, "relu")

    def forward(self, records: Tensor, side: Tensor | None = None) -> Tensor:
        """Logits float32 [n, classes] of records [n, ...] and side information [n, side]."""
        units = _beside(records.flatten(1), side)
        for layer in self.layers[:-1]:
            units = F.relu(layer(units))
        logits: Tensor = self.layers[-1](units)
        return logits


class ConvClassifier(nn.Module):
    """Two convolutions with max-pooling and two linear layers, in the manner of LeNet-5.

    Args:
        shape: (channels, height, width) of an image, any sides of at least 8 pixels.
        classes: number of classes.
        width: channels of the first convolution; twice as many in the second.
        side: entries of side information, seen by the linear layers.
        generator: CPU generator of the weights; ``None`` is seed 0.

    Raises:
        ShapeError: on a shape or number of classes that is not supported.
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        classes: int,
        width: int = 8,
        *,
        side: int = 0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        channels, height, breadth = check_image(shape)
        maps = 2 * width * (height // 4) * (breadth // 4)
        with unset_weights():
            self.conv1 = nn.Conv2d(channels, width, 5, padding=2)
            self.conv2 = nn.Conv2d(width, 2 * width, 5, padding=2)
            self.dense = nn.Linear(maps + side, 12 * width)
            self.head = nn.Linear(12 * width, check_classes(classes))
        initialise(self, generator, "relu")

    def forward(self, images: Tensor, side: Tensor | None = None) -> Tensor:
        """Logits float32 [n, classes] of images [n, c, h, w] and side information [n, side]."""
        maps = F.max_pool2d(F.relu(self.conv1(images)), 2)
        maps = F.max_pool2d(F.relu(self.conv2(maps)), 2)
        logits: Tensor = self.head(F.relu(self.dense(_beside(maps.flatten(1), side))))
        return logits


class JointClassifiers(nn.Module):
    """Several classifiers whose logits are added, trained as one.

    As an adversary it makes a filter hide from all of them at once: what small convolutions do not
    notice, such as single pixels that trees split on, a dense network beside them does.

    Args:
        classifiers: networks from the same records to logits [n, classes].

    Raises:
        ShapeError: there are none.
    """

    def __init__(self, *classifiers: nn.Module) -> None:
        super().__init__()
        if not classifiers:
            raise ShapeError("classifiers=() must name at least one network")
        self.classifiers = nn.ModuleList(classifiers)

    def forward(self, records: Tensor) -> Tensor:
        """Logits float32 [n, classes] of records [n, ...]."""
        first, *others = self.classifiers
        logits: Tensor = first(records)
        for classifier in others:
            logits = logits + classifier(records)
        return logits


def check_image(shape: Sequence[int]) -> tuple[int, int, int]:
    """Return ``shape`` as three ints, or say what is wrong with it.

    Raises:
        ShapeError: unless it is (channels, height, width) with sides of at least 8 pixels.
    """
    if len(shape) != 3:
        raise ShapeError(f"shape {tuple(shape)} must be (channels, height, width)")
    channels, height, breadth = (int(side) for side in shape)
    if channels < 1 or min(height, breadth) < LEAST_SIDE:
        raise ShapeError(
            f"shape {tuple(shape)}: give at least one channel and sides of {LEAST_SIDE} pixels"
        )
    return channels, height, breadth


def _beside(units: Tensor, side: Tensor | None) -> Tensor:
    return units if side is None else torch.cat([units, side], 1)
