"""Reviewers' decisions: what samples count as, one by one or many by agreement.

Rows are only ever added. The last one about a sample holds; one that reopens it leaves the sample
to its annotators' answers again.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import ColumnElement, Select, TextClause, func, insert, select, text, update
from sqlalchemy.orm import Session

from fedlens.store.chains import in_force, is_answer
from fedlens.store.checks import check_choice, check_text, require
from fedlens.store.errors import StoreError
from fedlens.store.labelling import LONGEST_NOTE, StoredAnnotation
from fedlens.store.projects import require_project
from fedlens.store.queues import QueueMethods, require_user
from fedlens.store.records import StoredSample, utc_now
from fedlens.store.rows import to_record
from fedlens.store.samples import stored_samples, to_sample
from fedlens.store.schema import AnnotationTable, LabelTable, UserTable
from fedlens.store.schema_team import SHARED, AdjudicationTable, TaskTable
from fedlens.store.tasks import EVERYBODY, majority, recount

ReviewState = Literal["waiting", "decided", "agreed", "single"]
"""Answers differ and nobody has decided; somebody has; several answers agree; one answer."""


def _new_uuid() -> str:
    return str(uuid.uuid4())


@dataclass(frozen=True, kw_only=True)
class Adjudication:
    """A reviewer's decision about a sample; ``label_id`` of ``None`` leaves the sample out.

    Key: ``client_uuid`` and ``sample_id``. Decisions made together share a ``client_uuid``.
    """

    project_id: int
    sample_id: int
    user_id: int
    label_id: int | None
    note: str = ""
    client_uuid: str = field(default_factory=_new_uuid)
    reopens: bool = False
    """Takes back the decision in force: the sample counts as its answers say."""

    def __post_init__(self) -> None:
        check_text(self, "client_uuid")
        long = len(self.note)
        require(long <= LONGEST_NOTE, "note", f"{long} characters", f"at most {LONGEST_NOTE}")
        require(not self.reopens or self.label_id is None, "label_id", self.label_id, "give None")


@dataclass(frozen=True, kw_only=True)
class StoredDecision(Adjudication):
    """A decision in force."""

    reviewer: str
    created_at: datetime


@dataclass(frozen=True, kw_only=True)
class ReviewedSample:
    """A sample as a reviewer sees it."""

    sample: StoredSample
    answers: tuple[StoredAnnotation, ...]
    """In force, in the order given."""
    decision: StoredDecision | None
    last: str
    """``client_uuid`` of the last row about it, which may have reopened it; empty for none."""
    final_label_id: int | None
    """What it counts as now."""
    gold_label_id: int | None


@dataclass(frozen=True)
class ReviewCounts:
    """How far a project's review is."""

    waiting: int
    decided: int


