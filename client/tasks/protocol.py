"""What a task does on a node: the Protocol that every kind keeps, and its typed settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from pydantic import BaseModel
from torch import Tensor

from fedlens.client.messages import STRICT, TrainRequest
from fedlens.client.update.clipping import Blocks, Updates
from fedlens.client.users.protocol import LocalData, LocalUsers
from fedlens.client.users.record_batches import DrawnRecords


class TaskSettings(BaseModel):
    """The settings of a kind of task as they travel: frozen, typed, unknown ones refused."""

    model_config = STRICT


class ClientTask(Protocol):
    """One round of a task on one node."""

    chunk: int
    """Users to hold in memory at once."""

    def updates(self, cohort: Sequence[LocalData], seeds: Sequence[int]) -> Tensor | Blocks:
        """User mode: each user's *unclipped* update, a row each, shape [len(cohort), P].

        A row depends on its own user's records, its seed and public state only. It is called with
        ``chunk`` users always, the last of which may hold nothing; none has more records than the
        request's ``records_per_user``. Work and memory must not depend on what they hold
        (`fedlens.client.users.records.padded` helps), for time tells others of it.
        """

    def record_rows(self, drawn: DrawnRecords) -> Updates:
        """Record mode: the *unclipped* contributions of drawn records, at most one each, [n, P].

        That of a record depends on that record and public state only; no record at all gives no
        row, of the same P. Drawing, clip and noise are not the task's:
        `fedlens.client.record_sums`.

        Raises:
            NodeDataError: this kind of task has no record mode.
        """


@runtime_checkable
class SteppedTask(Protocol):
    """What a task has beside that whose nodes take several noised steps a round in record mode."""

    def take_step(self, release: Tensor) -> None:
        """Go on from a step's noised sum over the fixed denominator, float64 [P]."""

    def change(self) -> Tensor:
        """What the node replies, float64 [P]: it follows from the steps' noised sums alone."""


ClientTaskFactory = Callable[[LocalUsers, TrainRequest], ClientTask]
"""Prepares a task for one request; refuses settings of another kind (`pydantic` says which)."""
