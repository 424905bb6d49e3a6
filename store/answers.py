"""What people said about samples: a history that is only ever added to.

One person's rows about one sample in one project form a chain: each supersedes the one before.
The last one is in force; an undo is a last one that says nothing. The schema's unique keys keep
a chain from forking, so of two writers at once one fails and is tried again by the facade.
"""

from __future__ import annotations

import uuid
from typing import Any

from sqlalchemy import ColumnElement, Select, select
from sqlalchemy.orm import Session

from fedlens.store.chains import in_force, is_answer
from fedlens.store.errors import StoreError
from fedlens.store.exporters import LabelledSample
from fedlens.store.labelling import Annotation, StoredAnnotation
from fedlens.store.projects import labels_of, require_project
from fedlens.store.queues import QueueMethods, hold, let_go, require_user
from fedlens.store.records import StoredSample, utc_now
from fedlens.store.rows import require_same, to_record, to_values
from fedlens.store.samples import stored_samples, to_sample
from fedlens.store.schema import (
    AnnotationTable,
    BatchTable,
    LabelTable,
    RunTable,
    SampleTable,
    UserTable,
)
from fedlens.store.schema_team import TaskTable
from fedlens.store.tasks import recount


def annotate_in(session: Session, answer: Annotation) -> tuple[StoredAnnotation, bool]:
    """Append an answer and say that it is new; the same ``client_uuid`` again is the row there."""
    there = _by_uuid(session, answer.client_uuid)
    if there is not None:
        if (there.project_id, there.user_id) != (answer.project_id, answer.user_id):
            # In words that tell nothing of what another person said.
            raise _another_s(answer.client_uuid)
        parts = ("sample_id", "label_id", "skip_reason")
        require_same(f"answer {answer.client_uuid!r}", there, answer, *parts)
        return to_record(StoredAnnotation, there), False
    _check_belongs(session, answer)
    before = last_row(session, answer.project_id, answer.user_id, answer.sample_id)
    row = AnnotationTable(**to_values(answer), created_at=utc_now())
    row.supersedes_id = None if before is None else before.annotation_id
    let_go(session, answer.project_id, answer.user_id, answer.sample_id)
    return _append(session, row), True


def last_row(
    session: Session, project_id: int, user_id: int, sample_id: int
) -> AnnotationTable | None:
    """The end of the chain of what one person said about one sample."""
    return session.scalars(
        select(AnnotationTable).where(
            AnnotationTable.project_id == project_id,
            AnnotationTable.user_id == user_id,
            AnnotationTable.sample_id == sample_id,
            in_force(AnnotationTable),
        )
    ).one_or_none()


def _undo(
    session: Session,
    project_id: int,
    user_id: int,
    client_uuid: str | None,
    sample_id: int | None,
    tab: str | None,
) -> StoredAnnotation | None:
    """Take back an answer in force, the latest or the one about a sample, by a further row."""
    project = require_project(session, project_id)
    require_user(session, user_id)
    there = None if client_uuid is None else _by_uuid(session, client_uuid)
    if there is not None:
        return _taken_back(session, there, project_id, user_id)
    mine = _in_force(project_id).where(AnnotationTable.user_id == user_id)
    if sample_id is not None:
        mine = mine.where(AnnotationTable.sample_id == sample_id)
    last = session.scalars(
        mine.order_by(AnnotationTable.annotation_id.desc()).limit(1)
    ).one_or_none()
    if last is None:
        return None
    row = AnnotationTable(
        client_uuid=client_uuid or str(uuid.uuid4()),
        project_id=project_id,
        sample_id=last.sample_id,
        user_id=user_id,
        supersedes_id=last.annotation_id,
        created_at=utc_now(),
    )
    _append(session, row)
    if tab is not None:
        hold(session, project, user_id, last.sample_id, tab)
    return to_record(StoredAnnotation, last)


def _taken_back(
    session: Session, there: AnnotationTable, project_id: int, user_id: int
) -> StoredAnnotation:
    """What an undo that is in the store already took back."""
    taken = session.get(AnnotationTable, there.supersedes_id) if there.supersedes_id else None
    is_undo = there.label_id is None and there.skip_reason is None
    if taken is None or not is_undo or (there.project_id, there.user_id) != (project_id, user_id):
        raise _another_s(there.client_uuid)
    return to_record(StoredAnnotation, taken)


def _another_s(client_uuid: str) -> StoreError:
    return StoreError(f"client_uuid = {client_uuid!r} is another answer's: make a new one")


def _append(session: Session, row: AnnotationTable) -> StoredAnnotation:
    session.add(row)
    session.flush()
    recount(session, row.project_id, row.sample_id)
    return to_record(StoredAnnotation, row)


def _effective(project_id: int) -> tuple[ColumnElement[bool], ...]:
    ours = AnnotationTable.project_id == project_id
    return ours, is_answer(AnnotationTable), in_force(AnnotationTable)


def _in_force(project_id: int) -> Select[AnnotationTable]:
    return select(AnnotationTable).where(*_effective(project_id))


def _by_uuid(session: Session, client_uuid: str) -> AnnotationTable | None:
    statement = select(AnnotationTable).where(AnnotationTable.client_uuid == client_uuid)
    return session.scalars(statement).one_or_none()


