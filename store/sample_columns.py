"""What is known of many samples at once, without their pictures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

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


def _labels(ids: list[int]) -> Select[*tuple[Any, ...]]:
    found = select(AnnotationTable.sample_id, AnnotationTable.label_id)
    between = AnnotationTable.sample_id.between(min(ids, default=0), max(ids, default=0))
    found = found.where(between, AnnotationTable.label_id.is_not(None), in_force(AnnotationTable))
    return found.order_by(AnnotationTable.annotation_id)


def _tags(ids: list[int]) -> Select[*tuple[Any, ...]]:
    found = select(SampleTagTable.sample_id, SampleTagTable.tag)
    between = SampleTagTable.sample_id.between(min(ids, default=0), max(ids, default=0))
    return found.where(between).order_by(SampleTagTable.tag)


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
