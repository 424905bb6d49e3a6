"""What a run's samples have in common, for those who choose among them."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.store.rows import require_run
from server.store.schema import Batch, Sample


def requested_classes(session: Session, run_id: str) -> list[int]:
    """The classes that samples of the run were requested for, in order."""
    require_run(session, run_id)
    found = select(Sample.requested_class).join(Batch, Batch.batch_id == Sample.batch_id)
    distinct = found.where(Batch.run_id == run_id).distinct().order_by(Sample.requested_class)
    return list(session.scalars(distinct))
