"""Writing a run into the store: rounds, ledger mirror, checkpoints and synthetic samples.

Every method can be repeated without effect, so a resumed run publishes again what a killed process
may have left out. The store itself refuses anything that comes before its ledger row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from fedlens.accountant.account import Spending, statement
from fedlens.accountant.statement import promise
from fedlens.foundation.dates import day_of
from fedlens.foundation.profile import timed
from fedlens.foundation.unlabelled import UNLABELLED
from fedlens.models.shapes import as_pixels
from fedlens.server.config.schedule import total_rounds
from fedlens.server.config.tree import Config
from fedlens.server.generation.sampler import Drawn, Sampler
from fedlens.server.learning.builds_on import load_prior, with_cost
from fedlens.server.ledger.plan import noise_source, planned
from fedlens.server.round.observer import FinishedRound, RunObserver
from fedlens.server.round.sealed import Attendance
from fedlens.server.run.directory import RunDirectory
from fedlens.server.run.history import CURVES, FIGURES, PRESENCE
from fedlens.store import (
    BatchRecord,
    CheckpointRow,
    Coverage,
    LedgerRow,
    PresenceRow,
    Purpose,
    ReleaseRow,
    RoundRecord,
    RunRecord,
    RunStatus,
    SampleRecord,
    Store,
    Worth,
    worth_of,
)

SEEDS: dict[Purpose, int] = {"strip": 1_000_003, "curated": 2_000_003, "faithful": 5_000_003}
"""Of a batch's noise, over the run's seed."""
UNLABELLED_STRIPS = 10
"""Times as many images as of one class that a strip has of data without labels."""


def guarantees_something(config: Config) -> bool:
    """Whether the run's noise protects its users."""
    return config.noised and noise_source(config) == "os-entropy"


def provenance(config: Config, purpose: Purpose, worth: Worth = "not judged") -> str:
    """The label beside every sample of a batch: how it came about, and what it is good for."""
    parts = ["SYNTHETIC"]
    if purpose != "strip":
        parts.append(purpose.upper())
    if worth != "not judged":
        parts.append(worth.upper())
    if config.data.unlabelled:
        parts.append(UNLABELLED.upper())
    if config.split.active:
        parts.append("USERS ON ONE SIDE OF A SPLIT")
    if config.data.fault:
        parts.append(f"PLANTED FAULT {config.data.fault}")
    if not guarantees_something(config):
        parts.append("NOT PRIVATE")
    return " · ".join(parts)


