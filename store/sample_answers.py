"""What people said about one sample, over all projects."""

from __future__ import annotations

from sqlalchemy import select

from fedlens.store.chains import in_force, is_answer
from fedlens.store.schema import AnnotationTable, LabelTable, ProjectTable
from fedlens.store.transactions import Transactions


class SampleAnswerMethods(Transactions):
    """What people said about one sample."""

    def labels_on(self, sample_id: int) -> list[tuple[str, str | None]]:
        """The answers in force about a sample: project's name and label's, ``None`` for skipped.

        Found by the sample's index, however many answers its projects have.
        """
        with self._reading() as session:
            found = (
                select(ProjectTable.name, LabelTable.name)
                .select_from(AnnotationTable)
                .join(ProjectTable, ProjectTable.project_id == AnnotationTable.project_id)
                .outerjoin(LabelTable, LabelTable.label_id == AnnotationTable.label_id)
                .where(AnnotationTable.sample_id == sample_id)
                .where(in_force(AnnotationTable), is_answer(AnnotationTable))
                .order_by(AnnotationTable.annotation_id)
            )
            return [(project, label) for project, label in session.execute(found)]
