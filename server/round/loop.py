"""The round loop: ask, check, account, noise, learn, save, publish - in that order.

A round is one ledger entry. The entry is on disk before any noised part of the release is kept or
used, the noised aggregate is on disk before anything is learned from it, and all that follows is
post-processing that can be repeated. A process killed between entry and aggregate loses that
release: it stays paid for, the round goes by without an update, and no noise is ever drawn twice.
"""

from __future__ import annotations

from itertools import accumulate

import numpy as np
from flwr.serverapp import Grid
from numpy.typing import NDArray

from fedlens.accountant.ledger.population import OutOfBudget
from fedlens.client.messages import UserSplit
from fedlens.foundation.traces import traced
from fedlens.models.generators import Generator
from fedlens.models.vectors import to_vector
from fedlens.server.config.schedule import ScheduledTask, expected_work, task_at, total_rounds
from fedlens.server.config.tree import Config
from fedlens.server.federation.enrolment import Federation
from fedlens.server.federation.membership import Membership
from fedlens.server.generation.compute import faithful_threads, generator_way, has_spare_cores
from fedlens.server.generation.sampler import kept_arrays
from fedlens.server.learning.background import Ahead
from fedlens.server.learning.learner import Asked, Learner
from fedlens.server.learning.unguided import faithful_sampler
from fedlens.server.ledger.run_ledger import RunLedger
from fedlens.server.round.masked_step import SecureStep
from fedlens.server.round.publication import Publication, round_facts
from fedlens.server.round.releases import ReleaseShelf
from fedlens.server.round.slots import RoundSlots
from fedlens.server.round.step import NoUsableReply, PrivateStep, StepPlan
from fedlens.server.run.arrays import digest_of
from fedlens.server.run.directory import RunDirectory, Snapshot, load_generator
from fedlens.server.run.history import Facts, RoundHistory
from fedlens.server.run.key import kept_key
from fedlens.server.run.progress import Observer, Progress
from fedlens.server.run.status import Attendance, RunStatusFile
from fedlens.store import Purpose


