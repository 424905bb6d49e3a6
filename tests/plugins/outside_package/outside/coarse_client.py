"""A task on a node: each user's mean coarse picture of each class."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from fedlens.client.messages import TrainRequest
from fedlens.client.tasks.protocol import ClientTask
from fedlens.client.users.protocol import LocalData, LocalUsers
from outside.coarse_settings import CoarseSettings


class CoarseLocalTask(ClientTask):
    """Updates of shape [classes x channels x side x side], flattened."""

    chunk = 64

    def __init__(self, users: LocalUsers, request: TrainRequest) -> None:
        self._side = CoarseSettings.model_validate(request.settings).side
        self._classes, self._channels = users.classes, users.shape[0]

    def updates(self, cohort: Sequence[LocalData], seeds: Sequence[int]) -> Tensor:
        """A user without records of a class contributes zeros there."""
        return torch.stack([self._means(data).flatten() for data in cohort])

    def _means(self, data: LocalData) -> Tensor:
        coarse = adaptive_avg_pool2d(data.images, self._side)
        sums = torch.zeros(self._classes, self._channels, self._side, self._side)
        sums.index_add_(0, data.labels, coarse)
        return sums / max(1, len(data.labels))
