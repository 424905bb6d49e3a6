"""The round loop: ask, check, account, noise, learn, save, publish - in that order.

A round is one ledger entry. The entry is on disk before the noise is drawn, the noised aggregate is
on disk before anything is learned from it, and all that follows is post-processing that can be
repeated. A process killed between entry and aggregate loses that release: it stays paid for, the
round goes by without an update, and no noise is ever drawn twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flwr.serverapp import Grid

from accountant.account import Spending
from accountant.ledger.population import OutOfBudget
from server.config.tree import Config
from server.enrolment import Federation
from server.learner import Learners
from server.private_step import NoUsableReply, PrivateStep
from server.publication import Publication, round_facts
from server.run_directory import RunDirectory, Snapshot, digest_of
from server.run_ledger import RunLedger
from server.sampler import kept_arrays
from server.schedule import Part, part_of, total_rounds


@dataclass(frozen=True)
class Progress:
    """How far a run is, for whoever shows it."""

    round: int
    rounds: int
    share: float
    """Share of the present round's generator steps that are done."""
    spending: Spending


Observer = Callable[[Progress], None]


class Training:
    """One run over one federation; goes on by itself from what its directory holds."""

    def __init__(
        self,
        config: Config,
        directory: RunDirectory,
        grid: Grid,
        federation: Federation,
        learners: Learners,
        run_ledger: RunLedger,
        publication: Publication,
        observer: Observer | None = None,
    ) -> None:
        self._config, self._directory = config, directory
        self._grid, self._federation, self._learners = grid, federation, learners
        self._run_ledger, self._publication, self._observer = run_ledger, publication, observer
        self._rounds = total_rounds(config)
        self._steps: dict[str, PrivateStep] = {}
        self._done = 0
        self._history: list[dict[str, Any]] = []
        self._lost: set[int] = set()

    def run(self) -> str | None:
        """Train until the declared rounds of all parts are done or the budget forbids the next.

        Returns:
            Why the run stopped early, or None.

        Raises:
            NoUsableReply: nodes were asked and none gave a usable reply; the round is charged.
        """
        self._resume()
        while self._done < self._rounds:
            number = self._done + 1
            part = part_of(self._config, number)
            self._learners.prepare(part)
            if number > len(self._run_ledger.entries):
                try:
                    self._spend(part, number)
                except OutOfBudget as spent:
                    self._release_samples()
                    return str(spent)
            self._learn(part, number)
        self._release_samples()
        return None

    @property
    def rounds_done(self) -> int:
        """Whole rounds behind the present model, lost releases included."""
        return self._done

    def model_digest(self) -> str:
        """SHA-256 of all that was learned: equal runs have equal digests."""
        return digest_of(self._learners.state())

    # What touches users' data

    def _spend(self, part: Part, number: int) -> None:
        step, weights = self._step_of(part), self._learners.weights(part)
        reason = self._run_ledger.refusal(part.event)
        if reason is not None:
            raise OutOfBudget(reason)
        if step.record_mode:
            # the replies are releases themselves, so the entry comes before the question
            self._run_ledger.charge(part.event, number, None)
            aggregate = step.gather(number, weights)
        else:
            try:
                aggregate = step.gather(number, weights)
            except NoUsableReply:
                self._run_ledger.charge(part.event, number, None)
                raise
            self._run_ledger.charge(part.event, number, step.evidence(aggregate))
        release = step.release(aggregate, number)
        self._directory.save_release(number, release)

    def _step_of(self, part: Part) -> PrivateStep:
        if part.name not in self._steps:
            learners = self._learners
            size, largest = learners.size(part), learners.largest_reply(part)
            self._steps[part.name] = PrivateStep(
                self._config, part, self._grid, self._federation, size, largest
            )
        return self._steps[part.name]

    # Post-processing

    def _learn(self, part: Part, number: int) -> None:
        # the clock starts here: how long the nodes took tells how many users were drawn
        started = time.monotonic()
        release = self._directory.load_release(number)
        if release is None:
            self._lost.add(number)
        metrics = self._learners.learn(
            part, number, release, lambda step, steps: self._show(number, step / steps)
        )
        self._done = number
        seconds = time.monotonic() - started
        self._history.append(round_facts(number, metrics, self._run_ledger.spending(), seconds))
        self._directory.save_state(self._snapshot())
        self._directory.drop_release(number)
        self._publish(part, number)

    def _show(self, number: int, share: float) -> None:
        if self._observer is not None:
            self._observer(Progress(number, self._rounds, share, self._run_ledger.spending()))

    def _publish(self, part: Part, number: int) -> None:
        entry = self._run_ledger.entries[number - 1 : number]
        self._publication.progress(entry, self._lost, self._history[-1:])
        if not self._learners.showable(part):
            return
        due = number % self._config.release.every == 0 and part.name != "annotator"
        if due or number == part.last:  # the generator rests in the annotator's other rounds
            self._publish_samples("strip", number)

    def _publish_samples(self, purpose: str, number: int) -> None:
        sampler = self._learners.sampler(number)
        sha256 = self._directory.save_generator(number, kept_arrays(sampler))
        self._publication.checkpoint(number, sha256)
        self._publication.samples(purpose, number, sampler, sha256, self._run_ledger.spending())

    def _release_samples(self) -> None:
        if not self._done:
            return
        if self._learners.unhidden:
            self._learners.hide(
                self._done, lambda step, steps: self._show(self._done, step / steps)
            )
            self._directory.save_state(self._snapshot())
        if self._learners.showable(part_of(self._config, self._done)):
            self._publish_samples("release", self._done)

    # State

    def _snapshot(self) -> Snapshot:
        facts = {
            "history": self._history,
            "lost": sorted(self._lost),
            "ledger_entries": len(self._run_ledger.entries),
            "ledger_head": self._run_ledger.head,
            "shape": list(self._federation.shape),
            "classes": self._federation.drawn_classes,
        }
        return Snapshot(self._done, self._learners.state(), facts)

    def _resume(self) -> None:
        snapshot = self._directory.load_state()
        if snapshot is None:
            return
        self._run_ledger.check(snapshot.facts["ledger_head"], snapshot.facts["ledger_entries"])
        self._learners.restore(snapshot.arrays)
        self._done = snapshot.round
        self._history = list(snapshot.facts["history"])
        self._lost = set(snapshot.facts["lost"])
        entries = self._run_ledger.entries[: self._done]
        self._publication.progress(entries, self._lost, self._history)
        self._directory.drop_release(self._done)
        self._publish(part_of(self._config, self._done), self._done)
