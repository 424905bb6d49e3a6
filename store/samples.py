"""Batches of generated samples: into the store after their ledger row, out of it by filter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, Subquery, func, insert, select
from sqlalchemy.orm import Session, aliased

from fedlens.store.chains import in_force
from fedlens.store.checks import check_choice
from fedlens.store.errors import StoreError
from fedlens.store.pngs import decode, pixel_digest
from fedlens.store.records import (
    BatchRecord,
    SampleFilter,
    SampleOrder,
    SampleRecord,
    StoredBatch,
    StoredSample,
)
from fedlens.store.rows import (
    insert_once,
    records_of_run,
    require_run,
    require_same,
    to_record,
    to_values,
)
from fedlens.store.runs import ledger_row
from fedlens.store.schema import AnnotationTable, Base, BatchTable, LedgerTable, SampleTable
from fedlens.store.tags import tagged
from fedlens.store.transactions import Transactions
from fedlens.store.worth import Worth, worth_of


def _checked_samples(record: BatchRecord, samples: Iterable[SampleRecord]) -> list[dict[str, Any]]:
    """The rows of a batch's samples, each image decoded and compared with its digest.

    Raises:
        StoreError: on another number of samples than announced, a position twice, or an image
            that is not a plain PNG with the digest given.
    """
    names = ("position", "requested_class", "png", "sha256", "agreement")
    rows = [{name: getattr(sample, name) for name in names} for sample in samples]
    if len(rows) != record.count:
        raise StoreError(f"count = {record.count} of the batch, but {len(rows)} samples were given")
    if len({row["position"] for row in rows}) != len(rows):
        raise StoreError("position: two samples of the batch have the same one")
    for row in rows:
        if pixel_digest(decode(row["png"])) != row["sha256"]:
            raise StoreError(
                f"sha256 of sample {row['position']} is not that of its pixels: "
                "make samples with SampleRecord.from_pixels"
            )
    return rows


def _add_batch(session: Session, record: BatchRecord, rows: list[dict[str, Any]]) -> int:
    """Insert a batch with its samples, or find the same one there; give back its id."""
    paid = _paid(session, record)
    if insert_once(session, BatchTable, to_values(record) | {"created_at": paid.created_at}):
        batch = _by_key(session, record)
        if rows:
            session.execute(
                insert(SampleTable), [row | {"batch_id": batch.batch_id} for row in rows]
            )
        return batch.batch_id
    there = _by_key(session, record)
    name = f"batch {record.run_id!r}, round {record.round}, {record.purpose}, seed {record.seed}"
    require_same(name, there, record, "ledger_index", "checkpoint_sha256", "count")
    return there.batch_id


def _paid(session: Session, record: BatchRecord) -> LedgerTable:
    """The ledger row that pays for a batch, whose date it takes over."""
    paid = ledger_row(session, record.run_id, record.ledger_index)
    if paid.round < record.round:
        raise StoreError(
            f"ledger_index = {record.ledger_index}: that entry is of round {paid.round}, and a "
            f"batch of round {record.round} is stored only after a later one"
        )
    if record.private and not require_run(session, record.run_id).private:
        raise StoreError(f"private = True: run {record.run_id!r} guarantees nothing")
    return paid


def _by_key(session: Session, record: BatchRecord) -> BatchTable:
    key = {name: getattr(record, name) for name in ("run_id", "round", "purpose", "seed")}
    return session.scalars(select(BatchTable).filter_by(**key)).one()


def _equal(wanted: SampleFilter, table: type[Base], *names: str) -> list[ColumnElement[bool]]:
    """Conditions on those of a table's columns that the filter names a value of."""
    given = {name: getattr(wanted, name) for name in names}
    return [getattr(table, name) == value for name, value in given.items() if value is not None]


def _of_batches(wanted: SampleFilter) -> list[ColumnElement[bool]]:
    return _equal(wanted, BatchTable, "run_id", "round", "purpose")


def _conditions(wanted: SampleFilter) -> list[ColumnElement[bool]]:
    return _of_batches(wanted) + _of_samples(wanted)


