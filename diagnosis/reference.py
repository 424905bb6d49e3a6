"""Reference users: public (or synthetic) records dealt out as users hold them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedlens.foundation.errors import WrongUse
from fedlens.models.shapes import ImageShape

LEAST_USERS = 20
"""Reference users below which nothing is said of how users differ."""
_DEAL = 11


@dataclass(frozen=True, eq=False)
class Reference:
    """Images of the kind that users hold, whose faults are known: none."""

    name: str
    """What people call it."""
    images: Tensor
    """float32 [n, channels, height, width] in [-1, 1]."""
    labels: Tensor
    """int64 [n] in [0, classes)."""
    classes: int
    behind: int = 0
    """Images of the set whose shares of classes these have (see `like_all`); 0 where they were
    drawn whatever their class."""

    @property
    def shape(self) -> ImageShape:
        """Channels, height, width of an image."""
        channels, height, width = (int(side) for side in self.images.shape[1:])
        return channels, height, width

    def check(self, shape: ImageShape, classes: int) -> None:
        """Refuse a reference of another schema than the run's.

        Raises:
            WrongUse: its images have another shape, or its classes another number.
        """
        if self.shape != shape or self.classes != classes:
            raise WrongUse(
                f"reference {self.name!r} has {_classes(self.classes)} of images {self.shape}, the "
                f"run {_classes(classes)} of {shape}: take data of the same kind"
            )

    def first(self, images: int) -> Reference:
        """The first images alone: they lie in random order."""
        return replace(self, images=self.images[:images], labels=self.labels[:images])

    def dealt(self, records: int) -> Tensor:
        """Which images users of ``records`` records each hold, int64 [users, records].

        By a public seed: the same each time.

        Raises:
            WrongUse: there are too few images.
        """
        users = len(self.labels) // records
        if users < LEAST_USERS:
            raise WrongUse(
                f"reference {self.name!r} has {len(self.labels)} images, which make {users} users "
                f"of {records} records: give at least {LEAST_USERS * records} images"
            )
        order = np.random.default_rng(_DEAL).permutation(len(self.labels))
        return torch.from_numpy(order[: users * records]).view(users, records)


def _classes(number: int) -> str:
    return f"{number} classes" if number > 1 else "no classes"


def like_all(
    labels: NDArray[np.int64], count: int, source: np.random.Generator
) -> NDArray[np.int64]:
    """Rows of so many images, in random order, whose shares of classes are those of all.

    Two thousand images drawn whatever their class have 7% more or fewer of one of ten than the set
    that they are of: as much as where a class is missing in one user of fourteen.

    Args:
        labels: of all images, int64 [n].
        count: how many at most.
        source: of which ones.
    """
    order = source.permutation(len(labels))
    ranked = order[np.argsort(labels[order], kind="stable")]
    size = min(count, len(labels))
    places = (np.arange(size) * len(labels) + source.integers(len(labels))) // size
    found: NDArray[np.int64] = source.permutation(ranked[places])
    return found