class DecisionMethods(QueueMethods):
    """What reviewers decide."""

    def disputed(self, project_id: int, offset: int = 0, limit: int = 50) -> list[int]:
        """Samples on which labels in force differ and no one has decided, in order."""
        found = select(TaskTable.sample_id).where(*_state(project_id, "waiting"))
        with self._reading() as session:
            return list(
                session.scalars(found.order_by(TaskTable.sample_id).offset(offset).limit(limit))
            )

    def count_disputed(self, project_id: int) -> int:
        """How many there are."""
        with self._reading() as session:
            return _count(session, _state(project_id, "waiting"))

    def review_counts(self, project_id: int) -> ReviewCounts:
        """How many samples wait for a decision, and how many have one."""
        with self._reading() as session:
            return ReviewCounts(
                _count(session, _state(project_id, "waiting")),
                _count(session, _state(project_id, "decided")),
            )

    def reviewed(self, project_id: int, sample_ids: Sequence[int]) -> list[ReviewedSample]:
        """Samples of the queue with their answers and decisions, in the order given."""
        with self._reading() as session:
            require_project(session, project_id)
            return _reviewed(session, project_id, sample_ids)

    def settled(self, project_id: int, sample_ids: Collection[int]) -> frozenset[int]:
        """Those of some samples that wait for no decision (any more)."""
        waiting = select(TaskTable.sample_id).where(*_state(project_id, "waiting"))
        with self._reading() as session:
            found = session.scalars(waiting.where(TaskTable.sample_id.in_(sample_ids)))
            return frozenset(sample_ids) - frozenset(found)

    def list_reviewed(
        self,
        project_id: int,
        state: ReviewState,
        *,
        label_id: int | None = None,
        reviewer_id: int | None = None,
        offset: int = 0,
        limit: int = 60,
    ) -> tuple[int, list[int]]:
        """How many samples are in a state, and a page of them: decisions with the last first.

        Args:
            project_id: of the project.
            state: which.
            label_id: those that count as this label alone.
            reviewer_id: those whose decision in force is this person's alone.
            offset: how many to pass over.
            limit: how many at most.
        """
        check_choice("state", state, ReviewState)
        wanted = list(_state(project_id, state))
        if label_id is not None:
            wanted.append(TaskTable.final_label_id == label_id)
        if reviewer_id is not None:
            theirs = _decided_by(project_id, reviewer_id)
            wanted.append(TaskTable.sample_id.in_(theirs))
        found = select(TaskTable.sample_id).where(*wanted)
        order: list[Any] = [TaskTable.sample_id.asc()]
        if state == "decided":
            order = [_last_row(project_id).desc()]
        with self._reading() as session:
            total = _count(session, wanted)
            page = found.order_by(*order).offset(offset).limit(limit)
            return total, list(session.scalars(page))

    def decisions_by(self, project_id: int, user_id: int, limit: int = 20) -> list[int]:
        """Samples whose decision in force is this reviewer's, the last ones, oldest first."""
        newest = AdjudicationTable.adjudication_id.desc()
        mine = _decided_by(project_id, user_id).order_by(newest).limit(limit)
        with self._reading() as session:
            return list(session.scalars(mine))[::-1]

    def reviewers(self, project_id: int) -> dict[int, str]:
        """Names of all who ever decided about a sample of a project, by number."""
        row = AdjudicationTable
        who = select(row.user_id).where(row.project_id == project_id).distinct()
        names = select(UserTable.user_id, UserTable.name).where(UserTable.user_id.in_(who))
        with self._reading() as session:
            rows = session.execute(names.order_by(UserTable.name))
            return {int(number): str(name) for number, name in rows}

    def adjudicate(
        self, decision: Adjudication, *, seen: str | None = None, gold: bool = False
    ) -> bool:
        """Decide what a sample counts as, or reopen it; a later decision holds in place of this.

        The same ``client_uuid`` again changes nothing.

        Args:
            decision: what is decided.
            seen: `ReviewedSample.last` as the reviewer saw it; ``None`` decides in any case.
            gold: also make the label the right answer, for samples served to every annotator.

        Returns:
            Whether it holds; not where another decision was made since the reviewer looked.

        Raises:
            StoreError: the sample or the label is none of the project's.
        """

        def work(session: Session) -> bool:
            _check_label(session, decision.project_id, decision.label_id)
            require_user(session, decision.user_id)
            task = _require_task(session, decision.project_id, decision.sample_id)
            last = _last_uuid(session, decision.project_id, decision.sample_id)
            if _is_stored(session, decision):
                return True
            if seen is not None and seen != last:
                return False
            _decide(session, task, decision, gold=gold)
            return True

        return self._appending(work)

    def agreed(self, project_id: int, share: float, least: int = 2) -> tuple[int, int]:
        """How many undecided samples of several answers agree by a share at least, and do not.

        Args:
            project_id: of the project.
            share: of all answers about a sample, skips too, that give its most frequent label.
            least: answers about a sample; those with fewer are not counted.
        """
        with self._reading() as session:
            by_agreement = _by_agreement(session, project_id, share, least)
            return len(by_agreement[True]), len(by_agreement[False])

    def decide_together(
        self,
        decision: Adjudication,
        *,
        share: float,
        accept: bool,
        expected: int,
        least: int = 2,
    ) -> int:
        """Decide all undecided samples that agree by a share, or all that do not.

        Args:
            decision: whose; its sample and label are not used.
            share: as in `agreed`.
            accept: samples that agree count as their most frequent label; else those that do not
                agree are left out.
            expected: how many the reviewer was shown.
            least: answers about a sample.

        Raises:
            StoreError: there are more or fewer than expected: answers or decisions came meanwhile.
        """
        with self._writing() as session:
            require_user(session, decision.user_id)
            if _count_of(session, decision):
                return _count_of(session, decision)
            wanted = _by_agreement(session, decision.project_id, share, least)[accept]
            if len(wanted) != expected:
                raise StoreError(
                    f"expected = {expected}: there are {len(wanted)} such samples now, look again"
                )
            _decide_all(session, decision, wanted if accept else dict.fromkeys(wanted))
            return len(wanted)

    def reopen_together(self, decision: Adjudication, together: str) -> int:
        """Take back decisions made together, those that still hold; how many.

        Args:
            decision: whose; its sample and label are not used.
            together: the ``client_uuid`` that they share.
        """
        row = AdjudicationTable
        with self._writing() as session:
            require_user(session, decision.user_id)
            here = row.project_id == decision.project_id, row.client_uuid == together
            last = row.adjudication_id.in_(_last_rows(decision.project_id))
            found = session.scalars(select(row.sample_id).where(*here, ~row.reopens, last)).all()
            for sample_id in found:
                task = _require_task(session, decision.project_id, sample_id)
                each = {"sample_id": sample_id, "label_id": None, "reopens": True}
                _decide(session, task, Adjudication(**{**vars(decision), **each}), gold=False)
            return len(found)

    def set_gold(self, project_id: int, sample_id: int, label_id: int | None) -> None:
        """Make a sample one of gold, served to every annotator; ``None`` makes it a plain one.

        Raises:
            StoreError: the sample or the label is none of the project's.
        """
        with self._writing() as session:
            _check_label(session, project_id, label_id)
            _set_gold(session, _require_task(session, project_id, sample_id), label_id)

    def gold(self, project_id: int) -> dict[int, int]:
        """The right labels of the samples of gold."""
        with self._reading() as session:
            rows = select(TaskTable.sample_id, TaskTable.gold_label_id).where(
                TaskTable.project_id == project_id, TaskTable.gold_label_id.is_not(None)
            )
            return {sample: label for sample, label in session.execute(rows) if label is not None}


