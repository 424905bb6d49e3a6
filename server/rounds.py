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
from accountant.population import OutOfBudget
from client.records import Vector
from server.books import Books
from server.config import Config
from server.critics import FAMILIES
from server.curation import kept_arrays, sampler_of
from server.directory import RunDirectory, Snapshot, digest_of
from server.enrolment import Federation
from server.generator import GeneratorTrainer
from server.mechanism import round_event
from server.private_step import NoUsableReply, PrivateStep
from server.publication import Publication, round_facts
from server.tensors import Arrays, under, within


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
        books: Books,
        publication: Publication,
        observer: Observer | None = None,
    ) -> None:
        self._config, self._directory, self._federation = config, directory, federation
        self._books, self._publication, self._observer = books, publication, observer
        family = FAMILIES[config.critic.family]
        self._critic = family(config, federation.shape, federation.classes)
        self._step = PrivateStep(
            config, grid, federation, self._critic.size, self._critic.largest_change
        )
        self._event = round_event(config)
        self._trainer = GeneratorTrainer(config, federation.shape, federation.classes)
        self._done = 0
        self._history: list[dict[str, Any]] = []
        self._lost: set[int] = set()

    def run(self) -> str | None:
        """Train until the declared rounds are done or the budget forbids the next.

        Returns:
            Why the run stopped early, or None.

        Raises:
            NoUsableReply: nodes were asked and none gave a usable reply; the round is charged.
        """
        self._resume()
        while self._done < self._config.rounds.count:
            number = self._done + 1
            if number > len(self._books.entries):
                try:
                    self._spend(number)
                except OutOfBudget as spent:
                    self._release_samples()
                    return str(spent)
            self._learn(number)
        self._release_samples()
        return None

    @property
    def rounds_done(self) -> int:
        """Whole rounds behind the present model, lost releases included."""
        return self._done

    def model_digest(self) -> str:
        """SHA-256 of generator, its average and critic: equal runs have equal digests."""
        return digest_of(self._arrays())

    # What touches users' data

    def _spend(self, number: int) -> None:
        event, weights = self._event, self._weights()
        reason = self._books.refusal(event)
        if reason is not None:
            raise OutOfBudget(reason)
        if self._step.record_mode:
            # the replies are releases themselves, so the entry comes before the question
            self._books.charge(event, number, None)
            aggregate = self._step.gather(number, weights)
        else:
            try:
                aggregate = self._step.gather(number, weights)
            except NoUsableReply:
                self._books.charge(event, number, None)
                raise
            self._books.charge(event, number, self._step.evidence(aggregate))
        release = self._step.release(aggregate, number)
        self._directory.save_release(number, release)

    def _weights(self) -> dict[str, Vector]:
        critic = self._critic.weights()
        return {} if critic is None else {"critic": critic, "generator": self._trainer.weights()}

    # Post-processing

    def _learn(self, number: int) -> None:
        # the clock starts here: how long the nodes took tells how many users were drawn
        started = time.monotonic()
        release = self._directory.load_release(number)
        if release is None:
            self._lost.add(number)
        else:
            self._critic.absorb(release)
        settings, rounds = self._config.generator, self._config.rounds.count
        loss = self._trainer.train(
            self._critic.loss,
            steps=settings.steps,
            rate=settings.rate,
            done=settings.steps * (number - 1),
            planned=settings.steps * rounds,
            on_step=lambda step: self._show(number, step),
        )
        self._done = number
        seconds = time.monotonic() - started
        metrics = {"generator_loss": loss}
        self._history.append(round_facts(number, metrics, self._books.spending(), seconds))
        self._directory.save_state(self._snapshot())
        self._directory.drop_release(number)
        self._publish(number)

    def _show(self, number: int, step: int) -> None:
        if self._observer is not None:
            share = step / self._config.generator.steps
            rounds = self._config.rounds.count
            self._observer(Progress(number, rounds, share, self._books.spending()))

    def _publish(self, number: int) -> None:
        entry = self._books.entries[number - 1 : number]
        self._publication.progress(entry, self._lost, self._history[-1:])
        rounds = self._config.rounds.count
        if number % self._config.release.every == 0 or number == rounds:
            self._publish_samples("strip", number)

    def _publish_samples(self, purpose: str, number: int) -> None:
        sampler = sampler_of(self._config, self._trainer.average, None)
        sha256 = self._directory.save_generator(number, kept_arrays(sampler))
        self._publication.checkpoint(number, sha256)
        self._publication.samples(purpose, number, sampler, sha256, self._books.spending())

    def _release_samples(self) -> None:
        if self._done:
            self._publish_samples("release", self._done)

    # State

    def _arrays(self) -> Arrays:
        return {
            **under("generator", self._trainer.state()),
            **under("critic", self._critic.state()),
        }

    def _snapshot(self) -> Snapshot:
        facts = {
            "history": self._history,
            "lost": sorted(self._lost),
            "ledger_entries": len(self._books.entries),
            "ledger_head": self._books.head,
            "shape": list(self._federation.shape),
            "classes": self._federation.classes,
        }
        return Snapshot(self._done, self._arrays(), facts)

    def _resume(self) -> None:
        snapshot = self._directory.load_state()
        if snapshot is None:
            return
        self._books.check(snapshot.facts["ledger_head"], snapshot.facts["ledger_entries"])
        self._trainer.restore(within("generator", snapshot.arrays))
        self._critic.restore(within("critic", snapshot.arrays))
        self._done = snapshot.round
        self._history = list(snapshot.facts["history"])
        self._lost = set(snapshot.facts["lost"])
        entries = self._books.entries[: self._done]
        self._publication.progress(entries, self._lost, self._history)
        self._directory.drop_release(self._done)
        self._publish(self._done)
