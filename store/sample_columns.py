"""What is known of many samples at once, without their pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from fedlens.store.chains import in_force
from fedlens.store.checks import require
from fedlens.store.records import SampleFilter
from fedlens.store.samples import sample_ids_of
from fedlens.store.schema import AnnotationTable, SampleTable
from fedlens.store.schema_findings import SampleTagTable
from fedlens.store.transactions import Transactions


@dataclass(frozen=True, kw_only=True)
class SampleColumns:
    """Fields of samples, each in the order of ``sample_ids``."""

    sample_ids: list[int]
    classes: list[int | None]
    """For which they were requested."""
    agreements: list[float | None]
    """The annotator's probability of that class."""
    labels: dict[int, list[int]]
    """Ids of the labels in force, first ones of answers, of the samples that have any."""
    tags: dict[int, list[str]]
    """Of the samples that have any."""


class SampleColumnMethods(Transactions):
    """Fields of many samples."""

    def sample_columns(self, wanted: SampleFilter, offset: int, limit: int) -> SampleColumns:
        """What is known of the samples that match, in stored order.

        Args:
            wanted: which.
            offset: how many to pass over.
            limit: how many at most.
        """
        require(offset >= 0 and limit >= 0, "offset, limit", (offset, limit), "give numbers ≥ 0")
        page = sample_ids_of(wanted).offset(offset).limit(limit)
        fields = SampleTable.sample_id, SampleTable.requested_class, SampleTable.agreement
        found = select(*fields).where(SampleTable.sample_id.in_(page))
        with self._reading() as session:
            rows = session.execute(found.order_by(SampleTable.sample_id)).all()
            ids = [int(row[0]) for row in rows]
            return SampleColumns(
                sample_ids=ids,
                classes=[row[1] for row in rows],
                agreements=[row[2] for row in rows],
                labels=_gathered(session, _labels(ids), ids),
                tags=_gathered(session, _tags(ids), ids),
            )

    def sample_marks(
        self, sample_ids: Sequence[int]
    ) -> tuple[dict[int, list[int]], dict[int, list[str]]]:
        """Labels in force and tags of samples, as `SampleColumns` has them.

        Args:
            sample_ids: in any order, at most 30,000.
        """
        ids = list(sample_ids)
        with self._reading() as session:
            return _gathered(session, _labels(ids), ids), _gathered(session, _tags(ids), ids)


def _among(column: InstrumentedAttribute[int], ids: list[int]) -> ColumnElement[bool]:
    """Those of some samples; a run of them by its ends, which is quicker than one by one."""
    first, last = min(ids, default=0), max(ids, default=0)
    return column.between(first, last) if last - first < 2 * len(ids) else column.in_(ids)


def _labels(ids: list[int]) -> Select[*tuple[Any, ...]]:
    found = select(AnnotationTable.sample_id, AnnotationTable.label_id)
    these = _among(AnnotationTable.sample_id, ids)
    found = found.where(these, AnnotationTable.label_id.is_not(None), in_force(AnnotationTable))
    return found.order_by(AnnotationTable.annotation_id)


def _tags(ids: list[int]) -> Select[*tuple[Any, ...]]:
    found = select(SampleTagTable.sample_id, SampleTagTable.tag)
    return found.where(_among(SampleTagTable.sample_id, ids)).order_by(SampleTagTable.tag)


def _gathered(
    session: Session, asked: Select[*tuple[Any, ...]], ids: list[int]
) -> dict[int, list[Any]]:
    """What was found by sample, each value once: between the ids lie other runs' samples too."""
    known = set(ids)
    found: dict[int, list[Any]] = {}
    for sample_id, value in session.execute(asked):
        if sample_id in known and value not in found.setdefault(sample_id, []):
            found[sample_id].append(value)
    return found
