"""The first tables: as they were then, whatever the schema has become since."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_FLOAT = sa.Float(precision=53)
_TIME = sa.DateTime(timezone=True)
_TABLES = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def upgrade() -> None:
    _TABLES.create_all(op.get_bind(), checkfirst=False)


def downgrade() -> None:
    _TABLES.drop_all(op.get_bind(), checkfirst=False)


def _table(name: str, *parts: sa.Column[Any] | sa.Constraint | sa.Index) -> None:
    sa.Table(name, _TABLES, *parts)


def _key(name: str, kind: Any = sa.Integer, refers: str = "") -> sa.Column[Any]:
    """A column of the primary key."""
    return sa.Column(name, kind(), *([sa.ForeignKey(refers)] if refers else []), primary_key=True)


def _given(name: str, kind: Any = sa.String, **more: Any) -> sa.Column[Any]:
    """A column that is never NULL."""
    return sa.Column(name, kind, nullable=False, **more)


def _refers(name: str, column: str, kind: Any = sa.Integer, **more: Any) -> sa.Column[Any]:
    """A column that is never NULL and names a row of another table."""
    return sa.Column(name, kind(), sa.ForeignKey(column), **({"nullable": False} | more))


def _ledgered() -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["run_id", "ledger_index"], ["ledger.run_id", "ledger.ledger_index"]
    )


def _spent() -> list[sa.Column[Any]]:
    return [
        sa.Column("dp_epsilon", _FLOAT),
        _given("delta_dp", _FLOAT),
        sa.Column("bdp_as_published", _FLOAT),
        sa.Column("bdp_corrected", _FLOAT),
        sa.Column("bdp_sound", _FLOAT),
        _given("delta_bdp", _FLOAT),
    ]


_table(
    "runs",
    _key("run_id", sa.String),
    _given("name"),
    _given("status"),
    sa.Column("stop_reason", sa.String()),
    _given("config", sa.JSON),
    _given("config_sha256"),
    _given("data_name"),
    _given("unit"),
    _given("users", sa.BigInteger),
    _given("nodes", sa.Integer),
    _given("rounds_planned", sa.Integer),
    _given("private", sa.Boolean),
    _given("guarantee"),
    _given("created_at", _TIME),
)
_table(
    "rounds",
    _key("run_id", sa.String, "runs.run_id"),
    _key("round"),
    _given("metrics", sa.JSON),
    *_spent(),
    _given("dp_method"),
    _given("percentiles", sa.JSON),
    _given("percentiles_corrected", sa.JSON),
    _given("seconds", _FLOAT),
)
_table(
    "ledger",
    _key("run_id", sa.String, "runs.run_id"),
    _key("ledger_index"),
    _given("round", sa.Integer),
    _given("event", sa.JSON),
    _given("purpose"),
    _given("entry_hash"),
    _given("created_at", _TIME),
    sa.Index(None, "run_id", "round"),
)
_table(
    "releases",
    _key("run_id", sa.String),
    _key("ledger_index"),
    _given("round", sa.Integer),
    _given("status"),
    _ledgered(),
)
_table(
    "checkpoints",
    _key("run_id", sa.String, "runs.run_id"),
    _key("round"),
    _given("sha256"),
    _given("path"),
)
_table(
    "audits",
    _key("audit_id"),
    _refers("run_id", "runs.run_id", sa.String, index=True),
    _given("kind"),
    _given("at", _TIME),
    sa.Column("claimed_epsilon", _FLOAT),
    _given("delta", _FLOAT),
    sa.Column("lower_bound", _FLOAT),
    sa.Column("estimate", _FLOAT),
    sa.Column("cap", _FLOAT),
    _given("verdict"),
    _given("words"),
)
_table(
    "batches",
    _key("batch_id"),
    _refers("run_id", "runs.run_id", sa.String),
    _given("round", sa.Integer),
    _given("ledger_index", sa.Integer),
    _given("purpose"),
    _given("checkpoint_sha256"),
    _given("seed", sa.BigInteger),
    _given("count", sa.Integer),
    *_spent(),
    _given("private", sa.Boolean),
    _given("provenance"),
    _given("created_at", _TIME),
    sa.UniqueConstraint("run_id", "round", "purpose", "seed"),
    _ledgered(),
)
_table(
    "samples",
    _key("sample_id"),
    _refers("batch_id", "batches.batch_id"),
    _given("position", sa.Integer),
    _given("requested_class", sa.Integer),
    _given("png", sa.LargeBinary),
    _given("sha256", index=True),
    sa.UniqueConstraint("batch_id", "position"),
)
_table("users", _key("user_id"), _given("name", unique=True))
_table(
    "projects",
    _key("project_id"),
    _given("name", unique=True),
    _refers("run_id", "runs.run_id", sa.String),
    _given("instructions"),
    _given("purpose"),
    _given("queue_order"),
    _given("seed", sa.BigInteger),
    _given("created_at", _TIME),
)
_table(
    "labels",
    _key("label_id"),
    _refers("project_id", "projects.project_id"),
    _given("key"),
    _given("name"),
    _given("kind"),
    sa.UniqueConstraint("project_id", "key"),
    sa.UniqueConstraint("project_id", "name"),
)
_table(
    "annotations",
    _key("annotation_id"),
    _given("client_uuid", unique=True),
    _refers("project_id", "projects.project_id"),
    _refers("sample_id", "samples.sample_id", index=True),
    _refers("user_id", "users.user_id"),
    _refers("label_id", "labels.label_id", nullable=True, index=True),
    sa.Column("skip_reason", sa.String()),
    sa.Column("lead_ms", sa.BigInteger()),
    _refers("supersedes_id", "annotations.annotation_id", nullable=True, unique=True),
    _given("created_at", _TIME),
    sa.Index(None, "project_id", "user_id", "sample_id"),
    sa.Index(
        "uq_annotations_first_answer",
        "project_id",
        "user_id",
        "sample_id",
        unique=True,
        sqlite_where=sa.text("supersedes_id IS NULL"),
        postgresql_where=sa.text("supersedes_id IS NULL"),
    ),
)
_table(
    "privatizer_curves",
    _key("curve_id"),
    _given("method"),
    _given("data"),
    _given("at", _TIME),
    _given("quick", sa.Boolean),
    _given("seeds", sa.Integer),
    _given("utility_measure"),
    sa.Column("least_sum", _FLOAT),
    _given("label"),
)
_table(
    "privatizer_points",
    _key("curve_id", refers="privatizer_curves.curve_id"),
    _key("position"),
    sa.Column("alpha", _FLOAT),
    sa.Column("weight", _FLOAT),
    sa.Column("suppression_ratio", _FLOAT),
    _given("utility", _FLOAT),
    _given("utility_std", _FLOAT),
    sa.Column("fresh", _FLOAT),
    sa.Column("fresh_std", _FLOAT),
    sa.Column("certified_nats", _FLOAT),
    _given("fairness", sa.JSON),
    sa.Column("latency_ms", _FLOAT),
    _given("seconds", _FLOAT),
)
_table(
    "privatizer_attacks",
    _key("curve_id"),
    _key("position"),
    _key("attacker", sa.String),
    *(_given(name, _FLOAT) for name in ("mean", "std", "low", "high")),
    *(_given(name, _FLOAT) for name in ("leak", "leak_low", "leak_high")),
    sa.Column("frozen", _FLOAT),
    sa.ForeignKeyConstraint(
        ["curve_id", "position"],
        ["privatizer_points.curve_id", "privatizer_points.position"],
    ),
)
