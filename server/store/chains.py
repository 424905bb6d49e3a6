"""Which answer about a sample is in force: the last of its chain, which nothing supersedes."""

from __future__ import annotations

from sqlalchemy import ColumnElement, exists, or_
from sqlalchemy.orm import aliased

from server.store.schema import AnnotationTable


def in_force(row: type[AnnotationTable]) -> ColumnElement[bool]:
    """Condition: no other row supersedes this one (it may still be an undo)."""
    later = aliased(AnnotationTable)
    return ~exists().where(later.supersedes_id == row.annotation_id)


def is_answer(row: type[AnnotationTable]) -> ColumnElement[bool]:
    """Condition: a label or a reason to skip, not an undo."""
    return or_(row.label_id.is_not(None), row.skip_reason.is_not(None))
