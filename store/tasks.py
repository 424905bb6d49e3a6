"""A project's queue as rows: one a sample, ranked once when its batch is first seen."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Row, func, insert, select
from sqlalchemy.orm import Session

from fedlens.store.chains import in_force, is_answer
from fedlens.store.schema import AnnotationTable, BatchTable, ProjectTable, SampleTable
from fedlens.store.schema_team import TaskTable

EVERYBODY = 2**31 - 1
"""``need`` of a sample that each annotator answers."""
DISPUTED_LANE, PLAIN_LANE = 0, 1
# Prime below 2^31: ranks fit 32 bits.
_PRIME = 2**31 - 1
_INSERTED_AT_ONCE = 5000

_Row = Row[int, float | None, int | None]


def in_scope(project: ProjectTable) -> tuple[ColumnElement[bool], ...]:
    """Condition on batches: the project's run and purpose."""
    return (BatchTable.run_id == project.run_id, BatchTable.purpose == project.purpose)


def newest_batch(session: Session, project: ProjectTable) -> int:
    """The last batch that the project's queue ought to serve; 0 where there is none."""
    statement = select(func.max(BatchTable.batch_id)).where(*in_scope(project))
    return session.scalar(statement) or 0


def add_missing_tasks(session: Session, project_id: int) -> None:
    """Queue the samples of batches that came since the last call; safe from several at once."""
    project = session.scalars(
        select(ProjectTable).where(ProjectTable.project_id == project_id).with_for_update()
    ).one()
    newest = newest_batch(session, project)
    if newest <= project.queued_batch:
        return
    rows = session.execute(
        select(SampleTable.sample_id, SampleTable.agreement, SampleTable.requested_class)
        .join(BatchTable)
        .where(*in_scope(project), SampleTable.batch_id > project.queued_batch)
        .order_by(SampleTable.sample_id)
    ).all()
    tasks = _ranked(project, rows)
    for start in range(0, len(tasks), _INSERTED_AT_ONCE):
        session.execute(insert(TaskTable), tasks[start : start + _INSERTED_AT_ONCE])
    project.queued_batch = newest
    session.flush()
    _count_earlier_answers(session, project_id)


def recount(session: Session, project_id: int, sample_id: int) -> None:
    """Bring a task up to date with the answers in force about its sample.

    The row is locked first, so that of two annotators who answer at once the second one counts
    both.
    """
    task = session.scalars(
        select(TaskTable)
        .where(TaskTable.project_id == project_id, TaskTable.sample_id == sample_id)
        .with_for_update()
        .execution_options(populate_existing=True)
    ).one_or_none()
    if task is None:
        return
    project = session.get(ProjectTable, project_id)
    labels = list(
        session.scalars(
            select(AnnotationTable.label_id).where(
                AnnotationTable.project_id == project_id,
                AnnotationTable.sample_id == sample_id,
                is_answer(AnnotationTable),
                in_force(AnnotationTable),
            )
        )
    )
    task.answered = len(labels)
    task.disputed = len({label for label in labels if label is not None}) > 1
    if project is not None and project.overlap and task.gold_label_id is None:
        once_more = task.disputed and project.order == "disagreement"
        task.need = project.overlap + int(once_more)
        task.lane = DISPUTED_LANE if once_more else PLAIN_LANE
    task.is_open = task.answered < task.need
    if not task.decided:
        task.final_label_id = majority(labels)
    session.flush()


def majority(labels: Sequence[int | None]) -> int | None:
    """The label given most often; none of a tie, or where all were skips."""
    ranking = Counter(label for label in labels if label is not None).most_common(2)
    if not ranking or (len(ranking) == 2 and ranking[0][1] == ranking[1][1]):
        return None
    return ranking[0][0]


def shuffled(project: ProjectTable, sample_id: int) -> int:
    """A sample's place in the project's shuffle, the same for all annotators."""
    digest = hashlib.sha256(f"{project.project_id}/{project.seed}".encode()).digest()
    factor = 1 + int.from_bytes(digest[:8], "big") % (_PRIME - 1)
    shift = int.from_bytes(digest[8:16], "big") % _PRIME
    # A line modulo a prime keeps equal steps between neighbours; its cube does not.
    return pow(sample_id * factor + shift, 3, _PRIME)


def _ranked(
    project: ProjectTable, rows: Sequence[Row[int, float | None, int | None]]
) -> list[dict[str, Any]]:
    ids = [row[0] for row in rows]
    control: set[int] = set()
    if project.order == "stored":
        ranks = {sample: sample for sample in ids}
    else:
        ranks = {sample: shuffled(project, sample) for sample in ids}
    if project.order == "uncertainty":
        control = {s for s in ids if _by_chance(project, s) < project.random_share}
        chosen = [row for row in rows if row[0] not in control]
        chosen.sort(key=lambda row: (_agreement(row), ranks[row[0]]))
        # Spread over the same range as the shuffle, so that the random share is met all along.
        ranks |= {row[0]: place * _PRIME // len(chosen) for place, row in enumerate(chosen)}
    need = project.overlap or EVERYBODY
    fixed: dict[str, Any] = {
        "project_id": project.project_id,
        "need": need,
        "answered": 0,
        "is_open": True,
        "lane": PLAIN_LANE,
        "disputed": False,
        "decided": False,
    }
    everything_by_chance = project.order in ("random", "disagreement")
    return [
        fixed
        | {
            "sample_id": row.sample_id,
            "requested_class": row.requested_class,
            "rank": ranks[row.sample_id],
            "is_control": everything_by_chance or row.sample_id in control,
        }
        for row in rows
    ]


def _agreement(row: _Row) -> float:
    """How sure the annotator is; what it was not asked about comes first."""
    return -1.0 if row.agreement is None else float(row.agreement)


def _by_chance(project: ProjectTable, sample_id: int) -> float:
    text = f"control/{project.project_id}/{project.seed}/{sample_id}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big") / 2**48


def _count_earlier_answers(session: Session, project_id: int) -> None:
    """Answers may be older than their tasks: given before this table was, or imported."""
    answered = select(AnnotationTable.sample_id).where(AnnotationTable.project_id == project_id)
    for sample_id in session.scalars(answered.distinct()).all():
        recount(session, project_id, sample_id)
