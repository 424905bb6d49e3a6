"""What people said about samples: a history that is only ever added to.

One person's rows about one sample in one project form a chain: each supersedes the one before.
The last one is in force; an undo is a last one that says nothing. The schema's unique keys keep
a chain from forking, so of two writers at once one fails and is tried again by the facade.
"""

from __future__ import annotations

import hashlib
import uuid

from sqlalchemy import BigInteger, ColumnElement, Select, cast, exists, func, select
from sqlalchemy.orm import Session

from server.store.chains import in_force, is_answer
from server.store.errors import StoreError
from server.store.exporters import LabelledSample
from server.store.labelling import Annotation, LabellingProgress, StoredAnnotation
from server.store.projects import require_project
from server.store.records import StoredSample, utc_now
from server.store.rows import require_same, to_record, to_values
from server.store.samples import stored_samples, to_sample
from server.store.schema import (
    AnnotationTable,
    BatchTable,
    LabelTable,
    ProjectTable,
    SampleTable,
    UserTable,
)
from server.store.transactions import Transactions

# Prime below 2^31: products of two numbers below it fit 64 bits in both engines.
_PRIME = 2**31 - 1


def _in_scope(project: ProjectTable) -> tuple[ColumnElement[bool], ...]:
    return (BatchTable.run_id == project.run_id, BatchTable.purpose == project.purpose)


def _order(project: ProjectTable) -> tuple[ColumnElement[int], ...]:
    """Stored order, or a shuffle of the ids by modular arithmetic that both engines do alike."""
    plain = SampleTable.sample_id.expression
    if project.order == "stored":
        return (plain,)
    digest = hashlib.sha256(f"{project.project_id}/{project.seed}".encode()).digest()
    factor = 1 + int.from_bytes(digest[:8], "big") % (_PRIME - 1)
    shift = int.from_bytes(digest[8:16], "big") % _PRIME
    spread = (cast(plain, BigInteger) * factor + shift) % _PRIME
    # A line modulo a prime keeps equal steps between neighbours; its cube does not.
    return (((spread * spread) % _PRIME * spread) % _PRIME, plain)


def _annotate(session: Session, answer: Annotation) -> StoredAnnotation:
    """Append an answer; the same ``client_uuid`` again gives back the row there."""
    there = _by_uuid(session, answer.client_uuid)
    if there is not None:
        parts = ("project_id", "sample_id", "user_id", "label_id", "skip_reason")
        require_same(f"answer {answer.client_uuid!r}", there, answer, *parts)
        return to_record(StoredAnnotation, there)
    _check_belongs(session, answer)
    before = session.scalars(
        select(AnnotationTable).where(
            AnnotationTable.project_id == answer.project_id,
            AnnotationTable.user_id == answer.user_id,
            AnnotationTable.sample_id == answer.sample_id,
            in_force(AnnotationTable),
        )
    ).one_or_none()
    row = AnnotationTable(**to_values(answer), created_at=utc_now())
    row.supersedes_id = None if before is None else before.annotation_id
    return _append(session, row)


