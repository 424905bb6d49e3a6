"""Two tasks that make a filter of their own: their settings here, and as they travel to nodes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fedlens.client.tasks.protocol import TaskSettings
from fedlens.server.config import needs
from fedlens.server.config.section import NoiseMultiplier, Positive
from fedlens.server.config.tasks import TaskConfig, TaskKind


class SpreadConfig(TaskConfig):
    """Where images' frequencies lie, in one sum over users."""

    provides = frozenset({needs.SCALES})
    trains_filter_by = "sums"

    kind: Literal["spread"] = "spread"
    noise_multiplier: NoiseMultiplier = 5.0
    clipping_norm: Positive = 2.0
    highest: Annotated[int, Field(ge=1, le=30)] = 5
    """The highest frequency that is looked at."""


class PairsConfig(TaskConfig):
    """What images of each pair of class and attribute are like, in one more; then the filter."""

    requires = frozenset({needs.SCALES})
    provides = frozenset({needs.PRIVATIZER})
    trains_filter_by = "sums"

    kind: Literal["pairs"] = "pairs"
    noise_multiplier: NoiseMultiplier = 2.0
    clipping_norm: Positive = 3.0


class SpreadSettings(TaskSettings):
    """What nodes need of the first."""

    highest: int


class PairsSettings(SpreadSettings):
    """And of the second."""

    hidden: str


SPREAD = TaskKind(SpreadConfig, "outside.sums_server:SpreadTask")
PAIRS = TaskKind(PairsConfig, "outside.sums_server:PairsTask")
