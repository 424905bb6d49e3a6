"""Reviewing: samples on which annotators differ, decisions about them, and samples of gold."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Select, func, or_, select, text
from sqlalchemy.orm import Session

from fedlens.store.agreement import cohen_kappa
from fedlens.store.chains import in_force, is_answer
from fedlens.store.errors import StoreError
from fedlens.store.labelling import StoredAnnotation
from fedlens.store.projects import require_project
from fedlens.store.queues import QueueMethods, require_user
from fedlens.store.rows import to_record
from fedlens.store.schema import AnnotationTable, LabelTable, UserTable
from fedlens.store.schema_team import SHARED, AdjudicationTable, TaskTable
from fedlens.store.tasks import EVERYBODY, recount


@dataclass(frozen=True, kw_only=True)
class GivenAnswer:
    """An answer in force, as a reviewer compares it with others."""

    sample_id: int
    user_id: int
    label_id: int | None
    lead_ms: int | None


@dataclass(frozen=True, kw_only=True)
class Adjudication:
    """A reviewer's decision about a sample; ``label_id`` of ``None`` leaves the sample out."""

    project_id: int
    sample_id: int
    user_id: int
    label_id: int | None
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class FinalLabel:
    """What a sample counts as, once decided or outvoted."""

    sample_id: int
    requested_class: int | None
    label_id: int | None
    """``None``: no label has a majority, or it was left out."""
    answers: int
    decided: bool
    """Whether a reviewer said so."""
    is_control: bool
    """Whether chance alone put it into the queue."""


@dataclass(frozen=True, kw_only=True)
class AnnotatorRecord:
    """What one annotator has done in one project."""

    name: str
    answers: int
    median_seconds: float | None
    gold_right: int
    gold_seen: int


def _answers(session: Session, project_id: int, *more: ColumnElement[bool]) -> list[GivenAnswer]:
    rows = session.execute(
        select(
            AnnotationTable.sample_id,
            AnnotationTable.user_id,
            AnnotationTable.label_id,
            AnnotationTable.lead_ms,
        )
        .where(
            AnnotationTable.project_id == project_id,
            is_answer(AnnotationTable),
            in_force(AnnotationTable),
            *more,
        )
        .order_by(AnnotationTable.annotation_id)
    )
    return [to_record(GivenAnswer, row) for row in rows]


class ReviewMethods(QueueMethods):
    """What reviewers see and decide."""

    def answers(self, project_id: int, *, shared: int | None = None) -> list[GivenAnswer]:
        """The answers in force, in the order given.

        Args:
            project_id: of the project.
            shared: of so many samples alone, of those that two people or more have answered.
        """
        with self._reading() as session:
            require_project(session, project_id)
            if shared is None:
                return _answers(session, project_id)
            both = select(TaskTable.sample_id).where(
                TaskTable.project_id == project_id, text(SHARED)
            )
            ids = session.scalars(both.order_by(TaskTable.rank).limit(shared)).all()
            if not ids:
                return []  # without any to look up, all answers would be read
            return _answers(session, project_id, AnnotationTable.sample_id.in_(ids))

    def disputed(self, project_id: int, offset: int = 0, limit: int = 50) -> list[int]:
        """Samples on which labels in force differ and no one has decided, in order."""
        with self._reading() as session:
            return list(
                session.scalars(
                    _undecided(project_id).order_by(TaskTable.sample_id).offset(offset).limit(limit)
                )
            )

    def count_disputed(self, project_id: int) -> int:
        """How many there are."""
        with self._reading() as session:
            found = _undecided(project_id).subquery()
            return session.scalar(select(func.count()).select_from(found)) or 0

    def answers_about(self, project_id: int, sample_id: int) -> list[StoredAnnotation]:
        """The answers in force about one sample, with their notes."""
        with self._reading() as session:
            rows = session.scalars(
                select(AnnotationTable)
                .where(
                    AnnotationTable.project_id == project_id,
                    AnnotationTable.sample_id == sample_id,
                    is_answer(AnnotationTable),
                    in_force(AnnotationTable),
                )
                .order_by(AnnotationTable.annotation_id)
            )
            return [to_record(StoredAnnotation, row) for row in rows]

    def adjudicate(self, decision: Adjudication) -> None:
        """Decide what a sample counts as; a later decision holds in place of an earlier one.

        Raises:
            StoreError: the sample or the label is none of the project's.
        """
        with self._writing() as session:
            _check_label(session, decision.project_id, decision.label_id)
            require_user(session, decision.user_id)
            task = _require_task(session, decision.project_id, decision.sample_id)
            session.add(AdjudicationTable(**vars(decision)))
            task.decided, task.final_label_id = True, decision.label_id

    def set_gold(self, project_id: int, sample_id: int, label_id: int | None) -> None:
        """Make a sample one of gold, served to every annotator; ``None`` makes it a plain one.

        Raises:
            StoreError: the sample or the label is none of the project's.
        """
        with self._writing() as session:
            project = require_project(session, project_id)
            _check_label(session, project_id, label_id)
            task = _require_task(session, project_id, sample_id)
            task.gold_label_id = label_id
            task.need = EVERYBODY if label_id is not None else project.overlap or EVERYBODY
            session.flush()
            recount(session, project_id, sample_id)

    def gold(self, project_id: int) -> dict[int, int]:
        """The right labels of the samples of gold."""
        with self._reading() as session:
            rows = select(TaskTable.sample_id, TaskTable.gold_label_id).where(
                TaskTable.project_id == project_id, TaskTable.gold_label_id.is_not(None)
            )
            return {sample: label for sample, label in session.execute(rows) if label is not None}

    def final_labels(self, project_id: int) -> list[FinalLabel]:
        """What each answered sample counts as: decided, or else the majority's label."""
        self._bring_up_to_date(project_id)
        with self._reading() as session:
            require_project(session, project_id)
            rows = session.execute(
                select(
                    TaskTable.sample_id,
                    TaskTable.requested_class,
                    TaskTable.final_label_id.label("label_id"),
                    TaskTable.answered.label("answers"),
                    TaskTable.decided,
                    TaskTable.is_control,
                )
                .where(*_counted(project_id))
                .order_by(TaskTable.sample_id)
            )
            return [to_record(FinalLabel, row) for row in rows]

    def label_table(
        self, project_id: int, *, control: bool = False
    ) -> dict[tuple[int | None, int | None], int]:
        """How many answered samples of each requested class count as each label.

        Args:
            project_id: of the project.
            control: only samples that chance alone put into the queue.
        """
        self._bring_up_to_date(project_id)
        with self._reading() as session:
            require_project(session, project_id)
            conditions = [*_counted(project_id)] + ([TaskTable.is_control] if control else [])
            rows = session.execute(
                select(TaskTable.requested_class, TaskTable.final_label_id, func.count())
                .where(*conditions)
                .group_by(TaskTable.requested_class, TaskTable.final_label_id)
            )
            return {(requested, label): count for requested, label, count in rows}

    def samples_counting_as(
        self, project_id: int, label_id: int | None, requested_class: int | None, limit: int
    ) -> list[int]:
        """The first answered samples of a class (``None``: of all) that count as a label."""
        with self._reading() as session:
            statement = select(TaskTable.sample_id).where(
                *_counted(project_id), TaskTable.final_label_id.is_not_distinct_from(label_id)
            )
            if requested_class is not None:
                statement = statement.where(TaskTable.requested_class == requested_class)
            return list(session.scalars(statement.order_by(TaskTable.sample_id).limit(limit)))

    def annotator_records(
        self, project_id: int, answers: Sequence[GivenAnswer] | None = None
    ) -> list[AnnotatorRecord]:
        """What each annotator has done, by name; of these answers alone where some are given."""
        gold = self.gold(project_id)
        names = self.user_names()
        by_user: dict[int, list[GivenAnswer]] = defaultdict(list)
        for answer in self.answers(project_id) if answers is None else answers:
            by_user[answer.user_id].append(answer)
        found = [_record(names[user], said, gold) for user, said in by_user.items()]
        return sorted(found, key=lambda one: one.name)

    def user_names(self) -> dict[int, str]:
        """All annotators by id."""
        with self._reading() as session:
            rows = session.execute(select(UserTable.user_id, UserTable.name))
            return {user_id: name for user_id, name in rows}  # noqa: C416