def _state(project_id: int, state: ReviewState) -> tuple[ColumnElement[bool] | TextClause, ...]:
    task = TaskTable
    of: dict[str, tuple[ColumnElement[bool] | TextClause, ...]] = {
        # "IS 1", not a bare truth value, of which SQLite's index of it knows nothing.
        "waiting": (task.disputed.is_(True), ~task.decided),
        "decided": (task.decided.is_(True),),
        "agreed": (text(SHARED), ~task.disputed, ~task.decided),
        "single": (task.answered == 1, ~task.decided),
    }
    return task.project_id == project_id, *of[state]


def _count(session: Session, wanted: Sequence[ColumnElement[bool] | TextClause]) -> int:
    return session.scalar(select(func.count()).select_from(TaskTable).where(*wanted)) or 0


def _last_rows(project_id: int) -> Select[int]:
    """The number of the last row about each sample."""
    row = AdjudicationTable
    last = select(func.max(row.adjudication_id)).where(row.project_id == project_id)
    return last.group_by(row.sample_id)


def _decided_by(project_id: int, user_id: int) -> Select[int]:
    """The samples whose decision in force is one person's."""
    row = AdjudicationTable
    theirs = select(row.sample_id).where(row.project_id == project_id, row.user_id == user_id)
    return theirs.where(~row.reopens, row.adjudication_id.in_(_last_rows(project_id)))


def _last_row(project_id: int) -> Any:
    """The same for the task at hand."""
    row = AdjudicationTable
    here = row.project_id == project_id, row.sample_id == TaskTable.sample_id
    return select(func.max(row.adjudication_id)).where(*here).correlate(TaskTable).scalar_subquery()


def _last_uuid(session: Session, project_id: int, sample_id: int) -> str:
    row = AdjudicationTable
    last = select(row.client_uuid).where(row.project_id == project_id, row.sample_id == sample_id)
    return session.scalar(last.order_by(row.adjudication_id.desc()).limit(1)) or ""


def _is_stored(session: Session, decision: Adjudication) -> bool:
    row = AdjudicationTable
    here = row.client_uuid == decision.client_uuid, row.sample_id == decision.sample_id
    there = session.scalars(select(row).where(*here)).one_or_none()
    if there is None:
        return False
    parts = ("project_id", "user_id", "label_id", "reopens")
    if any(getattr(there, part) != getattr(decision, part) for part in parts):
        raise StoreError(f"client_uuid = {decision.client_uuid!r} is another decision's")
    return True


def _count_of(session: Session, decision: Adjudication) -> int:
    row = AdjudicationTable
    here = row.client_uuid == decision.client_uuid, row.project_id == decision.project_id
    return session.scalar(select(func.count()).select_from(row).where(*here)) or 0


def _decide(session: Session, task: TaskTable, decision: Adjudication, *, gold: bool) -> None:
    session.add(AdjudicationTable(**vars(decision), created_at=utc_now()))
    task.decided, task.final_label_id = not decision.reopens, decision.label_id
    if gold or task.gold_label_id is not None:
        # A right answer follows the decision: two that differ would measure people by a mistake.
        _set_gold(session, task, decision.label_id)
    elif decision.reopens:
        session.flush()
        recount(session, task.project_id, task.sample_id)


