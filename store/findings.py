"""Findings: what engineers think is wrong with users' data, the evidence, and what became of it.

A finding's history is append-only. Evidence is frozen when it is added: samples by their pixels'
digest, a diagnosis and a probe's answer as they were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from fedlens.store.checks import check_choice, check_json, check_text, require
from fedlens.store.errors import StoreError
from fedlens.store.records import utc_now
from fedlens.store.rows import require_run, to_record
from fedlens.store.schema import SampleTable
from fedlens.store.schema_findings import FindingEntryTable, FindingTable
from fedlens.store.transactions import Transactions

FindingStatus = Literal["open", "confirmed", "refuted", "mended"]
EntryKind = Literal["opened", "status", "note", "reworded", "samples", "diagnosis", "probe"]
EvidenceKind = Literal["diagnosis", "probe"]
LONGEST_HYPOTHESIS = 500
LONGEST_NOTE = 10_000
LARGEST_EVIDENCE = 2_000_000
"""Characters of JSON."""
MOST_SAMPLES = 1000


@dataclass(frozen=True, kw_only=True)
class FindingRecord:
    """A hypothesis about a run's users' data."""

    run_id: str
    hypothesis: str
    """In a sentence, such as ``turned left by 90 degrees in 31% of users``."""
    fault: str | None = None
    """The library's name of it, where it came from a diagnosis."""

    def __post_init__(self) -> None:
        check_text(self, "run_id")
        _check_words("hypothesis", self.hypothesis, LONGEST_HYPOTHESIS)


@dataclass(frozen=True, kw_only=True)
class StoredFinding:
    """A finding as its history has left it. Key: ``finding_id``."""

    finding_id: int
    run_id: str
    hypothesis: str
    fault: str | None
    status: FindingStatus
    author: str
    created_at: datetime
    changed_at: datetime


@dataclass(frozen=True, kw_only=True)
class FindingEntry:
    """One line of a finding's history; it never changes."""

    entry_id: int
    finding_id: int
    at: datetime
    author: str
    kind: EntryKind
    content: Mapping[str, Any]
    """``note``: ``text``; ``opened`` and ``reworded``: ``hypothesis``; ``status``: ``status`` and
    ``text``; ``samples``: ``samples``, each with ``sample_id``, ``sha256``, ``requested_class``
    and ``batch_id``; ``diagnosis`` and ``probe``: the answer as it was."""


