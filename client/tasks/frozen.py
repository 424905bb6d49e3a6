"""The frozen-feature critic on a node: a user's class-mean embedding.

The critic is linear on fixed random features, so its gradient with respect to the real data is
the mean feature vector of each class and does not depend on the generator.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from fedlens.client.messages import TrainRequest
from fedlens.client.tasks.protocol import ClientTask
from fedlens.client.tasks.settings import FrozenSettings
from fedlens.client.update.clipping import Blocks
from fedlens.client.update.record_mode import DrawnRecords
from fedlens.client.users.protocol import LocalData, LocalUsers
from fedlens.client.users.records import alone
from fedlens.models import devices
from fedlens.models.features import PatchFeatures
from fedlens.models.shapes import one_hot


@lru_cache(maxsize=2)
def public_features(shape: tuple[int, int, int], seed: int, device: torch.device) -> PatchFeatures:
    """The critic's features, which follow from their public seed, on a device."""
    return PatchFeatures(shape, seed).to(device)


class FrozenLocalTask(ClientTask):
    """Updates of shape [classes x dim], flattened row by row."""

    chunk = 8
    dim: int
    """Length of a record's row."""

    def __init__(self, users: LocalUsers, request: TrainRequest) -> None:
        self._users, self._records = users, request.records_per_user
        self._prepare(users, request)

    def _prepare(self, users: LocalUsers, request: TrainRequest) -> None:
        settings = FrozenSettings.model_validate(request.settings)
        self._device = devices.best_device()
        self._features = public_features(users.shape, settings.feature_seed, self._device)
        self.dim = self._features.dim

    @torch.no_grad()
    def updates(self, cohort: Sequence[LocalData], seeds: Sequence[int]) -> Tensor:
        """Each user's class-mean embedding, [users, classes x dim].

        A user without records contributes zeros. Each user's rows are computed by themselves, so
        that no user rounds another's numbers.
        """
        size = len(cohort), self._users.classes, self.dim
        found = torch.zeros(size, device=self._device)
        for row, data in zip(found, cohort, strict=True):
            held = alone(data, self._records, self._users)
            kinds = one_hot(held.labels[0], self._users.classes) * held.shares[0][:, None]
            rows = self.rows(held.images[0], held.labels[0])
            torch.mm(kinds.to(self._device).mT, rows, out=row)
        return found.view(len(found), -1)

    def rows(self, images: Tensor, labels: Tensor) -> Tensor:
        """What each record adds to its class, float32 [n, dim]."""
        rows: Tensor = self._features(images.to(self._device))
        return rows

    @torch.no_grad()
    def record_rows(self, drawn: DrawnRecords) -> Blocks:
        """Each record's row at its class."""
        data = drawn.read()
        rows = self.rows(data.images, data.labels)
        return Blocks(rows, data.labels.to(rows.device), self._users.classes)