class TrainingRun:
    """One run over one federation; goes on by itself from what its directory holds."""

    def __init__(
        self,
        config: Config,
        directory: RunDirectory,
        grid: Grid,
        federation: Federation,
        learner: Learner,
        run_ledger: RunLedger,
        publication: Publication,
        observer: Observer | None = None,
        split: UserSplit | None = None,
        membership: Membership | None = None,
    ) -> None:
        self._config, self._directory, self._split = config, directory, split
        self._grid, self._federation, self._learner = grid, federation, learner
        self._membership = membership or Membership(config, grid, federation)
        self._run_ledger, self._publication, self._observer = run_ledger, publication, observer
        self._rounds = total_rounds(config)
        self._work = list(accumulate(expected_work(config), initial=0))
        self._status, self._attendance = RunStatusFile(directory, self._rounds), Attendance()
        self._slots = RoundSlots(config.rounds)
        self._steps: dict[str, PrivateStep] = {}
        self._done = 0
        self._history = RoundHistory(directory)
        self._shelf = ReleaseShelf(directory, config, federation)
        self._lost: set[int] = set()
        self._ahead: Ahead[Generator] | None = None

    def run(self) -> str | None:
        """Train until the declared rounds of all tasks are done or the budget forbids the next.

        Returns:
            Why the run stopped early, or None.

        Raises:
            NoUsableReply: nodes were asked and none gave a usable reply; the round is charged.
            QuorumMissing: too few nodes are there for a round; nothing is charged for it.
        """
        self._resume()
        nodes = len(self._federation.roster.node_ids)
        how = self._learner.computed_by, generator_way(self._config)
        self._status.began(self._done, nodes, *how)
        try:
            return self._all_rounds()
        finally:
            if self._ahead is not None:
                self._ahead.stop()

    def _all_rounds(self) -> str | None:
        while self._done < self._rounds:
            self._begin_faithful()
            number = self._done + 1
            task = task_at(self._config, number)
            try:
                with traced("round", round=number, task=task.name):
                    self._carry_out(task, number)
            except OutOfBudget as spent:
                self._release_samples()
                return str(spent)
        self._release_samples()
        return None

    def _carry_out(self, task: ScheduledTask, number: int) -> None:
        """One round.

        Raises:
            OutOfBudget: it is not begun.
        """
        self._learner.prepare(task)
        if number > len(self._run_ledger):
            self._spend(task, number)
        self._learn(task, number)

    @property
    def rounds_done(self) -> int:
        """Whole rounds behind the present model, lost releases included."""
        return self._done

    def model_digest(self) -> str:
        """SHA-256 of all that was learned: equal runs have equal digests."""
        return digest_of(self._learner.state())

    def ended(self, status: str, reason: str | None) -> None:
        """Say in log and folder how the run ended."""
        self._status.ended(status, reason, self._run_ledger.published())

    # What touches users' data

    def _spend(self, task: ScheduledTask, number: int) -> None:
        step, asked = self._step_of(task), self._learner.asked(task)
        purpose = task.settings.purpose
        reason = self._run_ledger.refusal(task.event, purpose)
        if reason is not None:
            raise OutOfBudget(reason)
        step.meet(self._membership.ready())
        if isinstance(step, SecureStep) and step.noised_by_nodes:
            release, accepted = self._spend_masked(step, task, number, asked)
        elif step.record_mode:
            # the replies are releases themselves, so the entry comes before the question
            self._run_ledger.charge(task.event, number, None)
            with self._slots.held():
                aggregate = step.gather(number, asked)
            release, accepted = step.release(aggregate, number), aggregate.accepted
        else:
            try:
                with self._slots.held():
                    aggregate = step.gather(number, asked)
            except NoUsableReply:
                self._run_ledger.charge(task.event, number, None, purpose)
                raise
            norms = step.evidence(aggregate, number)
            self._run_ledger.charge(task.event, number, norms, purpose)
            release, accepted = step.release(aggregate, number), aggregate.accepted
        self._attendance = step.attendance
        presence = self._membership.answered(accepted)
        self._directory.save_release(number, release, presence)
        self._shelf.keep(task, asked, number, release)

    def _spend_masked(
        self, step: SecureStep, task: ScheduledTask, number: int, asked: Asked
    ) -> tuple[NDArray[np.float64], tuple[int, ...]]:
        """The release of nodes that add the noise: charged while it is masked, then opened.

        Returns:
            It, and the places in the roster of the nodes that it is of.
        """
        event, purpose = task.event, task.settings.purpose
        with self._slots.held():
            try:
                masked = step.mask(number, asked)
            except NoUsableReply:
                self._run_ledger.charge(event, number, None, purpose)
                raise
            book = self._run_ledger.charge_ahead(event, number, purpose, norms=step.has_norms)
            try:
                release, norms = step.opened(masked, number)
            except BaseException:  # an interruption too: the round is paid for
                book(None)
                raise
        book(norms)
        return release, masked.survivors

    def _step_of(self, task: ScheduledTask) -> PrivateStep:
        if task.name not in self._steps:
            state = self._learner.task(task)
            plan = StepPlan(
                config=self._config,
                task=task,
                grid=self._grid,
                federation=self._federation,
                size=state.size,
                largest_reply=state.largest_reply,
                key=kept_key(self._config, self._directory),
                positive=task.settings.positive,
                split=self._split,
            )
            kind = SecureStep if self._config.aggregation.secure else PrivateStep
            self._steps[task.name] = kind(plan)
        return self._steps[task.name]

    # Post-processing

    def _learn(self, task: ScheduledTask, number: int) -> None:
        release = self._directory.load_release(number)
        presence = self._directory.load_presence(number)
        if release is None:
            self._lost.add(number)
        metrics = self._learner.learn(
            task, number, release, lambda step, steps: self._show(number, step / steps)
        )
        self._done = number
        facts = round_facts(number, metrics, self._run_ledger.spending(), presence)
        self._history.append(facts)
        self._directory.save_state(self._snapshot())
        self._directory.drop_release(number)
        self._publish(task, number, facts)
        self._status.finished_round(number, self._attendance, self._run_ledger.spending())

    def _show(self, number: int, share: float) -> None:
        if self._observer is None:
            return
        behind, before = self._work[number], self._work[number - 1]
        whole = (before + share * (behind - before)) / self._work[-1]
        spending = self._run_ledger.spending()
        self._observer(Progress(number, self._rounds, share, whole, spending))

    def _publish(self, task: ScheduledTask, number: int, facts: Facts) -> None:
        entry = self._run_ledger.between(number - 1, number)
        self._publication.progress(entry, self._lost, [facts])
        self._directory.date_folders()
        if not self._learner.showable(task):
            return
        moved = self._learner.moves_the_generator(task, number)
        due = moved and number % self._config.release.every == 0
        if due or number == task.last:
            self._publish_samples("strip", number)

    def _publish_samples(self, purpose: Purpose, number: int) -> None:
        sampler = self._learner.sampler(number)
        sha256 = self._directory.save_generator(number, kept_arrays(sampler))
        self._publication.checkpoint(number, sha256)
        so_far, ledger = purpose == "strip", self._run_ledger
        spending = ledger.spending() if so_far else ledger.published()
        self._publication.samples(purpose, number, sampler, sha256, spending)
        self._directory.date_folders()

    def _release_samples(self) -> None:
        if not self._done:
            return
        if self._learner.unhidden:
            self._learner.hide(self._done, lambda step, steps: self._show(self._done, step / steps))
            self._directory.save_state(self._snapshot())
        if self._learner.showable(task_at(self._config, self._done)):
            self._publish_samples("curated", self._done)
            self._publish_faithful(self._done)

    def _publish_faithful(self, number: int) -> None:
        """Samples that show faults; none where a filter, trained on others, is to hide something.

        A run that is resumed finds the generator that it trained before.
        """
        sampler = self._learner.sampler(number)
        if sampler.privatizer is not None:
            return
        path = self._directory.faithful_path(number)
        if not path.exists():
            made = self._made_faithful(number)
            if made is not None:
                self._directory.save_faithful(number, to_vector(made))
        sampler = faithful_sampler(self._directory, number, sampler)
        sha256 = digest_of({"average": to_vector(sampler.generator)})
        spending = self._run_ledger.published()
        self._publication.samples("faithful", number, sampler, sha256, spending)
        self._directory.date_folders()

    def _made_faithful(self, number: int) -> Generator | None:
        def show(step: int, steps: int) -> None:
            self._show(number, step / steps)

        if self._ahead is None or not self._learner.has_faithful(number):
            return self._learner.faithful(number, self._kept_generator, show)
        return self._ahead.result(show)

    def _begin_faithful(self) -> None:
        """Train the generator of faithful samples beside the rounds to come, on a core of its own.

        It is the same as if it were trained after them: nothing that it is made of changes any
        more.
        """
        trained = self._ahead is not None or self._directory.faithful_path(self._rounds).exists()
        if trained or not self._learner.settles_faithful(self._done):
            return
        if has_spare_cores(faithful_threads(self._config)):
            learner, kept = self._learner, self._kept_generator
            self._ahead = Ahead(lambda on_step: learner.train_faithful(kept, on_step))

    def _kept_generator(self, number: int) -> NDArray[np.float32] | None:
        """The last generator that was kept up to a round, if any was."""
        paths = [self._directory.generator_path(n) for n in range(number, 0, -1)]
        found = next((path for path in paths if path.exists()), None)
        return None if found is None else load_generator(found)["average"].astype(np.float32)

    # State

    def _snapshot(self) -> Snapshot:
        facts = {
            "lost": sorted(self._lost),
            "ledger_entries": len(self._run_ledger),
            "ledger_head": self._run_ledger.head,
            "shape": list(self._federation.shape),
            "classes": self._federation.drawn_classes,
        }
        return Snapshot(self._done, self._learner.state(), facts)

    def _resume(self) -> None:
        snapshot = self._directory.load_state()
        if snapshot is None:
            return
        self._run_ledger.check(snapshot.facts["ledger_head"], snapshot.facts["ledger_entries"])
        self._learner.restore(snapshot.arrays)
        self._done = snapshot.round
        self._lost = set(snapshot.facts["lost"])
        history = self._history.load(snapshot)
        entries = self._run_ledger.between(0, self._done)
        self._publication.progress(entries, self._lost, history)
        self._directory.drop_release(self._done)
        self._publish(task_at(self._config, self._done), self._done, history[-1])
