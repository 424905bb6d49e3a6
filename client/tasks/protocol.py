"""What a task does on a node: the Protocol that every kind keeps, and its typed settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from pydantic import BaseModel
from torch import Tensor

from client.clipping import Blocks
from client.data import LocalData, LocalUsers
from client.messages import STRICT, TrainRequest


class TaskSettings(BaseModel):
    """The settings of a kind of task as they travel: frozen, typed, unknown ones refused."""

    model_config = STRICT


class ClientTask(Protocol):
    """One round of a task on one node."""

    chunk: int
    """Users to hold in memory at once."""

    def updates(self, cohort: Sequence[LocalData], seeds: Sequence[int]) -> Tensor | Blocks:
        """User mode: each user's *unclipped* update, a row each, shape [len(cohort), P].

        A row depends on its own user's records, its seed and public state only.
        """

    def record_update(self, node: int) -> Tensor:
        """Record mode: the node's noised contribution, float64 [P].

        Guarantees: it is made of Poisson-subsampled Gaussian mechanisms at record level with the
        request's sampling rate and noise multiplier, relative to the L2 sensitivity C of the sum of
        clipped gradients when one record is added or removed.

        Args:
            node: the node's position among the nodes; its draws are its own.

        Raises:
            NodeDataError: this kind of task has no record mode.
        """


ClientTaskFactory = Callable[[LocalUsers, TrainRequest], ClientTask]
"""Prepares a task for one request; refuses settings of another kind (`pydantic` says which)."""
