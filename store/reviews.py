"""Reviewing: how annotators answer beside each other, and what samples count as."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, func, or_, select, text
from sqlalchemy.orm import Session

from fedlens.store.agreement import cohen_kappa
from fedlens.store.chains import in_force, is_answer
from fedlens.store.decisions import DecisionMethods
from fedlens.store.projects import require_project
from fedlens.store.rows import to_record
from fedlens.store.schema import AnnotationTable, UserTable
from fedlens.store.schema_team import SHARED, TaskTable


@dataclass(frozen=True, kw_only=True)
class GivenAnswer:
    """An answer in force, as a reviewer compares it with others."""

    sample_id: int
    user_id: int
    label_id: int | None
    lead_ms: int | None


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


class ReviewMethods(DecisionMethods):
    """What reviewers see, and what samples count as."""

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

    def has_answers(self, project_id: int) -> bool:
        """Whether anybody has answered anything, skips too, that was not taken back."""
        with self._reading() as session:
            require_project(session, project_id)
            row = AnnotationTable
            there = select(row.annotation_id).where(row.project_id == project_id)
            return session.scalar(there.where(is_answer(row), in_force(row)).limit(1)) is not None

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


def _counted(project_id: int) -> tuple[ColumnElement[bool], ...]:
    """Tasks that somebody answered or decided."""
    some = or_(TaskTable.answered > 0, TaskTable.decided)
    return TaskTable.project_id == project_id, some
