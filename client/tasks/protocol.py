"""What a task does on a node: the base of every kind, and its typed settings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from pydantic import BaseModel
from torch import Tensor

from fedlens.client.messages import STRICT, TrainRequest
from fedlens.client.update.clipping import Updates
from fedlens.client.update.record_mode import DrawnRecords
from fedlens.client.users.protocol import LocalData, LocalUsers, NodeDataError


class TaskSettings(BaseModel):
    """The settings of a kind of task as they travel: frozen, typed, unknown ones refused."""

    model_config = STRICT


class ClientTask(ABC):
    """One round of a task on one node.

    A kind has to say what each user contributes; record mode, and several steps in it, are refused
    where it does not say how.
    """

    chunk: int = 16
    """Users to hold in memory at once."""
    takes_steps: bool = False
    """Record mode: whether nodes take several noised steps a round, by `take_step`."""

    @abstractmethod
    def updates(self, cohort: Sequence[LocalData], seeds: Sequence[int]) -> Tensor | Updates:
        """User mode: each user's *unclipped* update, a row each, shape [len(cohort), P].

        A row depends on its own user's records, its seed and public state only. It is called with
        ``chunk`` users always, the last of which may hold nothing; none has more records than the
        request's ``records_per_user``. Work and memory must not depend on what they hold
        (`fedlens.client.users.records.padded` helps), for time tells others of it.
        """

    def record_rows(self, drawn: DrawnRecords) -> Tensor | Updates:
        """Record mode: the *unclipped* contributions of drawn records, at most one each, [n, P].

        That of a record depends on that record and public state only; no record at all gives no
        row, of the same P. Drawing, clip and noise are not the task's:
        `fedlens.client.update.record_mode`.

        Raises:
            NodeDataError: this kind of task has no record mode.
        """
        raise NodeDataError("this kind of task asks users: privacy.unit must be 'user'")

    def take_step(self, release: Tensor) -> None:
        """Go on from a step's noised sum over the fixed denominator, float64 [P].

        Raises:
            NotImplementedError: `takes_steps`, and the kind does not say how.
        """
        raise NotImplementedError("a task that takes steps says how")

    def change(self) -> Tensor:
        """What the node replies, float64 [P]: it follows from the steps' noised sums alone.

        Raises:
            NotImplementedError: as `take_step`.
        """
        raise NotImplementedError("a task that takes steps says what they came to")


ClientTaskFactory = Callable[[LocalUsers, TrainRequest], ClientTask]
"""Prepares a task for one request; refuses settings of another kind (`pydantic` says which)."""
