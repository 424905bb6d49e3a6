"""The frozen-feature critic on a node: a user's class-mean embedding.

The critic is linear on fixed random features, so its gradient with respect to the real data is
the mean feature vector of each class and does not depend on the generator.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from client.clipping import Blocks
from client.data import LocalData, LocalUsers
from client.messages import TrainRequest
from models.features import PatchFeatures


@lru_cache(maxsize=2)
def public_features(shape: tuple[int, int, int], seed: int) -> PatchFeatures:
    """The critic's features, which follow from their public seed."""
    return PatchFeatures(shape, seed)


class FrozenLocalCritic:
    """Updates of shape [classes x dim], flattened row by row."""

    chunk = 64

    def __init__(self, users: LocalUsers, request: TrainRequest) -> None:
        self._classes = users.classes
        self._features = public_features(users.shape, int(request.settings["feature_seed"]))

    @torch.no_grad()
    def updates(self, cohort: Sequence[LocalData], seeds: Sequence[int]) -> Blocks:
        """Each user's class-mean embedding, a block for each class that the user holds.

        A user without records contributes zeros.
        """
        held = list(cohort)
        counts = torch.tensor([len(data.labels) for data in held])
        owners = torch.repeat_interleave(torch.arange(len(held)), counts)
        labels = torch.cat([data.labels for data in held])
        rows = self.rows(torch.cat([data.images for data in held]), labels)
        filled, block = torch.unique(owners * self._classes + labels, return_inverse=True)
        values = torch.zeros(len(filled), rows.shape[1])
        values.index_add_(0, block, rows / counts[owners, None])
        owner, place = filled // self._classes, filled % self._classes
        return Blocks(values, owner, place, len(held), self._classes)

    def rows(self, images: Tensor, labels: Tensor) -> Tensor:
        """What each record adds to its class, float32 [n, dim]."""
        rows: Tensor = self._features(images)
        return rows
