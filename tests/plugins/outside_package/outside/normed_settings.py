"""A critic of a network of its own, trained record by record: its settings."""

from __future__ import annotations

from typing import Literal

from fedlens.client.tasks.protocol import TaskSettings
from fedlens.server.config.section import Count, Positive
from fedlens.server.config.tasks import CriticConfig, TaskKind


class NormedConfig(CriticConfig):
    """A critic with layer norm."""

    kind: Literal["normed"] = "normed"
    local_steps: Count = 2
    local_rate: Positive = 0.1

    @property
    def steps_on_nodes(self) -> int:
        """Noised steps of a node a round."""
        return self.local_steps


class NormedSettings(TaskSettings):
    """What nodes need of it."""

    local_rate: float


NORMED = TaskKind(NormedConfig, "outside.normed_server:NormedTask")
