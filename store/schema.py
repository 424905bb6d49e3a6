"""The tables. Metrics, ledger rows and generated samples; there is no column for a real example.

What belongs to a run has a date and no time: how long a round takes depends on who was drawn. Only
what people do in the dashboard (projects, answers) has times.

The only binary column is ``samples.png``. Foreign keys hold what the code checks as well: no
batch and no release without its ledger row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any, ClassVar

from sqlalchemy import (
    JSON,
    BigInteger,
    DateTime,
    Dialect,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    LargeBinary,
    MetaData,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeDecorator

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


class UtcTime(TypeDecorator[datetime]):
    """Timezone-aware times, kept in UTC (SQLite itself forgets time zones)."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Any time zone to UTC."""
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """UTC, said explicitly."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Epsilon(TypeDecorator[float]):
    """An ε ≥ 0. ``inf`` is kept as NULL, which both engines compare and export alike."""

    impl = Float(53)
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: Dialect) -> float | None:
        """``inf`` to NULL."""
        return None if value is None or math.isinf(value) else float(value)

    def process_result_value(self, value: float | None, dialect: Dialect) -> float:
        """NULL to ``inf``."""
        return math.inf if value is None else value


class Metrics(TypeDecorator[Mapping[str, float]]):
    """Named floats as JSON; NaN and infinities, which JSON has no numbers for, as texts."""

    impl = JSON
    cache_ok = True

    def process_bind_param(self, value: Mapping[str, float] | None, dialect: Dialect) -> Any:
        """Floats to JSON values."""
        pairs = [(name, float(number)) for name, number in (value or {}).items()]
        return {name: number if math.isfinite(number) else str(number) for name, number in pairs}

    def process_result_value(self, value: Any | None, dialect: Dialect) -> dict[str, float]:
        """JSON values to floats."""
        return {name: float(number) for name, number in (value or {}).items()}


class Base(DeclarativeBase):
    """Declarative base, with named constraints so that migrations can alter them on SQLite too."""

    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        datetime: UtcTime,
        Mapping[str, Any]: JSON,
        Mapping[str, float]: Metrics,
        float: Float(53),
    }


class RunTable(Base):
    """``RunRecord``."""

    __tablename__ = "runs"

    run_id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    status: Mapped[str]
    stop_reason: Mapped[str | None]
    config: Mapped[Mapping[str, Any]]
    config_sha256: Mapped[str]
    data_name: Mapped[str]
    unit: Mapped[str]
    users: Mapped[int] = mapped_column(BigInteger)
    nodes: Mapped[int]
    rounds_planned: Mapped[int]
    private: Mapped[bool]
    guarantee: Mapped[str]
    created_at: Mapped[date]
    class_names: Mapped[list[str]] = mapped_column(JSON)


class RoundTable(Base):
    """``RoundRecord``."""

    __tablename__ = "rounds"

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.run_id"), primary_key=True)
    round: Mapped[int] = mapped_column(primary_key=True)
    metrics: Mapped[Mapping[str, float]]
    dp_epsilon: Mapped[float] = mapped_column(Epsilon, nullable=True)
    delta_dp: Mapped[float]
    dp_method: Mapped[str]
    bdp_as_published: Mapped[float] = mapped_column(Epsilon, nullable=True)
    bdp_corrected: Mapped[float] = mapped_column(Epsilon, nullable=True)
    bdp_sound: Mapped[float] = mapped_column(Epsilon, nullable=True)
    delta_bdp: Mapped[float]
    percentiles: Mapped[Mapping[str, float]]
    percentiles_corrected: Mapped[Mapping[str, float]]


class LedgerTable(Base):
    """``LedgerRow``."""

    __tablename__ = "ledger"

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.run_id"), primary_key=True)
    index: Mapped[int] = mapped_column("ledger_index", primary_key=True)
    round: Mapped[int]
    event: Mapped[Mapping[str, Any]]
    purpose: Mapped[str]
    entry_hash: Mapped[str]
    created_at: Mapped[date]

    __table_args__ = (Index(None, "run_id", "round"),)


def _ledgered() -> ForeignKeyConstraint:
    return ForeignKeyConstraint(
        ["run_id", "ledger_index"], ["ledger.run_id", "ledger.ledger_index"]
    )


class ReleaseTable(Base):
    """``ReleaseRow``."""

    __tablename__ = "releases"

    run_id: Mapped[str] = mapped_column(primary_key=True)
    ledger_index: Mapped[int] = mapped_column(primary_key=True)
    round: Mapped[int]
    status: Mapped[str]

    __table_args__ = (_ledgered(),)


class CheckpointTable(Base):
    """``CheckpointRow``."""

    __tablename__ = "checkpoints"

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.run_id"), primary_key=True)
    round: Mapped[int] = mapped_column(primary_key=True)
    sha256: Mapped[str]
    path: Mapped[str]


class AuditTable(Base):
    """``AuditRecord``: append-only."""

    __tablename__ = "audits"

    audit_id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.run_id"), index=True)
    kind: Mapped[str]
    at: Mapped[date]
    claimed_epsilon: Mapped[float] = mapped_column(Epsilon, nullable=True)
    delta: Mapped[float]
    lower_bound: Mapped[float | None]
    estimate: Mapped[float | None]
    cap: Mapped[float | None]
    verdict: Mapped[str]
    words: Mapped[str]


class BatchTable(Base):
    """``StoredBatch``."""

    __tablename__ = "batches"

    batch_id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.run_id"))
    round: Mapped[int]
    ledger_index: Mapped[int]
    purpose: Mapped[str]
    checkpoint_sha256: Mapped[str]
    seed: Mapped[int] = mapped_column(BigInteger)
    count: Mapped[int]
    dp_epsilon: Mapped[float] = mapped_column(Epsilon, nullable=True)
    delta_dp: Mapped[float]
    bdp_as_published: Mapped[float] = mapped_column(Epsilon, nullable=True)
    bdp_corrected: Mapped[float] = mapped_column(Epsilon, nullable=True)
    bdp_sound: Mapped[float] = mapped_column(Epsilon, nullable=True)
    delta_bdp: Mapped[float]
    private: Mapped[bool]
    rejected: Mapped[Mapping[str, float]]
    fidelity: Mapped[Mapping[str, float]]
    provenance: Mapped[str]
    created_at: Mapped[date]

    __table_args__ = (UniqueConstraint("run_id", "round", "purpose", "seed"), _ledgered())


class SampleTable(Base):
    """``SampleRecord``. Its pixels may repeat: a collapsed generator repeats itself."""

    __tablename__ = "samples"

    sample_id: Mapped[int] = mapped_column(primary_key=True)
    batch_id: Mapped[int] = mapped_column(ForeignKey("batches.batch_id"))
    position: Mapped[int]
    requested_class: Mapped[int | None]
    png: Mapped[bytes] = mapped_column(LargeBinary)
    sha256: Mapped[str] = mapped_column(index=True)
    agreement: Mapped[float | None]

    __table_args__ = (
        UniqueConstraint("batch_id", "position"),
        Index("ix_samples_agreement", "batch_id", "agreement"),
        # Pages and counts of a million samples are found without a look at their pictures.
        Index("ix_samples_stored", "batch_id", "sample_id"),
        Index("ix_samples_class", "batch_id", "requested_class", "sample_id"),
    )


class UserTable(Base):
    """An annotator, not a user of the federation."""

    __tablename__ = "users"

    user_id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)


class ProjectTable(Base):
    """``StoredProject``."""

    __tablename__ = "projects"

    project_id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.run_id"))
    instructions: Mapped[str]
    purpose: Mapped[str]
    order: Mapped[str] = mapped_column("queue_order")
    seed: Mapped[int] = mapped_column(BigInteger)
    created_at: Mapped[datetime]
    overlap: Mapped[int]
    blind: Mapped[bool]
    several: Mapped[bool]
    random_share: Mapped[float]
    lease_seconds: Mapped[int]
    queued_batch: Mapped[int] = mapped_column(default=0)
    """The last batch whose samples are in the queue."""


class LabelTable(Base):
    """``StoredLabel``."""

    __tablename__ = "labels"

    label_id: Mapped[int] = mapped_column(primary_key=True)
    project_id: Mapped[int] = mapped_column(ForeignKey("projects.project_id"))
    key: Mapped[str]
    name: Mapped[str]
    kind: Mapped[str]

    __table_args__ = (UniqueConstraint("project_id", "key"), UniqueConstraint("project_id", "name"))


class AnnotationTable(Base):
    """``StoredAnnotation``: append-only.

    The first answer of a person about a sample supersedes nothing and is unique; each row is
    superseded at most once. So the answers form one chain, whose last row is the one in force.
    """

    __tablename__ = "annotations"

    annotation_id: Mapped[int] = mapped_column(primary_key=True)
    client_uuid: Mapped[str] = mapped_column(unique=True)
    project_id: Mapped[int] = mapped_column(ForeignKey("projects.project_id"))
    sample_id: Mapped[int] = mapped_column(ForeignKey("samples.sample_id"), index=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.user_id"))
    label_id: Mapped[int | None] = mapped_column(ForeignKey("labels.label_id"))
    skip_reason: Mapped[str | None]
    lead_ms: Mapped[int | None] = mapped_column(BigInteger)
    note: Mapped[str | None]
    more_labels: Mapped[list[int] | None] = mapped_column(JSON(none_as_null=True))
    supersedes_id: Mapped[int | None] = mapped_column(
        ForeignKey("annotations.annotation_id"), unique=True
    )
    created_at: Mapped[datetime]

    __table_args__ = (
        Index(None, "project_id", "user_id", "sample_id"),
        # A label's samples in their order, without a look at the answers themselves.
        Index("ix_annotations_label", "label_id", "sample_id"),
        Index(
            "uq_annotations_first_answer",
            "project_id",
            "user_id",
            "sample_id",
            unique=True,
            sqlite_where=text("supersedes_id IS NULL"),
            postgresql_where=text("supersedes_id IS NULL"),
        ),
    )