def _of_samples(wanted: SampleFilter) -> list[ColumnElement[bool]]:
    conditions = _equal(wanted, SampleTable, "batch_id", "requested_class", "sha256")
    if wanted.least_agreement is not None:
        conditions.append(SampleTable.agreement >= wanted.least_agreement)
    if wanted.most_agreement is not None:
        conditions.append(SampleTable.agreement <= wanted.most_agreement)
    if wanted.label_id is not None:
        labelled = select(AnnotationTable.sample_id).where(*_labelled(wanted.label_id))
        conditions.append(SampleTable.sample_id.in_(labelled))
    if wanted.tag is not None:
        conditions.append(SampleTable.sample_id.in_(tagged(wanted.tag, wanted.run_id)))
    return conditions


def _order(order: SampleOrder) -> list[ColumnElement[Any]]:
    """What samples are sorted by."""
    check_choice("order", order, SampleOrder)
    if order == "stored":
        return [SampleTable.sample_id.expression]
    agreement = SampleTable.agreement
    sorted_by = agreement.asc() if order == "least agreed" else agreement.desc()
    return [agreement.is_(None), sorted_by, SampleTable.sample_id.expression]


def _ids(wanted: SampleFilter, order: SampleOrder) -> Select[*tuple[Any, ...]]:
    """The ids of the samples that match, in order."""
    if wanted.label_id is None or order != "stored":
        ids = select(SampleTable.sample_id).join(BatchTable).where(*_conditions(wanted))
        return ids.order_by(*_order(order))
    # In the order of the label's own index, so that it can stop at the end of the page.
    answers = _answers_with(wanted, wanted.label_id)
    return select(answers.c.sample_id).distinct().order_by(answers.c.sample_id)


def sample_ids_of(wanted: SampleFilter) -> Select[*tuple[Any, ...]]:
    """The ids of the samples that match, as stored."""
    return _ids(wanted, "stored")


def _count(wanted: SampleFilter) -> Select[int]:
    """How many samples match."""
    if wanted.label_id is None:
        count = select(func.count(SampleTable.sample_id)).join(BatchTable)
        return count.where(*_conditions(wanted))
    return select(func.count(_answers_with(wanted, wanted.label_id).c.sample_id.distinct()))


def _answers_with(wanted: SampleFilter, label_id: int) -> Subquery:
    """The answers in force with a label, about samples that match in all else."""
    found = select(AnnotationTable.sample_id).join(SampleTable).where(*_labelled(label_id))
    found = found.where(*_of_samples(replace(wanted, label_id=None)))
    batches = _of_batches(wanted)
    if batches:
        # Not joined: SQLite would then look at the samples themselves, with their pictures.
        these = select(BatchTable.batch_id).where(*batches)
        found = found.where(SampleTable.batch_id.in_(these))
    return found.subquery()


def _labelled(label_id: int) -> tuple[ColumnElement[bool], ...]:
    """Condition on answers: in force, and the label is the first that they give."""
    return AnnotationTable.label_id == label_id, in_force(AnnotationTable)


def _classes(run_id: str) -> Select[int]:
    """The classes of a run's samples, each found from the one before it: not all are read."""
    first, later = aliased(SampleTable), aliased(SampleTable)
    of_batch = select(func.min(first.requested_class)).where(first.batch_id == BatchTable.batch_id)
    found = (
        select(BatchTable.batch_id, of_batch.scalar_subquery().label("number"))
        .where(BatchTable.run_id == run_id)
        .cte("found", recursive=True)
    )
    following = select(func.min(later.requested_class)).where(
        later.batch_id == found.c.batch_id, later.requested_class > found.c.number
    )
    found = found.union_all(
        select(found.c.batch_id, following.correlate(found).scalar_subquery()).where(
            found.c.number.is_not(None)
        )
    )
    number = found.c.number
    return select(number).where(number.is_not(None)).distinct().order_by(number)


def stored_samples() -> Select[*tuple[Any, ...]]:
    """All samples, with the columns of ``StoredSample``."""
    return select(
        SampleTable.sample_id,
        SampleTable.batch_id,
        BatchTable.run_id,
        BatchTable.round,
        BatchTable.purpose,
        SampleTable.position,
        SampleTable.requested_class,
        SampleTable.png,
        SampleTable.sha256,
        SampleTable.agreement,
    ).join(BatchTable)


