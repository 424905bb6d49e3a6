"""Which answer about a sample is in force: the last of its chain, which nothing supersedes."""

from __future__ import annotations

from sqlalchemy import ColumnElement, exists, or_
from sqlalchemy.orm import aliased

from fedlens.store.schema import AnnotationTable


def in_force(row: type[AnnotationTable]) -> ColumnElement[bool]:
    """Condition: no other row supersedes this one (it may still be an undo)."""
    later = aliased(AnnotationTable)
    # That it is not null follows, but PostgreSQL then reads the few rows that supersede one alone.
    return ~exists().where(
        later.supersedes_id == row.annotation_id, later.supersedes_id.is_not(None)
    )


def is_answer(row: type[AnnotationTable]) -> ColumnElement[bool]:
    """Condition: a label or a reason to skip, not an undo."""
    return or_(row.label_id.is_not(None), row.skip_reason.is_not(None))
