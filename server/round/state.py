"""What a run goes on with: which rounds are done, and what was learned from them, on disk.

A round's release is on disk before anything is learned from it, and its record before the state
that knows of it. A process that is killed loses the round that it was in at most.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from fedlens.server.config.schedule import ScheduledTask, scheduled
from fedlens.server.config.tree import Config
from fedlens.server.federation.enrolment import Federation
from fedlens.server.learning.learner import Learner
from fedlens.server.ledger.run_ledger import RunLedger
from fedlens.server.round.observer import FinishedRound
from fedlens.server.round.sealed import RoundRelease
from fedlens.server.run.directory import RunDirectory, Snapshot
from fedlens.server.run.history import PINNED, RoundHistory, round_facts


class RunState:
    """The state of one run, in its directory."""

    def __init__(
        self,
        config: Config,
        directory: RunDirectory,
        federation: Federation,
        learner: Learner,
        ledger: RunLedger,
    ) -> None:
        self._directory, self._federation = directory, federation
        self._tasks = [task for task in scheduled(config) for _ in range(task.rounds)]
        self._learner, self._ledger = learner, ledger
        self._history = RoundHistory(directory)
        self._lost: set[int] = set()
        self.done = 0
        """Whole rounds behind the present model, lost releases included."""

    def resume_words(self) -> str:
        """The command by which the run goes on."""
        return self._directory.resume_words()

    def load(self) -> list[FinishedRound]:
        """Take up what an earlier process of the run left; returns the rounds that are done.

        Raises:
            LedgerError: the ledger was changed or cut since.
            RunDirectoryError: a file was damaged.
        """
        snapshot = self._directory.load_state()
        if snapshot is None:
            return []
        self._ledger.check(snapshot.facts["ledger_head"], snapshot.facts["ledger_entries"])
        self._learner.restore(snapshot.arrays)
        self.done, self._lost = snapshot.round, set(snapshot.facts["lost"])
        history = self._history.load(snapshot)
        self._directory.drop_release(self.done)
        return [self._finished(number, facts) for number, facts in enumerate(history, start=1)]

    def remaining_rounds(self) -> Iterator[tuple[int, ScheduledTask]]:
        """The declared rounds that are not done, each with its task."""
        while self.done < len(self._tasks):
            yield self.done + 1, self._tasks[self.done]

    def save_release(self, number: int, release: RoundRelease, presence: object) -> None:
        """Have a round's release on disk, with which nodes it had."""
        self._directory.save_release(number, release.values, presence)

    def load_release(self, number: int) -> NDArray[np.float64] | None:
        """A paid round's release; None where a process was killed before it was on disk."""
        release = self._directory.load_release(number)
        if release is None:
            self._lost.add(number)
        return release

    def finish_round(self, number: int, figures: Mapping[str, float]) -> FinishedRound:
        """Save the state after a round that was learned from, and forget its release."""
        presence = self._directory.load_presence(number)
        facts = round_facts(number, figures, self._ledger.spending(), presence)
        self._history.append(facts)
        self.done = number
        self.save()
        self._directory.drop_release(number)
        return self._finished(number, facts)

    def save(self) -> None:
        """Save the state after the last round that is done; whole or not at all."""
        facts = {
            "lost": sorted(self._lost),
            "ledger_entries": len(self._ledger),
            "ledger_head": self._ledger.head,
            "shape": list(self._federation.shape),
            "classes": self._federation.drawn_classes,
            PINNED: self._history.digest,
        }
        self._directory.save_state(Snapshot(self.done, self._learner.state(), facts))

    def _finished(self, number: int, facts: dict[str, object]) -> FinishedRound:
        (entry,) = self._ledger.between(number - 1, number)
        lost = number in self._lost
        return FinishedRound(number, self._tasks[number - 1], entry, lost, facts)
