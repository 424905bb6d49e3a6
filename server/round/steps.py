"""Whom rounds ask, and by which mechanism: a private step for each task of a run."""

from __future__ import annotations

from fedlens.client.messages import UserSplit
from fedlens.server.config.schedule import ScheduledTask
from fedlens.server.federation.membership import Membership
from fedlens.server.learning.learner import Learner
from fedlens.server.round.masked_step import SecureStep
from fedlens.server.round.sealed import RoundRelease, SealedRound
from fedlens.server.round.step import PrivateStep, StepPlan
from fedlens.server.run.directory import RunDirectory, load_key
from fedlens.server.tasks.protocol import TaskRequest


class TaskSteps:
    """The private steps of one run's tasks, each made when its first round comes."""

    def __init__(
        self,
        learner: Learner,
        membership: Membership,
        directory: RunDirectory,
        split: UserSplit | None = None,
    ) -> None:
        """Prepare.

        Args:
            learner: knows how long a task's updates are.
            membership: knows which nodes are there.
            directory: keeps the run's key.
            split: the side of a private split that is asked; None for everyone.
        """
        self._learner, self._membership = learner, membership
        self._directory, self._split = directory, split
        self._steps: dict[str, PrivateStep] = {}

    def ask(self, task: ScheduledTask, number: int, request: TaskRequest) -> SealedRound:
        """Ask the nodes that are there for a round, once their quorum is.

        Raises:
            QuorumMissing: it is not; nothing was asked.
            EnrolmentError: users are to be left out, and nodes would take them.
            NoiseUnsound: this installation's noise fails its self-test.
        """
        step = self._step_of(task)
        step.meet(self._membership.wait_for_quorum())
        return step.ask(number, request)

    def note_presence(self, release: RoundRelease) -> dict[str, object]:
        """Take in which nodes answered; returns what is kept of it."""
        return self._membership.note_answers(release.accepted)

    def _step_of(self, task: ScheduledTask) -> PrivateStep:
        if task.name not in self._steps:
            state, config = self._learner.task(task), self._membership.config
            plan = StepPlan(
                config=config,
                task=task,
                grid=self._membership.grid,
                federation=self._membership.federation,
                size=state.size,
                largest_reply=state.largest_reply,
                key=load_key(config, self._directory),
                positive=task.settings.positive,
                split=self._split,
            )
            kind = SecureStep if config.aggregation.secure else PrivateStep
            self._steps[task.name] = kind(plan)
        return self._steps[task.name]
