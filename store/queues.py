"""Shared queues: which samples lie on whose desk, and until when.

A lease keeps a sample from other annotators where enough of them have answered it or are at it. It
runs out by itself, so a closed laptop blocks no one for long; an answer that comes after it ran out
is stored all the same, as one more opinion.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Select, case, delete, func, insert, select, update
from sqlalchemy.orm import Session, aliased

from fedlens.store.chains import in_force, is_answer
from fedlens.store.checks import require
from fedlens.store.errors import StoreError
from fedlens.store.labelling import LabellingProgress
from fedlens.store.projects import require_project
from fedlens.store.records import StoredSample, utc_now
from fedlens.store.samples import stored_samples, to_sample
from fedlens.store.schema import AnnotationTable, ProjectTable, SampleTable, UserTable
from fedlens.store.schema_team import LeaseTable, TaskTable
from fedlens.store.tasks import add_missing_tasks, newest_batch
from fedlens.store.transactions import Transactions

MOST_LEASED = 500
LONGEST_TAB = 64
SMALL_DESK = 12
"""Samples that a tab may hold although fewer are left for others then."""
_ORDER = (TaskTable.lane, TaskTable.rank, TaskTable.sample_id)


@dataclass(frozen=True, kw_only=True)
class Desk:
    """What one annotator has in front of them in one tab."""

    samples: list[StoredSample]
    """On the desk and unanswered, in the order of the queue."""
    progress: LabellingProgress
    free_at: datetime | None
    """When the next sample that others hold comes back; ``None`` where none is held."""


def require_user(session: Session, user_id: int) -> None:
    """Refuse a number that is no annotator's.

    Raises:
        StoreError: saying so.
    """
    if session.get(UserTable, user_id) is None:
        raise StoreError(f"user_id = {user_id}: the store has no such annotator (see ensure_user)")


def unanswered_by(project_id: int, user_id: int) -> Select[Any]:
    """Open tasks that this annotator has no answer in force about."""
    said = aliased(AnnotationTable)
    answered = (
        select(said.annotation_id)
        .where(
            said.project_id == project_id,
            said.user_id == user_id,
            said.sample_id == TaskTable.sample_id,
            is_answer(said),
            in_force(said),
        )
        .correlate(TaskTable)
        .exists()
    )
    return select(TaskTable.sample_id).where(
        TaskTable.project_id == project_id, TaskTable.is_open, ~answered
    )


def _free_for(project_id: int, user_id: int, now: datetime) -> Select[Any]:
    """Of those, the ones that others' answers and leases leave a place on, in order."""
    lease = aliased(LeaseTable)
    ours = (lease.project_id == project_id, lease.sample_id == TaskTable.sample_id)
    held = (select(func.count()).select_from(lease).where(*ours, lease.until > now)).correlate(
        TaskTable
    )
    mine = select(lease.sample_id).where(*ours, lease.user_id == user_id).correlate(TaskTable)
    return (
        unanswered_by(project_id, user_id)
        .where(TaskTable.answered + held.scalar_subquery() < TaskTable.need, ~mine.exists())
        .order_by(*_ORDER)
    )


def _one_desk_at_a_time(session: Session, project_id: int) -> None:
    """Wait for a project's other desks, until this transaction ends.

    Which samples are free is a count of leases. PostgreSQL counts those of the moment at which a
    statement begins, so a lease that another desk takes while it runs would not count, and one
    annotator too many would get the sample. Answers do not wait: they refer to the project's key,
    which this lock leaves free. SQLite has one writer at a time anyway.
    """
    row = select(ProjectTable.project_id).where(ProjectTable.project_id == project_id)
    session.execute(row.with_for_update(key_share=True))


def _lease(
    session: Session, project: ProjectTable, user_id: int, tab: str, limit: int
) -> list[int]:
    """Renew this tab's leases and add to them; give back their samples, in order."""
    now = utc_now()
    until = now + timedelta(seconds=project.lease_seconds)
    here = (LeaseTable.project_id == project.project_id, LeaseTable.user_id == user_id)
    session.execute(
        delete(LeaseTable).where(
            LeaseTable.project_id == project.project_id, LeaseTable.until <= now
        )
    )
    session.execute(update(LeaseTable).where(*here, LeaseTable.tab == tab).values(until=until))
    held = session.scalar(
        select(func.count()).select_from(LeaseTable).where(*here, LeaseTable.tab == tab)
    )
    wanted = _free_for(project.project_id, user_id, now)
    missing = _share(session, wanted, held or 0, limit) - (held or 0)
    if missing > 0:
        wanted = wanted.limit(missing)
        free = session.scalars(wanted.with_for_update(skip_locked=True, of=TaskTable)).all()
        rows = [
            {
                "project_id": project.project_id,
                "sample_id": sample_id,
                "user_id": user_id,
                "tab": tab,
                "until": until,
            }
            for sample_id in free
        ]
        if rows:
            session.execute(insert(LeaseTable), rows)
    return list(
        session.scalars(
            select(LeaseTable.sample_id)
            .join(
                TaskTable,
                (TaskTable.project_id == LeaseTable.project_id)
                & (TaskTable.sample_id == LeaseTable.sample_id),
            )
            .where(*here, LeaseTable.tab == tab)
            .order_by(*_ORDER)
        )
    )