class FindingMethods(Transactions):
    """Findings and their history."""

    def add_finding(
        self,
        record: FindingRecord,
        *,
        author: str,
        diagnosis: Mapping[str, Any] | None = None,
    ) -> int:
        """Open a finding; give back its id.

        Args:
            record: what is claimed.
            author: who claims it.
            diagnosis: the answer that it comes from, kept with it as it is now: both or neither.

        Raises:
            StoreError: there is no such run, or the diagnosis is no JSON object, or too large.
        """
        if diagnosis is not None:
            _check_evidence(diagnosis)
        with self._writing() as session:
            require_run(session, record.run_id)
            now = utc_now()
            row = FindingTable(
                run_id=record.run_id,
                hypothesis=record.hypothesis.strip(),
                fault=record.fault,
                status="open",
                author=_named(author),
                created_at=now,
                changed_at=now,
            )
            session.add(row)
            session.flush()
            content = {"hypothesis": row.hypothesis, "fault": record.fault}
            _enter(session, row, "opened", content, author)
            if diagnosis is not None:
                _enter(session, row, "diagnosis", diagnosis, author)
            return row.finding_id

    def reword_finding(self, finding_id: int, hypothesis: str, *, author: str) -> None:
        """Say a finding's hypothesis in other words; the earlier ones stay in its history."""
        _check_words("hypothesis", hypothesis, LONGEST_HYPOTHESIS)
        with self._writing() as session:
            row = _required(session, finding_id)
            if row.hypothesis != hypothesis.strip():
                row.hypothesis = hypothesis.strip()
                _enter(session, row, "reworded", {"hypothesis": row.hypothesis}, author)

    def set_finding_status(
        self, finding_id: int, status: FindingStatus, *, author: str, note: str = ""
    ) -> None:
        """Say what became of a finding, and why; the same status without a note changes nothing."""
        check_choice("status", status, FindingStatus)
        most = f"give at most {LONGEST_NOTE:,}"
        require(len(note) <= LONGEST_NOTE, "note", f"{len(note)} characters", most)
        with self._writing() as session:
            row = _required(session, finding_id)
            if row.status != status:
                row.status = status
                _enter(session, row, "status", {"status": status, "text": note.strip()}, author)
            elif note.strip():
                _enter(session, row, "note", {"text": note.strip()}, author)

    def add_evidence(
        self, finding_id: int, kind: EvidenceKind, content: Mapping[str, Any], *, author: str
    ) -> None:
        """Add an answer as it is now; what is there already, in the same words, is not repeated.

        Raises:
            StoreError: it is no JSON object, or too large.
        """
        check_choice("kind", kind, EvidenceKind)
        _check_evidence(content)
        with self._writing() as session:
            row = _required(session, finding_id)
            there = [one.content for one in _entries(session, finding_id) if one.kind == kind]
            if dict(content) not in [dict(one) for one in there]:
                _enter(session, row, kind, content, author)

    def add_samples_to_finding(
        self, finding_id: int, sample_ids: Sequence[int], *, author: str
    ) -> int:
        """Add samples as evidence, with the digest of their pixels; how many were not there yet.

        Raises:
            StoreError: one is not in the store, or they are too many at once.
        """
        most = f"give at most {MOST_SAMPLES} at once"
        require(len(sample_ids) <= MOST_SAMPLES, "sample_ids", len(sample_ids), most)
        with self._writing() as session:
            row = _required(session, finding_id)
            there = {
                one["sample_id"]
                for entry in _entries(session, finding_id)
                if entry.kind == "samples"
                for one in entry.content["samples"]
            }
            wanted = [one for one in dict.fromkeys(sample_ids) if one not in there]
            if wanted:
                frozen = _frozen(session, wanted)
                _enter(session, row, "samples", {"samples": frozen}, author)
            return len(wanted)

    def findings(
        self,
        *,
        run_id: str | None = None,
        status: FindingStatus | None = None,
        author: str | None = None,
    ) -> list[StoredFinding]:
        """Findings, the last one changed first."""
        given = {"run_id": run_id, "status": status, "author": author}
        wanted = {name: value for name, value in given.items() if value is not None}
        with self._reading() as session:
            order = (FindingTable.changed_at.desc(), FindingTable.finding_id.desc())
            rows = session.scalars(select(FindingTable).filter_by(**wanted).order_by(*order))
            return [to_record(StoredFinding, row) for row in rows]

    def finding(self, finding_id: int) -> StoredFinding:
        """One finding."""
        with self._reading() as session:
            return to_record(StoredFinding, _required(session, finding_id))

    def finding_history(self, finding_id: int) -> list[FindingEntry]:
        """All that happened to a finding, the first first."""
        with self._reading() as session:
            _required(session, finding_id)
            return [to_record(FindingEntry, row) for row in _entries(session, finding_id)]


def _required(session: Session, finding_id: int) -> FindingTable:
    row = session.get(FindingTable, finding_id)
    if row is None:
        raise StoreError(f"finding_id = {finding_id}: the store has no such finding")
    return row


def _entries(session: Session, finding_id: int) -> list[FindingEntryTable]:
    found = select(FindingEntryTable).where(FindingEntryTable.finding_id == finding_id)
    return list(session.scalars(found.order_by(FindingEntryTable.entry_id)))


def _enter(
    session: Session, row: FindingTable, kind: EntryKind, content: Mapping[str, Any], author: str
) -> None:
    now = utc_now()
    row.changed_at = now
    session.add(
        FindingEntryTable(
            finding_id=row.finding_id, at=now, author=_named(author), kind=kind, content=content
        )
    )


def _frozen(session: Session, sample_ids: Sequence[int]) -> list[dict[str, Any]]:
    columns = (
        SampleTable.sample_id,
        SampleTable.sha256,
        SampleTable.requested_class,
        SampleTable.batch_id,
    )
    rows = session.execute(select(*columns).where(SampleTable.sample_id.in_(sample_ids)))
    found = {row.sample_id: dict(row._mapping) for row in rows}
    missing = [one for one in sample_ids if one not in found]
    if missing:
        raise StoreError(f"sample_id = {missing[0]}: the store has no such sample")
    return [found[one] for one in sample_ids]


def _check_evidence(content: Mapping[str, Any]) -> None:
    check_json("content", dict(content))
    size = len(str(content))
    require(size <= LARGEST_EVIDENCE, "content", f"{size} characters", "leave pictures out")


def _named(author: str) -> str:
    require(bool(author.strip()), "author", author, "give the name of an account")
    return author


def _check_words(name: str, words: str, most: int) -> None:
    require(bool(words.strip()), name, words, "give a text of one or more")
    require(len(words) <= most, name, f"{len(words)} characters", f"give at most {most:,}")