def label_counts(answers: list[GivenAnswer], labels: list[int]) -> NDArray[np.int64]:
    """How often each sample was given each label, int64 [samples, labels]; skips are no labels."""
    column = {label: place for place, label in enumerate(labels)}
    row: dict[int, int] = {}
    kept = [one for one in answers if one.label_id is not None]
    for one in kept:
        row.setdefault(one.sample_id, len(row))
    counts = np.zeros((len(row), len(labels)), np.int64)
    places = [(row[one.sample_id], column[one.label_id or 0]) for one in kept]
    if places:
        np.add.at(counts, tuple(np.array(places).T), 1)
    return counts


def pairwise_kappas(
    answers: list[GivenAnswer], labels: list[int]
) -> dict[tuple[int, int], tuple[float, int]]:
    """Cohen's kappa and the number of shared samples, for each two annotators by id."""
    column = {label: place for place, label in enumerate(labels)}
    said: dict[int, dict[int, int]] = defaultdict(dict)
    for one in answers:
        if one.label_id is not None:
            said[one.user_id][one.sample_id] = column[one.label_id]
    found = {}
    people = sorted(said)
    for place, first in enumerate(people):
        for second in people[place + 1 :]:
            both = said[first].keys() & said[second].keys()
            pairs = [(said[first][s], said[second][s]) for s in both]
            found[first, second] = cohen_kappa(pairs, len(labels)), len(pairs)
    return found


def _record(name: str, said: list[GivenAnswer], gold: Mapping[int, int]) -> AnnotatorRecord:
    leads = [one.lead_ms for one in said if one.lead_ms is not None]
    tested = [one for one in said if one.sample_id in gold]
    return AnnotatorRecord(
        name=name,
        answers=len(said),
        median_seconds=statistics.median(leads) / 1000 if leads else None,
        gold_right=sum(one.label_id == gold[one.sample_id] for one in tested),
        gold_seen=len(tested),
    )


def _undecided(project_id: int) -> Select[int]:
    return select(TaskTable.sample_id).where(
        TaskTable.project_id == project_id, TaskTable.disputed, ~TaskTable.decided
    )


def _counted(project_id: int) -> tuple[ColumnElement[bool], ...]:
    """Tasks that somebody answered or decided."""
    some = or_(TaskTable.answered > 0, TaskTable.decided)
    return TaskTable.project_id == project_id, some


def _check_label(session: Session, project_id: int, label_id: int | None) -> None:
    if label_id is None:
        return
    label = session.get(LabelTable, label_id)
    if label is None or label.project_id != project_id:
        raise StoreError(f"label_id = {label_id}: not a label of project {project_id}")


def _require_task(session: Session, project_id: int, sample_id: int) -> TaskTable:
    task = session.get(TaskTable, (project_id, sample_id))
    if task is None:
        raise StoreError(f"sample_id = {sample_id}: not in the queue of project {project_id}")
    return task