def _share(session: Session, free: Select[Any], held: int, limit: int) -> int:
    """How many samples a tab may hold: of a few that are left, half stay for others."""
    ahead = free.order_by(None).limit(2 * limit).subquery()
    within_reach = held + (session.scalar(select(func.count()).select_from(ahead)) or 0)
    return min(limit, max(SMALL_DESK, (within_reach + 1) // 2))


def hold(session: Session, project: ProjectTable, user_id: int, sample_id: int, tab: str) -> None:
    """Put one sample on a desk, even if others hold it: an undo brought it back there."""
    let_go(session, project.project_id, user_id, sample_id)
    until = utc_now() + timedelta(seconds=project.lease_seconds)
    session.add(
        LeaseTable(
            project_id=project.project_id,
            sample_id=sample_id,
            user_id=user_id,
            tab=tab,
            until=until,
        )
    )


def let_go(session: Session, project_id: int, user_id: int, sample_id: int) -> None:
    """Take a sample off this annotator's desk."""
    session.execute(
        delete(LeaseTable).where(
            LeaseTable.project_id == project_id,
            LeaseTable.sample_id == sample_id,
            LeaseTable.user_id == user_id,
        )
    )


def progress_of(session: Session, project_id: int, user_id: int) -> LabellingProgress:
    """How far this annotator is, in samples of the project's queue."""
    answered_open = case((TaskTable.is_open & is_answer(AnnotationTable), 1))
    said = (
        select(
            func.count(AnnotationTable.label_id),
            func.count(AnnotationTable.skip_reason),
            func.count(answered_open),
        )
        .join(
            TaskTable,
            (TaskTable.project_id == AnnotationTable.project_id)
            & (TaskTable.sample_id == AnnotationTable.sample_id),
        )
        .where(
            AnnotationTable.project_id == project_id,
            AnnotationTable.user_id == user_id,
            in_force(AnnotationTable),
        )
    )
    done, skipped, mine_open = session.execute(said).one()
    still_open = select(func.count()).select_from(TaskTable)
    still_open = still_open.where(TaskTable.project_id == project_id, TaskTable.is_open)
    left = (session.scalar(still_open) or 0) - mine_open
    return LabellingProgress(total=done + skipped + left, done=done, skipped=skipped)


class QueueMethods(Transactions):
    """Who labels what next."""

    def queue(self, project_id: int, user_id: int, limit: int = 1) -> list[StoredSample]:
        """The next samples for this annotator, none of them leased by it.

        The order is stable and the same for all; an undone sample comes back to its place.
        """
        self._bring_up_to_date(project_id)
        with self._reading() as session:
            if limit < 0:
                raise StoreError(f"limit = {limit}: give a number ≥ 0")
            require_user(session, user_id)
            ids = unanswered_by(project_id, user_id).order_by(*_ORDER).limit(limit)
            return _in_order(session, list(session.scalars(ids)))

    def queued(self, project_id: int, sample_ids: Collection[int]) -> frozenset[int]:
        """Those of some samples that the project's queue serves."""
        self._bring_up_to_date(project_id)
        there = select(TaskTable.sample_id).where(TaskTable.project_id == project_id)
        with self._reading() as session:
            return frozenset(session.scalars(there.where(TaskTable.sample_id.in_(sample_ids))))

    def serve(
        self,
        project_id: int,
        user_id: int,
        tab: str,
        *,
        limit: int = 60,
        known: frozenset[int] = frozenset(),
    ) -> Desk:
        """Lease samples to one tab of an annotator, up to ``limit`` in all, and count.

        What another tab of the same annotator holds is left there, so that two tabs never show
        one sample.

        Args:
            project_id: of the project.
            user_id: of the annotator.
            tab: names the browser's tab; leases are renewed by asking again under the same name.
            limit: samples on the desk, 0 to 500.
            known: samples that the tab has already, which are not sent again.
        """
        require(0 < len(tab) <= LONGEST_TAB, "tab", tab[:80], "name the tab in 1 to 64 characters")
        require(0 <= limit <= MOST_LEASED, "limit", limit, f"give 0 to {MOST_LEASED}")
        self._bring_up_to_date(project_id)

        def work(session: Session) -> Desk:
            _one_desk_at_a_time(session, project_id)
            project = require_project(session, project_id)
            require_user(session, user_id)
            held = _lease(session, project, user_id, tab, limit)
            return Desk(
                samples=_in_order(session, [one for one in held if one not in known]),
                progress=progress_of(session, project_id, user_id),
                free_at=_free_at(session, project_id, user_id, tab),
            )

        return self._appending(work)

    def release_desk(self, project_id: int, user_id: int, tab: str) -> None:
        """Give back what a tab holds, as it closes."""
        with self._writing() as session:
            session.execute(
                delete(LeaseTable).where(
                    LeaseTable.project_id == project_id,
                    LeaseTable.user_id == user_id,
                    LeaseTable.tab == tab,
                )
            )

    def progress(self, project_id: int, user_id: int) -> LabellingProgress:
        """How far this annotator is, in samples of the project's queue."""
        self._bring_up_to_date(project_id)
        with self._reading() as session:
            require_project(session, project_id)
            require_user(session, user_id)
            return progress_of(session, project_id, user_id)

    def _bring_up_to_date(self, project_id: int) -> None:
        with self._reading() as session:
            project = require_project(session, project_id)
            behind = newest_batch(session, project) > project.queued_batch
        if behind:
            with self._writing() as session:
                add_missing_tasks(session, project_id)


def _free_at(session: Session, project_id: int, user_id: int, tab: str) -> datetime | None:
    """When the first lease that keeps a sample from this desk ends."""
    statement = select(func.min(LeaseTable.until)).where(
        LeaseTable.project_id == project_id,
        ~((LeaseTable.user_id == user_id) & (LeaseTable.tab == tab)),
    )
    return session.scalar(statement)


def _in_order(session: Session, ids: list[int]) -> list[StoredSample]:
    found = stored_samples().where(SampleTable.sample_id.in_(ids))
    by_id = {row.sample_id: to_sample(row) for row in session.execute(found)}
    return [by_id[one] for one in ids]