def _check_belongs(session: Session, answer: Annotation) -> None:
    require_user(session, answer.user_id)
    project = require_project(session, answer.project_id)
    sample = session.get(SampleTable, answer.sample_id)
    batch = None if sample is None else session.get(BatchTable, sample.batch_id)
    if batch is None or batch.run_id != project.run_id:
        raise StoreError(
            f"sample_id = {answer.sample_id}: not a sample of run {project.run_id!r}, which "
            f"project {project.name!r} labels"
        )
    more = answer.more_labels or []
    if more and (not project.several or answer.label_id is None):
        raise StoreError(
            f"more_labels = {more}: project {project.name!r} takes "
            + ("them beside a label only" if project.several else "one label a sample")
        )
    given = [] if answer.label_id is None else [answer.label_id]
    for label_id in given + more:
        label = session.get(LabelTable, label_id)
        if label is None or label.project_id != project.project_id:
            raise StoreError(f"label_id = {label_id}: not a label of project {project.name!r}")


def _labelled(project_id: int) -> Select[*tuple[Any, ...]]:
    """The answers in force with all that `LabelledSample` tells of their samples."""
    return (
        select(
            *(SampleTable.sample_id, SampleTable.requested_class, SampleTable.sha256),
            *(SampleTable.png, BatchTable.run_id, BatchTable.round, BatchTable.provenance),
            *(BatchTable.dp_epsilon, BatchTable.delta_dp),
            BatchTable.bdp_corrected.label("bayesian_epsilon"),
            BatchTable.delta_bdp.label("delta_bayesian"),
            RunTable.guarantee,
            LabelTable.name.label("label"),
            LabelTable.kind,
            UserTable.name.label("annotator"),
            *(AnnotationTable.created_at, AnnotationTable.note, AnnotationTable.lead_ms),
            AnnotationTable.label_id,
            AnnotationTable.more_labels.label("more_ids"),
            TaskTable.gold_label_id.label("gold_id"),
            TaskTable.final_label_id.label("final_id"),
        )
        .select_from(AnnotationTable)
        .join(SampleTable, SampleTable.sample_id == AnnotationTable.sample_id)
        .join(BatchTable)
        .join(RunTable, RunTable.run_id == BatchTable.run_id)
        .join(UserTable, UserTable.user_id == AnnotationTable.user_id)
        .outerjoin(LabelTable, LabelTable.label_id == AnnotationTable.label_id)
        .outerjoin(
            TaskTable,
            (TaskTable.sample_id == AnnotationTable.sample_id)
            & (TaskTable.project_id == AnnotationTable.project_id),
        )
        .where(*_effective(project_id))
        .order_by(AnnotationTable.annotation_id)
    )


class AnswerMethods(QueueMethods):
    """What annotators say about samples."""

    def annotate(self, answer: Annotation) -> StoredAnnotation:
        """Append an answer and give back its row; the same ``client_uuid`` again changes nothing.

        It supersedes what this annotator said about this sample before.

        Raises:
            StoreError: if the label is not the project's, the sample not of the project's run,
                or the ``client_uuid`` another answer's.
        """
        return self._appending(lambda session: annotate_in(session, answer)[0])

    def undo(
        self,
        project_id: int,
        user_id: int,
        client_uuid: str | None = None,
        *,
        sample_id: int | None = None,
        tab: str | None = None,
    ) -> StoredAnnotation | None:
        """Take back this annotator's latest answer in force, and give it back; ``None`` if none is.

        The sample then has no answer, even where an earlier one was superseded. With a
        ``client_uuid``, sending the same undo again takes back nothing more. With a ``sample_id``
        the answer about that sample is taken back; with a ``tab`` it lies on that desk again.
        """
        return self._appending(
            lambda session: _undo(session, project_id, user_id, client_uuid, sample_id, tab)
        )

    def recent_answers(
        self, project_id: int, user_id: int, limit: int = 20
    ) -> list[tuple[StoredAnnotation, StoredSample]]:
        """This annotator's last answers in force with their samples, oldest first."""
        with self._reading() as session:
            require_project(session, project_id)
            rows = session.scalars(
                _in_force(project_id)
                .where(AnnotationTable.user_id == user_id)
                .order_by(AnnotationTable.annotation_id.desc())
                .limit(limit)
            ).all()
            ids = [row.sample_id for row in rows]
            found = session.execute(stored_samples().where(SampleTable.sample_id.in_(ids)))
            samples = {one.sample_id: to_sample(one) for one in found}
            return [
                (to_record(StoredAnnotation, row), samples[row.sample_id]) for row in rows[::-1]
            ]

    def annotations(self, project_id: int) -> list[StoredAnnotation]:
        """The answers in force, one at most for each annotator and sample."""
        with self._reading() as session:
            require_project(session, project_id)
            rows = session.scalars(_in_force(project_id).order_by(AnnotationTable.annotation_id))
            return [to_record(StoredAnnotation, row) for row in rows]

    def labelled_samples(self, project_id: int) -> list[LabelledSample]:
        """The answers in force with their samples, for an exporter; in the order given."""
        self._bring_up_to_date(project_id)
        with self._reading() as session:
            require_project(session, project_id)
            names: dict[int | None, str] = {
                label.label_id: label.name for label in labels_of(session, project_id)
            }
            rows = session.execute(_labelled(project_id))
            return [
                to_record(
                    LabelledSample,
                    row,
                    more_labels=tuple(names[one] for one in row.more_ids or ()),
                    final_label=names.get(row.final_id),
                    gold_label=names.get(row.gold_id),
                )
                for row in rows
            ]

    def annotation_history(self, project_id: int) -> list[StoredAnnotation]:
        """Every row ever appended, superseded answers and undos too."""
        with self._reading() as session:
            require_project(session, project_id)
            rows = session.scalars(
                select(AnnotationTable)
                .where(AnnotationTable.project_id == project_id)
                .order_by(AnnotationTable.annotation_id)
            )
            return [to_record(StoredAnnotation, row) for row in rows]
