"""The frozen-feature critic on a node: a user's class-mean embedding.

The critic is linear on fixed random features, so its gradient with respect to the real data is
the mean feature vector of each class and does not depend on the generator.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from client.data import LocalData, LocalUsers
from client.records import TrainRequest
from models.features import PatchFeatures


@lru_cache(maxsize=2)
def _features(shape: tuple[int, int, int], seed: int) -> PatchFeatures:
    return PatchFeatures(shape, seed)


class FrozenLocalCritic:
    """Updates of shape [classes x dim], flattened row by row."""

    chunk = 64

    def __init__(self, users: LocalUsers, request: TrainRequest) -> None:
        self._classes = users.classes
        self._features = _features(users.shape, int(request.settings["feature_seed"]))

    @torch.no_grad()
    def updates(self, cohort: Sequence[LocalData], seeds: Sequence[int]) -> Tensor:
        """Each user's class-mean embedding; a user without records contributes zeros."""
        counts = torch.tensor([len(data.labels) for data in cohort])
        owners = torch.repeat_interleave(torch.arange(len(cohort)), counts)
        labels = torch.cat([data.labels for data in cohort])
        rows = self._features(torch.cat([data.images for data in cohort]))
        slots = owners * self._classes + labels
        sums = torch.zeros(len(cohort) * self._classes, rows.shape[1])
        sums.index_add_(0, slots, rows / counts[owners, None])
        return sums.view(len(cohort), -1)
