"""What a run's samples have in common, for those who choose among them."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.store.rows import require_run
from server.store.schema import BatchTable, SampleTable


def requested_classes(session: Session, run_id: str) -> list[int]:
    """The classes that samples of the run were requested for, in order."""
    require_run(session, run_id)
    found = select(SampleTable.requested_class).join(BatchTable)
    distinct = (
        found.where(BatchTable.run_id == run_id).distinct().order_by(SampleTable.requested_class)
    )
    return list(session.scalars(distinct))
