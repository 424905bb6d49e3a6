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


def _key(name: str, kind: Any = sa.Integer, *, refers: str = "", index: bool = False) -> Any:
    """A column of the primary key."""
    foreign = [sa.ForeignKey(refers)] if refers else []
    return sa.Column(name, kind, *foreign, primary_key=True, index=index or None)


def _column(name: str, kind: Any = sa.Integer, *, refers: str = "", **more: Any) -> sa.Column[Any]:
    """A column that refers to another table, is unique, or has an index."""
    foreign = [sa.ForeignKey(refers)] if refers else []
    return sa.Column(name, kind, *foreign, **({"nullable": False} | more))


def _given(*names: str, kind: Any = sa.String) -> list[sa.Column[Any]]:
    """Columns that are never NULL."""
    return [sa.Column(name, kind, nullable=False) for name in names]


def _open(*names: str, kind: Any = sa.String) -> list[sa.Column[Any]]:
    """Columns that may be NULL."""
    return [sa.Column(name, kind) for name in names]


def _spent() -> list[sa.Column[Any]]:
    return [
        *_open("dp_epsilon", kind=_FLOAT),
        *_given("delta_dp", kind=_FLOAT),
        *_open("bdp_as_published", "bdp_corrected", "bdp_sound", kind=_FLOAT),
        *_given("delta_bdp", kind=_FLOAT),
    ]


def _partial(name: str, *columns: str, where: str, unique: bool = False) -> sa.Index:
    """An index over the rows that meet a condition."""
    condition = sa.text(where)
    return sa.Index(
        name, *columns, unique=unique, sqlite_where=condition, postgresql_where=condition
    )


