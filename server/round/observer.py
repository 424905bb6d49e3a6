"""What a run's loop tells those who watch it, and what each of them need not care for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from fedlens.accountant.account import Spending
from fedlens.accountant.ledger.chain import LedgerEntry
from fedlens.server.config.schedule import ScheduledTask
from fedlens.server.round.sealed import Attendance, RoundRelease
from fedlens.server.run.history import Facts
from fedlens.server.tasks.protocol import TaskRequest

if TYPE_CHECKING:
    from fedlens.store import RunStatus


@dataclass(frozen=True)
class FinishedRound:
    """A whole round behind the present model."""

    number: int
    task: ScheduledTask
    entry: LedgerEntry
    """What it spent."""
    lost: bool
    """Whether its release was lost with a process: then nothing was learned from it."""
    facts: Facts
    """Its record: `fedlens.server.run.history.round_facts`."""


class RunObserver(Protocol):
    """Watches a run from outside: nothing that it does decides what is asked, paid or learned.

    Every method but `end` may be called again for a round by a process that goes on with the run,
    so each can be repeated without effect. What it raises ends the run, which can be gone on with.
    """

    def begin(self, rounds: Sequence[FinishedRound]) -> None:
        """Training begins, or goes on after these rounds."""
        return

    def take_release(
        self, task: ScheduledTask, number: int, request: TaskRequest, release: RoundRelease
    ) -> None:
        """A round's release is on disk, and nothing was learned from it yet."""
        return

    def show_step(self, number: int, share: float) -> None:
        """A share of the steps is done that the generator takes in a round."""
        return

    def finish_round(
        self, round_: FinishedRound, attendance: Attendance, spending: Spending
    ) -> None:
        """A whole round is on disk; ``spending`` is what the run spent up to it."""
        return

    def finish_rounds(self) -> None:
        """No round is to come."""
        return

    def end(self, status: RunStatus, reason: str | None, spending: Spending) -> None:
        """The run ended, or this process's part of it.

        Args:
            status: how.
            reason: why, where it ended before its plan.
            spending: what it guarantees to those who may have chosen that end.
        """
        return