class Publication(RunObserver):
    """One run's way into a store: told of rounds, it enters them."""

    def __init__(
        self,
        config: Config,
        directory: RunDirectory,
        store: Store,
        run_id: str,
        name: str,
        data_name: str = "",
        class_names: Sequence[str] = (),
    ) -> None:
        self._class_names = tuple(class_names)
        self._data_name = data_name or config.data.name
        self._config, self._directory, self._store = config, directory, store
        self._run_id, self._name = run_id, name

    @timed("store")
    def enter_run(self) -> None:
        """Enter the run, with what it will guarantee when all its rounds are done."""
        config = self._config
        self._store.create_run(
            RunRecord(
                run_id=self._run_id,
                name=self._name,
                config=config.flat(),
                config_sha256=config.digest(),
                data_name=self._data_name,
                class_names=self._class_names,
                unit=config.privacy.unit,
                users=config.data.users,
                nodes=config.data.nodes,
                rounds_planned=total_rounds(config),
                private=guarantees_something(config),
                guarantee=with_cost(
                    f"When all its rounds are done: {promise(self._planned())}", self._directory
                ),
            )
        )
        self._store.set_run_status(self._run_id, "running")

    def _planned(self) -> Spending:
        return planned(self._config, load_prior(self._directory))

    def begin(self, rounds: Sequence[FinishedRound]) -> None:
        """Enter all rounds that are done: a killed process may have left the last one out."""
        if rounds:
            self.enter_rounds(rounds)

    def finish_round(
        self, round_: FinishedRound, attendance: Attendance, spending: Spending
    ) -> None:
        """Enter a round."""
        self.enter_rounds([round_])

    @timed("store")
    def enter_rounds(self, rounds: Sequence[FinishedRound]) -> None:
        """Mirror ledger entries, say what became of their releases, and record rounds."""
        run_id = self._run_id
        self._store.record_progress(
            [self._ledger_row(one) for one in rounds],
            [self._release_row(one) for one in rounds],
            [_round_record(run_id, one.facts) for one in rounds],
            [
                PresenceRow(run_id=run_id, round=one.number, **one.facts[PRESENCE])
                for one in rounds
                if one.facts.get(PRESENCE)
            ],
        )
        self._directory.date_folders()

    def _ledger_row(self, round_: FinishedRound) -> LedgerRow:
        entry = round_.entry
        return LedgerRow(
            run_id=self._run_id,
            index=entry.index,
            round=entry.round,
            event=entry.event.to_json(),
            purpose=entry.purpose,
            entry_hash=entry.hash,
            created_at=day_of(entry.at),
        )

    def _release_row(self, round_: FinishedRound) -> ReleaseRow:
        return ReleaseRow(
            run_id=self._run_id,
            ledger_index=round_.entry.index,
            round=round_.number,
            status="lost" if round_.lost else "applied",
        )

    def checkpoint(self, number: int, sha256: str) -> None:
        """Record a kept generator."""
        path = self._directory.generator_path(number).relative_to(self._directory.path)
        row = CheckpointRow(run_id=self._run_id, round=number, sha256=sha256, path=str(path))
        self._store.record_checkpoint(row)

    @timed("store")
    def samples(
        self,
        purpose: Purpose,
        number: int,
        sampler: Sampler,
        sha256: str,
        spending: Spending,
        fidelity: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """Draw a batch from a kept generator and store it with its provenance and fidelity.

        A strip shows the generator as it is, so that rounds before and after the annotator's can
        be compared; what is curated is drawn through the sampler's filter, what is faithful comes
        from a sampler without one. Of pairs of class and sensitive value the class alone is kept:
        neither a column nor an order tells what the image hides.
        """
        settings, strip = self._config.release, purpose == "strip"
        sampler = sampler.unfiltered() if strip else sampler
        labelled = not self._config.data.unlabelled
        each = settings.strip * (1 if labelled else UNLABELLED_STRIPS)
        each = each if strip else -(-settings.samples // sampler.shown_classes)
        labels = torch.arange(sampler.shown_classes).repeat(each)
        labels = labels if strip else labels[: settings.samples]
        seed = self._config.seed + SEEDS[purpose]
        drawn = sampler.judged(sampler.asked(labels, seed), seed)
        order = None if strip else sampler.order(len(labels), seed)
        records = sample_records(labels, drawn, order, labelled=labelled)
        private = guarantees_something(self._config)
        figures = {name: getattr(spending, name) for name in FIGURES}
        batch = BatchRecord(
            run_id=self._run_id,
            round=number,
            ledger_index=number - 1,
            purpose=purpose,
            checkpoint_sha256=sha256,
            seed=seed,
            count=len(records),
            private=private,
            rejected=drawn.rejected(labels) if sampler.filters else {},
            fidelity=dict(fidelity),
            provenance=provenance(self._config, purpose, worth_of(fidelity)),
            **figures,
        )
        self._store.add_batch(batch, records)
        self._directory.date_folders()

    @timed("store")
    def end(self, status: RunStatus, reason: str | None, spending: Spending) -> None:
        """Say how the run ended, what it guarantees as it is, and for whom its releases speak.

        Of one that ended before its plan did the last round's record has what it guarantees, too:
        what was spent so far is no bound for who chose that end by looking at releases.
        """
        if spending.rounds < spending.rounds_planned:
            self._restate_last_round(spending)
        guarantee = with_cost(statement(spending, self._config.data.users), self._directory)
        covered = self.coverage()
        told = guarantee if covered.whole else f"{guarantee} {covered.words}"
        self._store.set_run_status(self._run_id, status, reason, told)

    def _restate_last_round(self, spending: Spending) -> None:
        rounds = self._store.rounds(self._run_id)
        if rounds:
            names = ("dp_method", *CURVES, *FIGURES)
            figures: dict[str, Any] = {name: getattr(spending, name) for name in names}
            self._store.record_progress([], [], [replace(rounds[-1], **figures)], [])

    def coverage(self) -> Coverage:
        """Which nodes the run's rounds had."""
        return self._store.presence(self._run_id)


def sample_records(
    labels: Tensor, drawn: Drawn, order: Tensor | None = None, *, labelled: bool = True
) -> list[SampleRecord]:
    """The samples of a batch, with the annotator's opinion where there is one.

    Where the data are not ``labelled``, they were requested for no class.

    ``order`` int64 [n] says which stands where. Samples are numbered as they stand, and annotators
    see numbers: of classes in turn the number would tell the class that they are not to know.
    """
    agreed: list[float | None] = [None] * len(labels)
    if drawn.agreement is not None:
        agreed = drawn.agreement.clamp(0, 1).tolist()
    triples = list(zip(labels.tolist(), as_pixels(drawn.images), agreed, strict=True))
    if order is not None:
        triples = [triples[place] for place in order.tolist()]
    return [
        SampleRecord.from_pixels(
            position=i,
            requested_class=label if labelled else None,
            pixels=image,
            agreement=agreement,
        )
        for i, (label, image, agreement) in enumerate(triples)
    ]


def _with_infinities(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {k: float("inf") if v is None else v for k, v in facts.items()}


def _round_record(run_id: str, facts: Mapping[str, Any]) -> RoundRecord:
    """The record of `round_facts`."""
    curves = {name: _with_infinities(facts[name]) for name in CURVES}
    figures = {key: value for key, value in facts.items() if key != PRESENCE}
    return RoundRecord(run_id=run_id, **{**_with_infinities(figures), **curves})