_table(
    "member_nodes",
    _key("population", sa.String),
    _key("node"),
    *_given("users", kind=sa.BigInteger),
    *_given("since", "seen", kind=sa.Date),
    *_open("revoked", kind=sa.Date),
)
_table(
    "members",
    _key("population", sa.String),
    _key("number", sa.BigInteger, index=True),
    _key("node"),
    *_given("since", kind=sa.Date),
    *_open("until", "revoked", kind=sa.Date),
)
_table(
    "privatizer_curves",
    _key("curve_id"),
    *_given("method", "data"),
    *_given("at", kind=_TIME),
    *_given("quick", kind=sa.Boolean),
    *_given("seeds", kind=sa.Integer),
    *_given("utility_measure"),
    *_open("least_sum", kind=_FLOAT),
    *_given("label"),
    *_given("controls", kind=sa.JSON),
)
_table(
    "runs",
    _key("run_id", sa.String),
    *_given("name", "status"),
    *_open("stop_reason"),
    *_given("config", kind=sa.JSON),
    *_given("config_sha256", "data_name", "unit"),
    *_given("users", kind=sa.BigInteger),
    *_given("nodes", "rounds_planned", kind=sa.Integer),
    *_given("private", kind=sa.Boolean),
    *_given("guarantee"),
    *_given("created_at", kind=sa.Date),
    *_given("class_names", kind=sa.JSON),
)
_table(
    "team_log",
    _key("entry_id"),
    *_given("day", kind=sa.Date),
    *_given("actor", "action", "subject"),
)
_table(
    "users",
    _key("user_id"),
    _column("name", sa.String, unique=True),
)
_table(
    "accounts",
    _key("user_id", refers="users.user_id"),
    *_given("role"),
    *_open("password"),
    *_given("disabled", kind=sa.Boolean),
)
_table(
    "audits",
    _key("audit_id"),
    _column("run_id", sa.String, refers="runs.run_id", index=True),
    *_given("kind"),
    *_given("at", kind=sa.Date),
    *_open("claimed_epsilon", kind=_FLOAT),
    *_given("delta", kind=_FLOAT),
    *_open("lower_bound", "estimate", "cap", kind=_FLOAT),
    *_given("verdict", "words"),
)
_table(
    "checkpoints",
    _key("run_id", sa.String, refers="runs.run_id"),
    _key("round"),
    *_given("sha256", "path"),
)
_table(
    "findings",
    _key("finding_id"),
    _column("run_id", sa.String, refers="runs.run_id", index=True),
    *_given("hypothesis"),
    *_open("fault"),
    *_given("status", "author"),
    *_given("created_at", "changed_at", kind=_TIME),
)
_table(
    "ledger",
    _key("run_id", sa.String, refers="runs.run_id"),
    _key("ledger_index"),
    *_given("round", kind=sa.Integer),
    *_given("event", kind=sa.JSON),
    *_given("purpose", "entry_hash"),
    *_given("created_at", kind=sa.Date),
    sa.Index(None, "run_id", "round"),
)
_table(
    "pinned_references",
    _key("data_name", sa.String),
    _column("run_id", sa.String, refers="runs.run_id"),
    *_given("author"),
)
_table("saved_views", _key("name", sa.String), *_given("address", "author"))
_table(
    "presence",
    _key("run_id", sa.String, refers="runs.run_id"),
    _key("round"),
    *_given("answered", kind=sa.JSON),
    *_given("nodes", kind=sa.Integer),
    *_given("users", "users_declared", kind=sa.BigInteger),
)
_table(
    "privatizer_points",
    _key("curve_id", refers="privatizer_curves.curve_id"),
    _key("position"),
    *_open("alpha", "weight", "suppression_ratio", kind=_FLOAT),
    *_given("utility", "utility_std", kind=_FLOAT),
    *_open("fresh", "fresh_std", "certified_nats", kind=_FLOAT),
    *_given("fairness", kind=sa.JSON),
    *_open("latency_ms", kind=_FLOAT),
    *_given("seconds", kind=_FLOAT),
)
_table(
    "projects",
    _key("project_id"),
    _column("name", sa.String, unique=True),
    _column("run_id", sa.String, refers="runs.run_id"),
    *_given("instructions", "purpose", "queue_order"),
    *_given("seed", kind=sa.BigInteger),
    *_given("created_at", kind=_TIME),
    *_given("overlap", kind=sa.Integer),
    *_given("blind", "several", kind=sa.Boolean),
    *_given("random_share", kind=_FLOAT),
    *_given("lease_seconds", "queued_batch", kind=sa.Integer),
)
_table(
    "rounds",
    _key("run_id", sa.String, refers="runs.run_id"),
    _key("round"),
    *_given("metrics", kind=sa.JSON),
    *_spent(),
    *_given("dp_method"),
    *_given("percentiles", "percentiles_corrected", kind=sa.JSON),
)
_table(
    "sign_ins",
    _key("token_sha256", sa.String),
    _column("user_id", refers="users.user_id", index=True),
    *_given("expires_at", kind=_TIME),
)
_table(
    "batches",
    _key("batch_id"),
    _column("run_id", sa.String, refers="runs.run_id"),
    *_given("round", "ledger_index", kind=sa.Integer),
    *_given("purpose", "checkpoint_sha256"),
    *_given("seed", kind=sa.BigInteger),
    *_given("count", kind=sa.Integer),
    *_spent(),
    *_given("private", kind=sa.Boolean),
    *_given("rejected", "fidelity", kind=sa.JSON),
    *_given("provenance"),
    *_given("created_at", kind=sa.Date),
    sa.ForeignKeyConstraint(["run_id", "ledger_index"], ["ledger.run_id", "ledger.ledger_index"]),
    sa.UniqueConstraint("run_id", "round", "purpose", "seed"),
)
_table(
    "finding_entries",
    _key("entry_id"),
    _column("finding_id", refers="findings.finding_id", index=True),
    *_given("happened_at", kind=_TIME),
    *_given("author", "kind"),
    *_given("content", kind=sa.JSON),
)
_table(
    "labels",
    _key("label_id"),
    _column("project_id", refers="projects.project_id"),
    *_given("key", "name", "kind"),
    sa.UniqueConstraint("project_id", "key"),
    sa.UniqueConstraint("project_id", "name"),
)
_table(
    "privatizer_attacks",
    _key("curve_id"),
    _key("position"),
    _key("attacker", sa.String),
    *_given("mean", "std", "low", "high", "leak", "leak_low", "leak_high", kind=_FLOAT),
    *_open("frozen", kind=_FLOAT),
    sa.ForeignKeyConstraint(
        ["curve_id", "position"], ["privatizer_points.curve_id", "privatizer_points.position"]
    ),
)
_table(
    "releases",
    _key("run_id", sa.String),
    _key("ledger_index"),
    *_given("round", kind=sa.Integer),
    *_given("status"),
    sa.ForeignKeyConstraint(["run_id", "ledger_index"], ["ledger.run_id", "ledger.ledger_index"]),
)
_table(
    "samples",
    _key("sample_id"),
    _column("batch_id", refers="batches.batch_id"),
    *_given("position", kind=sa.Integer),
    *_open("requested_class", kind=sa.Integer),
    *_given("png", kind=sa.LargeBinary),
    _column("sha256", sa.String, index=True),
    *_open("agreement", kind=_FLOAT),
    sa.UniqueConstraint("batch_id", "position"),
    sa.Index("ix_samples_agreement", "batch_id", "agreement"),
    sa.Index("ix_samples_class", "batch_id", "requested_class", "sample_id"),
    sa.Index("ix_samples_stored", "batch_id", "sample_id"),
)
_table(
    "adjudications",
    _key("adjudication_id"),
    _column("project_id", refers="projects.project_id"),
    _column("sample_id", refers="samples.sample_id"),
    _column("user_id", refers="users.user_id"),
    _column("label_id", refers="labels.label_id", nullable=True),
    *_given("note", "client_uuid"),
    *_given("reopens", kind=sa.Boolean),
    *_given("created_at", kind=_TIME),
    sa.UniqueConstraint("client_uuid", "sample_id"),
    sa.Index(None, "project_id", "sample_id"),
)
_table(
    "annotations",
    _key("annotation_id"),
    _column("client_uuid", sa.String, unique=True),
    _column("project_id", refers="projects.project_id"),
    _column("sample_id", refers="samples.sample_id", index=True),
    _column("user_id", refers="users.user_id"),
    _column("label_id", refers="labels.label_id", nullable=True),
    *_open("skip_reason"),
    *_open("lead_ms", kind=sa.BigInteger),
    *_open("note"),
    *_open("more_labels", kind=sa.JSON),
    _column("supersedes_id", refers="annotations.annotation_id", nullable=True, unique=True),
    *_given("created_at", kind=_TIME),
    sa.Index("ix_annotations_label", "label_id", "sample_id"),
    sa.Index(None, "project_id", "user_id", "sample_id"),
    _partial(
        "uq_annotations_first_answer",
        "project_id",
        "user_id",
        "sample_id",
        where="supersedes_id IS NULL",
        unique=True,
    ),
)
_table(
    "leases",
    _key("project_id", refers="projects.project_id"),
    _key("sample_id", refers="samples.sample_id"),
    _key("user_id", refers="users.user_id"),
    *_given("tab"),
    *_given("until", kind=_TIME),
    sa.Index("ix_leases_holder", "project_id", "user_id", "tab"),
)
_table(
    "sample_tags",
    _key("sample_id", refers="samples.sample_id"),
    _key("tag", sa.String),
    _column("run_id", sa.String, refers="runs.run_id"),
    *_given("author"),
    sa.Index("ix_sample_tags_run_id_tag", "run_id", "tag", "sample_id"),
)
_table(
    "tag_entries",
    _key("entry_id"),
    *_given("day", kind=sa.Date),
    *_given("actor"),
    _column("run_id", sa.String, refers="runs.run_id"),
    _column("sample_id", refers="samples.sample_id", index=True),
    *_given("tag"),
    *_given("added", kind=sa.Boolean),
    sa.Index("ix_tag_entries_run_id", "run_id", "entry_id"),
)
_table(
    "tasks",
    _key("project_id", refers="projects.project_id"),
    _key("sample_id", refers="samples.sample_id"),
    *_given("need", "answered", kind=sa.Integer),
    *_given("is_open", kind=sa.Boolean),
    *_given("lane", kind=sa.Integer),
    *_given("task_rank", kind=sa.BigInteger),
    *_given("is_control", "disputed", kind=sa.Boolean),
    *_open("requested_class", kind=sa.Integer),
    _column("final_label_id", refers="labels.label_id", nullable=True),
    *_given("decided", kind=sa.Boolean),
    _column("gold_label_id", refers="labels.label_id", nullable=True),
    sa.Index(
        "ix_tasks_counted",
        "project_id",
        "requested_class",
        "final_label_id",
        "answered",
        "decided",
        "is_control",
    ),
    sa.Index("ix_tasks_decided", "project_id", "decided"),
    sa.Index("ix_tasks_disputed", "project_id", "disputed", "decided"),
    _partial("ix_tasks_gold", "project_id", "sample_id", where="gold_label_id IS NOT NULL"),
    sa.Index(None, "project_id", "is_open", "lane", "task_rank"),
    _partial("ix_tasks_shared", "project_id", "task_rank", "sample_id", where="answered >= 2"),
)
_table(
    "spending_requests",
    _key("request_id"),
    _column("people", sa.String, index=True),
    *_given("run_id", "probe"),
    *_given("asked_epsilon", "epsilon", "delta", kind=_FLOAT),
    *_given("why", "author", "status"),
    *_open("decided_by"),
    *_given("note"),
    *_given("created_at", "changed_at", kind=_TIME),
    sa.Index("ix_spending_requests_question", "run_id", "probe"),
)
_table(
    "spending_rules",
    _key("rule_id"),
    _column("people", sa.String, index=True),
    *_open("approve_above", kind=_FLOAT),
    *_given("warn_at", kind=_FLOAT),
    *_given("author"),
    *_given("created_at", kind=_TIME),
)
