"""Kinds of task as another package would bring them: one of ours renamed, and the least there is.

The null task asks each user for one number and teaches the generator next to nothing. What a run
does around a task (asking, accounting, keeping, publishing, going on) is the same for it as for
any other, so tests of that take a tenth of the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fedlens.client.messages import TrainRequest
from fedlens.client.tasks.protocol import ClientTask, TaskSettings
from fedlens.client.update.record_mode import DrawnRecords
from fedlens.client.users.protocol import LocalData, LocalUsers
from fedlens.server.config.mechanism import largest_sum
from fedlens.server.config.tasks import CriticConfig, FrozenConfig, TaskKind
from fedlens.server.tasks.protocol import CriticTask, TaskContext, TaskRequest


class EchoConfig(FrozenConfig):
    """The frozen critic once more."""

    kind: Literal["echo"] = "echo"

    @property
    def purpose(self) -> str:
        """What the ledger says that a round is for."""
        return "echo round"


ECHO = TaskKind(EchoConfig, "fedlens.server.tasks.frozen:FrozenTask")


class NullConfig(CriticConfig):
    """One number a user."""

    kind: Literal["null"] = "null"


NULL = TaskKind(NullConfig, "outside_task:NullTask")


class NullTask(CriticTask):
    """Adds the releases up; the generator is to be as bright as their sum."""

    size = 1

    def __init__(self, context: TaskContext) -> None:
        self._settings = context.settings
        self.largest_reply = largest_sum(context.config, self._settings, self.size)
        self._sum = np.zeros(self.size)

    def request(self) -> TaskRequest:
        return TaskRequest(TaskSettings())

    def apply_release(self, release: np.ndarray) -> Mapping[str, float]:
        self._sum += release
        return {}

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        return (images.mean() - float(self._sum[0])).square()

    def state(self) -> dict[str, Any]:
        return {"sum": self._sum.copy()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._sum = state["sum"].astype(np.float64)


class NullLocalTask(ClientTask):
    """A user's brightness, at most 1."""

    chunk = 8

    def __init__(self, users: LocalUsers, request: TrainRequest) -> None:
        TaskSettings.model_validate(request.settings)

    def updates(self, cohort: Sequence[LocalData], seeds: Sequence[int]) -> Tensor:
        return torch.tensor([[_brightness(data.images)] for data in cohort])

    def record_rows(self, drawn: DrawnRecords) -> Tensor:
        return torch.tensor([[_brightness(i)] for i in drawn.read().images]).reshape(-1, 1)


def _brightness(images: Tensor) -> float:
    return (float(images.mean()) + 1) / 2 if images.numel() else 0.0
