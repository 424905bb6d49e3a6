"""The frozen-feature critic on a node: a user's class-mean embedding.

The critic is linear on fixed random features, so its gradient with respect to the real data is
the mean feature vector of each class and does not depend on the generator.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from client.clipping import Blocks, clip_and_sum
from client.cohort_data import batched_records
from client.data import LocalData, LocalUsers
from client.messages import TrainRequest
from client.record_sums import Portion, noised_sum
from client.tasks.settings import FrozenSettings
from models.features import PatchFeatures

AT_ONCE = 128
"""Feature rows of images that are made and clipped together."""


@lru_cache(maxsize=2)
def public_features(shape: tuple[int, int, int], seed: int) -> PatchFeatures:
    """The critic's features, which follow from their public seed."""
    return PatchFeatures(shape, seed)


class FrozenLocalTask:
    """Updates of shape [classes x dim], flattened row by row."""

    chunk = 64
    dim: int
    """Length of a record's row."""

    def __init__(self, users: LocalUsers, request: TrainRequest) -> None:
        self._users, self._request = users, request
        self._prepare(users, request)

    def _prepare(self, users: LocalUsers, request: TrainRequest) -> None:
        settings = FrozenSettings.model_validate(request.settings)
        self._features = public_features(users.shape, settings.feature_seed)
        self.dim = self._features.dim

    @torch.no_grad()
    def updates(self, cohort: Sequence[LocalData], seeds: Sequence[int]) -> Blocks:
        """Each user's class-mean embedding, a block for each class that the user holds.

        A user without records contributes zeros.
        """
        held, classes = list(cohort), self._users.classes
        counts = torch.tensor([len(data.labels) for data in held])
        owners = torch.repeat_interleave(torch.arange(len(held)), counts)
        labels = torch.cat([data.labels for data in held])
        rows = self.rows(torch.cat([data.images for data in held]), labels)
        filled, block = torch.unique(owners * classes + labels, return_inverse=True)
        values = torch.zeros(len(filled), rows.shape[1])
        values.index_add_(0, block, rows / counts[owners, None])
        return Blocks(values, filled // classes, filled % classes, len(held), classes)

    def rows(self, images: Tensor, labels: Tensor) -> Tensor:
        """What each record adds to its class, float32 [n, dim]."""
        rows: Tensor = self._features(images)
        return rows

    def record_update(self, node: int) -> Tensor:
        """The node's noised sum of records' rows by class, over the fixed denominator."""
        size = self._users.classes * self.dim
        return noised_sum(self.portions(), size, node, self._request)

    def portions(self) -> Iterable[Portion]:
        """The node's records, as images."""
        for data, _ in batched_records(self._users, range(len(self._users))):
            yield ImagePortion(data, self, self._users.classes)


@dataclass(frozen=True)
class ImagePortion:
    """Records as images; each contributes its row at its class."""

    data: LocalData
    task: FrozenLocalTask
    classes: int

    def __len__(self) -> int:
        """How many records."""
        return len(self.data.labels)

    @torch.no_grad()
    def clipped_sum(self, chosen: Tensor, bound: float) -> Tensor:
        """The clipped rows of the chosen records, added up by class, float64 [classes x dim]."""
        total = torch.zeros(self.classes * self.task.dim, dtype=torch.float64)
        for part in torch.split(chosen, AT_ONCE):
            labels = self.data.labels[part]
            rows = self.task.rows(self.data.images[part], labels)
            blocks = Blocks(rows, torch.arange(len(rows)), labels, len(rows), self.classes)
            total += clip_and_sum(blocks, bound)[0]
        return total
