"""The round loop: prepare, ask, charge, open, learn, tell - in that order.

A round is one ledger entry. What nodes sent is sealed until that entry is on disk, the noised
release is on disk before anything is learned from it, and all that follows is post-processing that
can be repeated. A process killed between entry and release loses that release: it stays paid for,
the round goes by without an update, and no noise is ever drawn twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from fedlens.accountant.ledger.population import OutOfBudget
from fedlens.foundation.memory import pass_over_present_objects
from fedlens.foundation.traces import traced
from fedlens.server.config.schedule import ScheduledTask
from fedlens.server.federation.contract_check import EnrolmentError
from fedlens.server.learning.learner import Learner
from fedlens.server.ledger.run_ledger import RunLedger
from fedlens.server.round.observer import RunObserver
from fedlens.server.round.sealed import Attendance
from fedlens.server.round.state import RunState
from fedlens.server.round.steps import TaskSteps
from fedlens.store import RunStatus


class TrainingRun:
    """One run over one federation; goes on by itself from what its directory holds."""

    def __init__(
        self,
        steps: TaskSteps,
        ledger: RunLedger,
        learner: Learner,
        state: RunState,
        observers: Sequence[RunObserver],
    ) -> None:
        """Prepare.

        Args:
            steps: touch users' data.
            ledger: what was spent.
            learner: what was learned.
            state: what is on disk.
            observers: told of what happened, in this order.
        """
        self._steps, self._ledger, self._learner = steps, ledger, learner
        self._state, self._observers = state, observers

    def run(self) -> str | None:
        """Train until the declared rounds of all tasks are done or the budget forbids the next.

        Returns:
            Why the run stopped early, or None.

        Raises:
            NoUsableReply: nodes were asked and none gave a usable reply; the round is charged.
            QuorumMissing: too few nodes are there for a round; nothing is charged for it.
        """
        try:
            with pass_over_present_objects():
                stopped = self._carry_out_rounds()
        except BaseException as error:
            missing = isinstance(error, EnrolmentError)  # says public facts of nodes alone
            interrupted = missing or isinstance(error, KeyboardInterrupt)
            why = str(error) if missing else f"ended by {type(error).__name__}"
            self._end(
                "interrupted" if interrupted else "failed",
                f"{why}; {self._state.resume_words()} goes on",
            )
            raise
        self._end("stopped-by-budget" if stopped else "finished", stopped)
        return stopped

    def _carry_out_rounds(self) -> str | None:
        stopped = None
        rounds = self._state.load()
        for observer in self._observers:
            observer.begin(rounds)
        try:
            for number, task in self._state.remaining_rounds():
                with traced("round", round=number, task=task.name):
                    self._carry_out(number, task)
        except OutOfBudget as spent:
            stopped = str(spent)
        self._hide_samples()
        for observer in self._observers:
            observer.finish_rounds()
        return stopped

    def _carry_out(self, number: int, task: ScheduledTask) -> None:
        """One round, or what is left of it where a process was killed in it.

        Raises:
            OutOfBudget: nothing was written or released.
        """
        attendance = Attendance()

        # Prepare: from synthetic images alone.
        self._learner.prepare(task)

        if number > len(self._ledger):
            # Ask: what comes back is sealed. The charge is bound to the task and what it is for.
            request = self._learner.asked(task)
            charge = self._ledger.prepare_charge(task, number)
            sealed = self._steps.ask(task, number, request)

            # Charge, then open: the entry is on disk before there is any release.
            release = sealed.open(charge)
            attendance = release.attendance
            self._state.save_release(number, release, self._steps.note_presence(release))
            for observer in self._observers:
                observer.take_release(task, number, request, release)

        # Learn: post-processing of what is on disk, the same whenever it is done.
        released = self._state.load_release(number)
        figures = self._learner.learn(
            task, number, released, lambda step, steps: self._show_step(number, step / steps)
        )
        finished = self._state.finish_round(number, figures)

        # Tell.
        spending = self._ledger.spending()
        for observer in self._observers:
            observer.finish_round(finished, attendance, spending)

    def _hide_samples(self) -> None:
        """Train the filter that samples wait for, if they do."""
        done = self._state.done
        if done and self._learner.unhidden:
            self._learner.hide(done, lambda step, steps: self._show_step(done, step / steps))
            self._state.save()

    def _show_step(self, number: int, share: float) -> None:
        for observer in self._observers:
            observer.show_step(number, share)

    def _end(self, status: RunStatus, reason: str | None) -> None:
        """Tell each observer how the run ended, though another one fails over it."""
        spending = self._ledger.published()
        with ExitStack() as ends:
            for observer in reversed(self._observers):
                ends.callback(observer.end, status, reason, spending)
