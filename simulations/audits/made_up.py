"""Made-up users and records: what the real tasks are given in an audit, in place of people's.

Every image carries its owner's number in its first pixel, so that a row can be told from the data
that it was made of, however tasks batch them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from fedlens.client.users.protocol import DataOrigin, LocalData, Rows

MOST_OWNERS = 2**16
"""Numbers that a pixel in [-1, 1] can carry exactly in float32."""
_COARSE = 5


@dataclass(frozen=True, eq=False)
class MadeUpUsers:
    """A node's users; each holds as many records as the others, or none."""

    images: Tensor
    """float32 [users, records, channels, height, width] in [-1, 1]."""
    labels: Tensor
    """int64 [users, records]."""
    holds: Tensor
    """bool [users]: who holds records at all; the others are enrolled and hold nothing."""
    classes: int
    partition: int
    sensitive_attribute: str = ""
    """What the run hides, where it does: made-up users claim to know it, as its users do."""
    sensitive_classes: int = 2
    slice: str = ""
    people: None = None
    origin: DataOrigin = field(default_factory=DataOrigin)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height, width of an image."""
        channels, height, width = self.images.shape[2:]
        return channels, height, width

    def __len__(self) -> int:
        """Users on the node."""
        return len(self.labels)

    def user_id(self, position: int) -> int:
        """A number of the user's own: no batch of made-up users depends on it."""
        return MOST_OWNERS * self.partition + position

    def held(self, position: int) -> int:
        """How many records the user holds."""
        return self.labels.shape[1] if self.holds[position] else 0

    def user(self, position: int, rows: Rows | None = None) -> LocalData:
        """The user's records, or some of them."""
        chosen = np.arange(self.held(position)) if rows is None else rows
        labels = self.labels[position][chosen]
        images = self.images[position][chosen]
        return LocalData(images, labels, labels % self.sensitive_classes)


def made_up_images(
    owners: int, records: int, shape: tuple[int, int, int], source: np.random.Generator
) -> Tensor:
    """Random images unlike each other: large random patches under fine noise, and their owner.

    Returns:
        float32 [owners, records, c, h, w] in [-1, 1].
    """
    count = owners * records
    rough = torch.from_numpy(source.uniform(-1, 1, (count, shape[0], _COARSE, _COARSE)))
    fine = torch.from_numpy(source.uniform(-1, 1, (count, *shape)))
    images = (0.7 * F.interpolate(rough, shape[1:]) + 0.3 * fine).float()
    images = images.view(owners, records, *shape)
    marks = torch.arange(owners, dtype=torch.float32) / MOST_OWNERS
    images[:, :, 0, 0, 0] = marks[:, None]
    return images


def owner_of(data: LocalData) -> int:
    """Whose records these are; -1 where there are none."""
    return round(float(data.images[0, 0, 0, 0]) * MOST_OWNERS) if len(data.labels) else -1


def made_up_labels(owners: int, records: int, classes: int, source: np.random.Generator) -> Tensor:
    """Random labels int64 [owners, records]; those of one owner differ while classes last."""
    order = source.random((owners, max(classes, records))).argsort(axis=1)
    return torch.from_numpy(order[:, :records] % classes)


def dealt_out(
    images: Tensor, labels: Tensor, holds: Tensor, nodes: int, classes: int, sensitive: str
) -> list[MadeUpUsers]:
    """Users as blocks on nodes, as equal as can be."""
    bounds = np.linspace(0, len(labels), nodes + 1).astype(int)
    return [
        MadeUpUsers(images[a:b], labels[a:b], holds[a:b], classes, node, sensitive)
        for node, (a, b) in enumerate(pairwise(bounds))
    ]
