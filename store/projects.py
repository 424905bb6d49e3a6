"""Annotators, projects and their labels."""

from __future__ import annotations

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from fedlens.store.checks import require
from fedlens.store.errors import StoreError
from fedlens.store.labelling import ProjectRecord, StoredLabel, StoredProject
from fedlens.store.records import utc_now
from fedlens.store.rows import insert_once, require_run, require_same, to_record, to_values
from fedlens.store.samples import run_worth
from fedlens.store.schema import LabelTable, ProjectTable, UserTable
from fedlens.store.transactions import Transactions

LONGEST_NAME = 200
LONGEST_INSTRUCTIONS = 20_000
_FIXED = ("run_id", "instructions", "purpose", "order", "seed", "overlap", "blind", "several")


def _by_name(session: Session, name: str) -> ProjectTable:
    return session.scalars(select(ProjectTable).where(ProjectTable.name == name)).one()


def require_project(session: Session, project_id: int) -> ProjectTable:
    """The project's row.

    Raises:
        StoreError: if there is none.
    """
    row = session.get(ProjectTable, project_id)
    if row is None:
        raise StoreError(f"project_id = {project_id}: the store has no such project")
    return row


def labels_of(session: Session, project_id: int) -> list[StoredLabel]:
    """A project's labels, in the order given."""
    rows = session.scalars(
        select(LabelTable).where(LabelTable.project_id == project_id).order_by(LabelTable.label_id)
    )
    return [to_record(StoredLabel, row) for row in rows]


def _record(session: Session, row: ProjectTable) -> StoredProject:
    return to_record(StoredProject, row, labels=tuple(labels_of(session, row.project_id)))


def ensure_user(session: Session, name: str) -> int:
    """The id of the annotator of this name, made at first use.

    Raises:
        StoreError: the name is empty.
    """
    if not name.strip():
        raise StoreError(f"name = {name!r}: give the annotator's name")
    wanted = select(UserTable.user_id).where(UserTable.name == name)
    there = session.scalars(wanted).one_or_none()
    if there is None:
        insert_once(session, UserTable, {"name": name})
    return session.scalars(wanted).one() if there is None else there


def _require_lines(record: ProjectRecord) -> None:
    """Names stand in logs and terminals, where a line break or an escape would forge another."""
    for name in (record.name, *(label.name for label in record.labels)):
        fits = len(name) <= LONGEST_NAME and name.isprintable()
        require(fits, "name", name[:80], f"give one line of at most {LONGEST_NAME} letters")
    long = len(record.instructions)
    most = LONGEST_INSTRUCTIONS
    require(long <= most, "instructions", f"{long} characters", f"at most {most}")


def _require_worth(session: Session, record: ProjectRecord) -> None:
    if run_worth(session, record.run_id) == "noise":
        raise StoreError(
            f"run_id = {record.run_id!r}: its samples are noise and show nothing of the data, so "
            "labels of them would be made up; label a run with more users or a larger ε, or say "
            "that you want to label noise"
        )


class ProjectMethods(Transactions):
    """Annotators, projects and their labels."""

    def ensure_user(self, name: str) -> int:
        """The id of the annotator of this name, made at first use."""
        with self._writing() as session:
            return ensure_user(session, name)

    def create_project(self, record: ProjectRecord, *, even_noise: bool = False) -> int:
        """Store a project with its labels; give back its id. The same again changes nothing.

        Args:
            record: the project.
            even_noise: take samples that the run itself calls noise, too.

        Raises:
            StoreError: if another project has this name, a name is no short line, or the samples
                are noise.
        """
        _require_lines(record)
        with self._writing() as session:
            require_run(session, record.run_id)
            if not even_noise:
                _require_worth(session, record)
            values = to_values(record, "labels") | {"created_at": utc_now(), "queued_batch": 0}
            if insert_once(session, ProjectTable, values):
                project_id = _by_name(session, record.name).project_id
                labels = [to_values(label) | {"project_id": project_id} for label in record.labels]
                session.execute(insert(LabelTable), labels)
                return project_id
            there = _by_name(session, record.name)
            name = f"project {record.name!r}"
            require_same(name, there, record, *_FIXED)
            kept = labels_of(session, there.project_id)
            stored = [to_values(label, "label_id", "project_id") for label in kept]
            if stored != [to_values(label) for label in record.labels]:
                raise StoreError(
                    f"{name} is in the store already with other labels: take another name"
                )
            return there.project_id

    def projects(self) -> list[StoredProject]:
        """All projects, in the order made."""
        with self._reading() as session:
            rows = session.scalars(select(ProjectTable).order_by(ProjectTable.project_id)).all()
            return [_record(session, row) for row in rows]

    def project(self, project_id: int) -> StoredProject:
        """One project."""
        with self._reading() as session:
            return _record(session, require_project(session, project_id))

    def labels(self, project_id: int) -> list[StoredLabel]:
        """A project's labels, in the order given."""
        with self._reading() as session:
            return list(labels_of(session, project_id))
