"""Tags of samples, and the run that others over the same data are compared with."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from sqlalchemy import Select, delete, func, insert, select
from sqlalchemy.orm import Session

from fedlens.foundation.dates import today
from fedlens.store.checks import require
from fedlens.store.errors import StoreError
from fedlens.store.rows import insert_once, insert_or_replace, require_run, to_record
from fedlens.store.schema import BatchTable, SampleTable
from fedlens.store.schema_findings import PinnedReferenceTable, SampleTagTable, TagEntryTable
from fedlens.store.transactions import Transactions

_TAG = re.compile(r"[\w][\w .+-]{0,39}")
_AT_ONCE = 1000


@dataclass(frozen=True, kw_only=True)
class TagEntry:
    """What one person did with one tag on one day."""

    day: date
    actor: str
    tag: str
    added: bool
    """Else it was taken away."""
    samples: int
    """How many samples got it, or lost it."""


def tagged(tag: str, run_id: str | None) -> Select[int]:
    """The ids of samples with a tag, of one run where it is named."""
    found = select(SampleTagTable.sample_id).where(SampleTagTable.tag == tag)
    return found if run_id is None else found.where(SampleTagTable.run_id == run_id)


class TagMethods(Transactions):
    """Tags of samples, and pinned reference runs."""

    def tag_samples(self, sample_ids: Sequence[int], tag: str, *, author: str) -> int:
        """Give samples a tag; how many did not have it yet.

        Raises:
            StoreError: the tag cannot be one, a sample is not there, or they are too many at once.
        """
        named = _checked(tag)
        with self._writing() as session:
            runs = _runs_of(session, sample_ids)
            row = {"tag": named, "author": author}
            new = {
                one: run
                for one, run in runs.items()
                if insert_once(session, SampleTagTable, row | {"sample_id": one, "run_id": run})
            }
            _enter(session, new, named, author, added=True)
            return len(new)

    def untag_samples(self, sample_ids: Sequence[int], tag: str, *, author: str) -> int:
        """Take a tag away from samples; how many had it."""
        with self._writing() as session:
            runs = _runs_of(session, sample_ids)
            chosen = SampleTagTable.sample_id.in_(sample_ids), SampleTagTable.tag == tag
            gone = delete(SampleTagTable).where(*chosen).returning(SampleTagTable.sample_id)
            lost = {one: runs[one] for one in session.scalars(gone)}
            _enter(session, lost, tag, author, added=False)
            return len(lost)

    def tag_history(
        self, run_id: str, *, sample_id: int | None = None, limit: int = 100
    ) -> list[TagEntry]:
        """Who gave and took which tags of a run's samples on which day, the last first.

        Args:
            run_id: of the run.
            sample_id: of one of its samples alone; None for all.
            limit: entries at most.
        """
        said = (TagEntryTable.day, TagEntryTable.actor, TagEntryTable.tag, TagEntryTable.added)
        found = select(*said, func.count().label("samples")).where(TagEntryTable.run_id == run_id)
        if sample_id is not None:
            # Each by itself: a tag may have been given and taken again on one day.
            found = found.where(TagEntryTable.sample_id == sample_id)
            found = found.group_by(TagEntryTable.entry_id)
        last = func.max(TagEntryTable.entry_id).desc()
        with self._reading() as session:
            require_run(session, run_id)
            rows = session.execute(found.group_by(*said).order_by(last).limit(limit))
            return [to_record(TagEntry, row) for row in rows]

    def tags(self, run_id: str) -> dict[str, int]:
        """A run's tags by name, with the number of samples that have each."""
        with self._reading() as session:
            require_run(session, run_id)
            count = func.count(SampleTagTable.sample_id)
            found = select(SampleTagTable.tag, count).where(SampleTagTable.run_id == run_id)
            rows = session.execute(found.group_by(SampleTagTable.tag).order_by(SampleTagTable.tag))
            return {str(tag): int(number) for tag, number in rows}

    def pin_reference(self, run_id: str, *, author: str) -> None:
        """Compare runs over data of this run's name with it from now on, in place of another."""
        with self._writing() as session:
            data_name = require_run(session, run_id).data_name
            values = {"data_name": data_name, "run_id": run_id, "author": author}
            insert_or_replace(session, PinnedReferenceTable, values)

    def unpin_reference(self, run_id: str) -> None:
        """Compare no run with this one by default any more."""
        with self._writing() as session:
            require_run(session, run_id)
            chosen = PinnedReferenceTable.run_id == run_id
            session.execute(delete(PinnedReferenceTable).where(chosen))

    def pinned_references(self) -> Mapping[str, str]:
        """The pinned runs' ids by the name of their data."""
        with self._reading() as session:
            rows = select(PinnedReferenceTable.data_name, PinnedReferenceTable.run_id)
            return {str(name): str(run_id) for name, run_id in session.execute(rows)}


def _enter(session: Session, runs: Mapping[int, str], tag: str, actor: str, *, added: bool) -> None:
    """Write down what was done, a line for each sample, with the sample's run."""
    rows = [
        {
            "day": today(),
            "actor": actor,
            "run_id": run_id,
            "sample_id": sample_id,
            "tag": tag,
            "added": added,
        }
        for sample_id, run_id in runs.items()
    ]
    if rows:
        session.execute(insert(TagEntryTable), rows)


def _checked(tag: str) -> str:
    named = tag.strip()
    mend = "1 to 40 letters, digits, spaces and . + - _, beginning with a letter or digit"
    require(bool(_TAG.fullmatch(named)), "tag", tag, mend)
    return named


def _runs_of(session: Session, sample_ids: Sequence[int]) -> dict[int, str]:
    """The run of each sample, each of which is there."""
    require(len(sample_ids) <= _AT_ONCE, "sample_ids", len(sample_ids), f"≤ {_AT_ONCE} at once")
    found = select(SampleTable.sample_id, BatchTable.run_id).join(BatchTable)
    rows = session.execute(found.where(SampleTable.sample_id.in_(sample_ids)))
    runs = {int(sample_id): str(run_id) for sample_id, run_id in rows}
    for one in sample_ids:
        if one not in runs:
            raise StoreError(f"sample_id = {one}: the store has no such sample")
    return runs