def _undo(
    session: Session, project_id: int, user_id: int, client_uuid: str | None
) -> StoredAnnotation | None:
    """Take back this annotator's latest answer in force, by a row that supersedes it."""
    require_project(session, project_id)
    _require_user(session, user_id)
    there = None if client_uuid is None else _by_uuid(session, client_uuid)
    if there is not None:
        return _taken_back(session, there, project_id, user_id)
    last = session.scalars(
        _in_force(project_id)
        .where(AnnotationTable.user_id == user_id)
        .order_by(AnnotationTable.annotation_id.desc())
        .limit(1)
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
    return to_record(StoredAnnotation, last)


def _taken_back(
    session: Session, there: AnnotationTable, project_id: int, user_id: int
) -> StoredAnnotation:
    """What an undo that is in the store already took back."""
    taken = session.get(AnnotationTable, there.supersedes_id) if there.supersedes_id else None
    is_undo = there.label_id is None and there.skip_reason is None
    if taken is None or not is_undo or (there.project_id, there.user_id) != (project_id, user_id):
        raise StoreError(f"client_uuid = {there.client_uuid!r} is another answer's: make a new one")
    return to_record(StoredAnnotation, taken)


def _append(session: Session, row: AnnotationTable) -> StoredAnnotation:
    session.add(row)
    session.flush()
    return to_record(StoredAnnotation, row)


def _effective(project_id: int) -> tuple[ColumnElement[bool], ...]:
    ours = AnnotationTable.project_id == project_id
    return ours, is_answer(AnnotationTable), in_force(AnnotationTable)


def _in_force(project_id: int) -> Select[AnnotationTable]:
    return select(AnnotationTable).where(*_effective(project_id))


def _by_uuid(session: Session, client_uuid: str) -> AnnotationTable | None:
    statement = select(AnnotationTable).where(AnnotationTable.client_uuid == client_uuid)
    return session.scalars(statement).one_or_none()


def _require_user(session: Session, user_id: int) -> None:
    if session.get(UserTable, user_id) is None:
        raise StoreError(f"user_id = {user_id}: the store has no such annotator (see ensure_user)")


def _check_belongs(session: Session, answer: Annotation) -> None:
    _require_user(session, answer.user_id)
    project = require_project(session, answer.project_id)
    sample = session.get(SampleTable, answer.sample_id)
    batch = None if sample is None else session.get(BatchTable, sample.batch_id)
    if batch is None or batch.run_id != project.run_id:
        raise StoreError(
            f"sample_id = {answer.sample_id}: not a sample of run {project.run_id!r}, which "
            f"project {project.name!r} labels"
        )
    if answer.label_id is None:
        return
    label = session.get(LabelTable, answer.label_id)
    if label is None or label.project_id != project.project_id:
        raise StoreError(f"label_id = {answer.label_id}: not a label of project {project.name!r}")


class AnswerMethods(Transactions):
    """What annotators say about samples."""

    def queue(self, project_id: int, user_id: int, limit: int = 1) -> list[StoredSample]:
        """The next samples this annotator has neither labelled nor skipped.

        The order is stable and the same for all; an undone sample comes back to its place.
        """
        with self._reading() as session:
            if limit < 0:
                raise StoreError(f"limit = {limit}: give a number ≥ 0")
            _require_user(session, user_id)
            project = require_project(session, project_id)
            answered = exists().where(
                AnnotationTable.project_id == project_id,
                AnnotationTable.user_id == user_id,
                AnnotationTable.sample_id == SampleTable.sample_id,
                is_answer(AnnotationTable),
                in_force(AnnotationTable),
            )
            statement = stored_samples().where(*_in_scope(project), ~answered)
            rows = session.execute(statement.order_by(*_order(project)).limit(limit))
            return [to_sample(row) for row in rows]

    def annotate(self, answer: Annotation) -> StoredAnnotation:
        """Append an answer and give back its row; the same ``client_uuid`` again changes nothing.

        It supersedes what this annotator said about this sample before.

        Raises:
            StoreError: if the label is not the project's, the sample not of the project's run,
                or the ``client_uuid`` another answer's.
        """
        return self._appending(lambda session: _annotate(session, answer))

    def undo(
        self, project_id: int, user_id: int, client_uuid: str | None = None
    ) -> StoredAnnotation | None:
        """Take back this annotator's latest answer in force, and give it back; ``None`` if none is.

        The sample then has no answer, even where an earlier one was superseded. With a
        ``client_uuid``, sending the same undo again takes back nothing more.
        """
        return self._appending(lambda session: _undo(session, project_id, user_id, client_uuid))

    def progress(self, project_id: int, user_id: int) -> LabellingProgress:
        """How far this annotator is, in samples of the project's queue."""
        with self._reading() as session:
            project = require_project(session, project_id)
            _require_user(session, user_id)
            in_scope = select(SampleTable.sample_id).join(BatchTable)
            in_scope = in_scope.where(*_in_scope(project))
            total = session.scalar(select(func.count()).select_from(in_scope.subquery())) or 0
            counts = select(
                func.count(AnnotationTable.label_id), func.count(AnnotationTable.skip_reason)
            ).where(
                AnnotationTable.project_id == project_id,
                AnnotationTable.user_id == user_id,
                in_force(AnnotationTable),
                AnnotationTable.sample_id.in_(in_scope),
            )
            done, skipped = session.execute(counts).one()
            return LabellingProgress(total=total, done=done, skipped=skipped)

    def annotations(self, project_id: int) -> list[StoredAnnotation]:
        """The answers in force, one at most for each annotator and sample."""
        with self._reading() as session:
            require_project(session, project_id)
            rows = session.scalars(_in_force(project_id).order_by(AnnotationTable.annotation_id))
            return [to_record(StoredAnnotation, row) for row in rows]

    def labelled_samples(self, project_id: int) -> list[LabelledSample]:
        """The answers in force with their samples, for an exporter; in the order given."""
        with self._reading() as session:
            require_project(session, project_id)
            statement = (
                select(
                    *(SampleTable.sample_id, SampleTable.requested_class, SampleTable.sha256),
                    *(SampleTable.png, BatchTable.run_id, BatchTable.round, BatchTable.provenance),
                    LabelTable.name.label("label"),
                    LabelTable.kind,
                    UserTable.name.label("annotator"),
                    AnnotationTable.created_at,
                )
                .select_from(AnnotationTable)
                .join(SampleTable)
                .join(BatchTable)
                .join(UserTable)
                .outerjoin(LabelTable, LabelTable.label_id == AnnotationTable.label_id)
                .where(*_effective(project_id))
                .order_by(AnnotationTable.annotation_id)
            )
            return [to_record(LabelledSample, row) for row in session.execute(statement)]

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