def to_sample(row: Row[Any]) -> StoredSample:
    """The record of a row of :func:`stored_samples`."""
    return to_record(StoredSample, row)


def run_worth(session: Session, run_id: str) -> Worth:
    """The verdict on the last batch of a run that could be judged."""
    batches = select(BatchTable.fidelity).where(BatchTable.run_id == run_id)
    judged = [one for one in session.scalars(batches.order_by(BatchTable.batch_id)) if one]
    return worth_of(judged[-1] if judged else {})


class SampleMethods(Transactions):
    """Batches and their samples."""

    def add_batch(self, record: BatchRecord, batch: Iterable[SampleRecord]) -> int:
        """Store generated samples, all or none; give back the batch's id.

        The same key (run, round, purpose, seed) again changes nothing and gives the id there.

        Raises:
            StoreError: if the ledger has no row with ``ledger_index``, or one of an earlier round;
                if the key is there with another checkpoint, count or ledger index; if a sample is
                not a plain PNG with the digest given.
        """
        rows = _checked_samples(record, batch)
        with self._writing() as session:
            return _add_batch(session, record, rows)

    def batches(self, run_id: str) -> list[StoredBatch]:
        """A run's batches, by round."""
        with self._reading() as session:
            order = (BatchTable.round, BatchTable.batch_id)
            return records_of_run(session, StoredBatch, BatchTable, run_id, *order)

    def worth(self, run_id: str) -> Worth:
        """What a run's samples are good for, by the last batch that could be judged."""
        with self._reading() as session:
            return run_worth(session, run_id)

    def batch(self, batch_id: int) -> StoredBatch:
        """One batch."""
        with self._reading() as session:
            row = session.get(BatchTable, batch_id)
            if row is None:
                raise StoreError(f"batch_id = {batch_id}: the store has no such batch")
            return to_record(StoredBatch, row)

    def samples(
        self,
        wanted: SampleFilter,
        offset: int = 0,
        limit: int = 1000,
        order: SampleOrder = "stored",
    ) -> list[StoredSample]:
        """A page of the samples that match, PNG bytes included.

        Args:
            wanted: which.
            offset: how many to pass over.
            limit: how many at most.
            order: ``stored``, or by agreement; samples without one come last, ties as stored.
        """
        with self._reading() as session:
            if offset < 0 or limit < 0:
                raise StoreError(f"offset = {offset}, limit = {limit}: give numbers ≥ 0")
            # First which, by an index alone: the pictures passed over are never read.
            page = _ids(wanted, order).offset(offset).limit(limit)
            statement = stored_samples().where(SampleTable.sample_id.in_(page))
            statement = statement.order_by(*_order(order))
            return [to_sample(row) for row in session.execute(statement)]

    def count_samples(self, wanted: SampleFilter) -> int:
        """How many samples match."""
        with self._reading() as session:
            return session.execute(_count(wanted)).scalar_one()

    def sample(self, sample_id: int) -> StoredSample:
        """One sample."""
        with self._reading() as session:
            row = session.execute(
                stored_samples().where(SampleTable.sample_id == sample_id)
            ).first()
            if row is None:
                raise StoreError(f"sample_id = {sample_id}: the store has no such sample")
            return to_sample(row)

    def samples_by_id(self, sample_ids: Sequence[int]) -> list[StoredSample]:
        """Samples in the order of their ids as given; those that are not there are left out."""
        wanted = stored_samples().where(SampleTable.sample_id.in_(sample_ids))
        with self._reading() as session:
            found = {row.sample_id: to_sample(row) for row in session.execute(wanted)}
        return [found[one] for one in sample_ids if one in found]

    def requested_classes(self, run_id: str) -> list[int]:
        """The classes that a run's samples were requested for, in order; none of unlabelled."""
        with self._reading() as session:
            require_run(session, run_id)
            return list(session.scalars(_classes(run_id)))
