"""The critic on a node: fedlens computes records' gradients, clips, adds noise and steps."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import vector_to_parameters

from fedlens.client.messages import TrainRequest
from fedlens.client.tasks.protocol import ClientTask
from fedlens.client.tasks.record_steps import RecordSteps
from fedlens.client.update.clipping import Updates
from fedlens.client.update.record_mode import DrawnRecords
from fedlens.client.users.protocol import LocalData, LocalUsers, NodeDataError
from fedlens.models.limits import weight_limits
from outside.normed_settings import NormedSettings

LIMIT = 2.0
"""Of weights, as `fedlens.models.limits` has it: it bounds what a node's reply may hold."""


class NormedCritic(nn.Module):
    """Scores an image given its class."""

    def __init__(self, shape: tuple[int, int, int], classes: int) -> None:
        super().__init__()
        self.enter = nn.Conv2d(shape[0], 4, 4, stride=4)
        width = 4 * (shape[1] // 4) * (shape[2] // 4)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """Scores [n] of images [n, c, h, w] under labels int64 [n]."""
        rows = self.norm(F.silu(self.enter(images)).flatten(1))
        scores: Tensor = self.head(rows)
        return scores.gather(1, labels[:, None])[:, 0]


class NormedLocalTask(ClientTask):
    """A reply is how far noised steps take the critic."""

    chunk = 1
    takes_steps = True

    def __init__(self, users: LocalUsers, request: TrainRequest) -> None:
        critic = NormedCritic(users.shape, users.classes)
        vector_to_parameters(
            torch.from_numpy(request.weights["critic"].copy()), critic.parameters()
        )
        rate = NormedSettings.model_validate(request.settings).local_rate
        limits = weight_limits(critic, LIMIT)
        self._steps = RecordSteps(critic, users, torch.neg, rate, limits=limits)

    def updates(self, cohort: Sequence[LocalData], seeds: Sequence[int]) -> Tensor:
        """There is no user mode."""
        raise NodeDataError("the normed critic is trained record by record")

    def record_rows(self, drawn: DrawnRecords) -> Updates:
        """Gradients of minus the score."""
        return self._steps.rows(drawn)

    def take_step(self, release: Tensor) -> None:
        """A step along a noised mean gradient."""
        self._steps.take_step(release)

    def change(self) -> Tensor:
        """How far the steps took the critic."""
        return self._steps.change()
