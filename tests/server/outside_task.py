"""A kind of task as another package would bring it: the frozen critic under another name."""

from __future__ import annotations

from typing import Literal

from fedlens.server.config.tasks import FrozenConfig, TaskKind


class EchoConfig(FrozenConfig):
    """The frozen critic once more."""

    kind: Literal["echo"] = "echo"

    @property
    def purpose(self) -> str:
        """What the ledger says that a round is for."""
        return "echo round"


ECHO = TaskKind(EchoConfig, "fedlens.server.tasks.frozen:FrozenTask")