def _decide_all(session: Session, decision: Adjudication, labels: Mapping[int, int | None]) -> None:
    """Decide many at once; none of them was decided before, so none can be gold by a decision."""
    fixed = vars(decision) | {"created_at": utc_now()}
    rows = [fixed | {"sample_id": one, "label_id": label} for one, label in labels.items()]
    if not rows:
        return
    session.execute(insert(AdjudicationTable), rows)
    changes = [
        {
            "project_id": decision.project_id,
            "sample_id": one,
            "decided": True,
            "final_label_id": label,
        }
        for one, label in labels.items()
    ]
    session.execute(update(TaskTable), changes)


def _set_gold(session: Session, task: TaskTable, label_id: int | None) -> None:
    project = require_project(session, task.project_id)
    task.gold_label_id = label_id
    task.need = EVERYBODY if label_id is not None else project.overlap or EVERYBODY
    session.flush()
    recount(session, task.project_id, task.sample_id)


def _by_agreement(
    session: Session, project_id: int, share: float, least: int
) -> dict[bool, dict[int, int]]:
    """Undecided samples with their most frequent label: those that agree, and those that do not."""
    require(0.5 < share <= 1, "share", share, "give more than 0.5, at most 1")
    require(least >= 2, "least", least, "give 2 or more")
    said: dict[int, list[int | None]] = defaultdict(list)
    row, task = AnnotationTable, TaskTable
    shared = select(task.sample_id).where(
        task.project_id == project_id, text(SHARED), task.answered >= least, ~task.decided
    )
    found = select(row.sample_id, row.label_id).where(
        row.project_id == project_id, row.sample_id.in_(shared), is_answer(row), in_force(row)
    )
    for sample_id, label_id in session.execute(found):
        said[sample_id].append(label_id)
    sides: dict[bool, dict[int, int]] = {True: {}, False: {}}
    for sample_id, labels in sorted(said.items()):
        top = majority(labels)
        sides[top is not None and labels.count(top) >= share * len(labels)][sample_id] = top or 0
    return sides


def _reviewed(session: Session, project_id: int, sample_ids: Sequence[int]) -> list[ReviewedSample]:
    rows = session.execute(stored_samples().where(_among(sample_ids)))
    samples = {row.sample_id: to_sample(row) for row in rows}
    here = TaskTable.project_id == project_id, TaskTable.sample_id.in_(sample_ids)
    tasks = {task.sample_id: task for task in session.scalars(select(TaskTable).where(*here))}
    said = _answers_about(session, project_id, sample_ids)
    last = _last_decisions(session, project_id, sample_ids)
    return [
        ReviewedSample(
            sample=samples[one],
            answers=tuple(said[one]),
            decision=last[one] if one in last and not last[one].reopens else None,
            last=last[one].client_uuid if one in last else "",
            final_label_id=tasks[one].final_label_id,
            gold_label_id=tasks[one].gold_label_id,
        )
        for one in sample_ids
        if one in samples and one in tasks
    ]


def _among(sample_ids: Sequence[int]) -> ColumnElement[bool]:
    return stored_samples().selected_columns.sample_id.in_(sample_ids)


def _answers_about(
    session: Session, project_id: int, sample_ids: Sequence[int]
) -> dict[int, list[StoredAnnotation]]:
    row = AnnotationTable
    here = row.project_id == project_id, row.sample_id.in_(sample_ids)
    found = select(row).where(*here, is_answer(row), in_force(row)).order_by(row.annotation_id)
    said: dict[int, list[StoredAnnotation]] = defaultdict(list)
    for one in session.scalars(found):
        said[one.sample_id].append(to_record(StoredAnnotation, one))
    return said


def _last_decisions(
    session: Session, project_id: int, sample_ids: Sequence[int]
) -> dict[int, StoredDecision]:
    row = AdjudicationTable
    here = row.project_id == project_id, row.sample_id.in_(sample_ids)
    found = (
        select(row, UserTable.name)
        .join(UserTable, UserTable.user_id == row.user_id)
        .where(*here)
        .order_by(row.adjudication_id)
    )
    # Of several about a sample the last one stays.
    return {
        one.sample_id: to_record(StoredDecision, one, reviewer=name)
        for one, name in session.execute(found)
    }


def _check_label(session: Session, project_id: int, label_id: int | None) -> None:
    if label_id is None:
        return
    label = session.get(LabelTable, label_id)
    if label is None or label.project_id != project_id:
        raise StoreError(f"label_id = {label_id}: not a label of project {project_id}")


def _require_task(session: Session, project_id: int, sample_id: int) -> TaskTable:
    task = session.get(TaskTable, (project_id, sample_id), with_for_update=True)
    if task is None:
        raise StoreError(f"sample_id = {sample_id}: not in the queue of project {project_id}")
    return task
