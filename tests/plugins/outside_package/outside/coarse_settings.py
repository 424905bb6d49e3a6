"""A task's settings: in configurations, and as they travel to nodes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fedlens.client.tasks.protocol import TaskSettings
from fedlens.server.config.tasks import CriticConfig, TaskKind


class CoarseConfig(CriticConfig):
    """A critic that looks at coarse pictures."""

    kind: Literal["coarse"] = "coarse"
    side: Annotated[int, Field(ge=1, le=28)] = 7
    """Rows and columns of a coarse picture."""


class CoarseSettings(TaskSettings):
    """What nodes need of it."""

    side: int = 7


COARSE = TaskKind(CoarseConfig, "outside.coarse_server:CoarseTask")
