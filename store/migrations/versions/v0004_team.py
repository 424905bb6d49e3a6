"""Accounts, shared queues with leases, decisions of reviewers, notes and several labels."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

from fedlens.store.schema import UtcTime

revision = "0004"
down_revision = "0003"

_NEW_TABLES = ("adjudications", "leases", "tasks", "team_log", "sign_ins", "accounts")
_OF_PROJECTS: dict[str, tuple[Any, Any]] = {
    "overlap": (sa.Integer(), "0"),
    "blind": (sa.Boolean(), sa.true()),
    "several": (sa.Boolean(), sa.false()),
    "random_share": (sa.Float(precision=53), "0.1"),
    "lease_seconds": (sa.Integer(), "600"),
    "queued_batch": (sa.Integer(), "0"),
}


def upgrade() -> None:
    with op.batch_alter_table("projects") as projects:
        for name, (kind, default) in _OF_PROJECTS.items():
            projects.add_column(sa.Column(name, kind, nullable=False, server_default=default))
    with op.batch_alter_table("annotations") as annotations:
        annotations.add_column(sa.Column("note", sa.String(), nullable=True))
        annotations.add_column(sa.Column("more_labels", sa.JSON(), nullable=True))
    _people()
    _queues()
    _decisions()


def _foreign(table: str, column: str, target: str) -> sa.ForeignKeyConstraint:
    other, _, _ = target.partition(".")
    return sa.ForeignKeyConstraint([column], [target], name=f"fk_{table}_{column}_{other}")


def _people() -> None:
    op.create_table(
        "accounts",
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("password", sa.String(), nullable=True),
        sa.Column("disabled", sa.Boolean(), nullable=False),
        _foreign("accounts", "user_id", "users.user_id"),
        sa.PrimaryKeyConstraint("user_id", name="pk_accounts"),
    )
    op.create_table(
        "sign_ins",
        sa.Column("token_sha256", sa.String(), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("expires_at", UtcTime(), nullable=False),
        _foreign("sign_ins", "user_id", "users.user_id"),
        sa.PrimaryKeyConstraint("token_sha256", name="pk_sign_ins"),
    )
    op.create_index("ix_sign_ins_user_id", "sign_ins", ["user_id"])
    op.create_table(
        "team_log",
        sa.Column("entry_id", sa.Integer(), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        *(sa.Column(n, sa.String(), nullable=False) for n in ("actor", "action", "subject")),
        sa.PrimaryKeyConstraint("entry_id", name="pk_team_log"),
    )


def _queues() -> None:
    op.create_table(
        "tasks",
        *(
            sa.Column(n, sa.Integer(), nullable=False)
            for n in ("project_id", "sample_id", "need", "answered")
        ),
        sa.Column("is_open", sa.Boolean(), nullable=False),
        sa.Column("lane", sa.Integer(), nullable=False),
        sa.Column("task_rank", sa.BigInteger(), nullable=False),
        sa.Column("is_control", sa.Boolean(), nullable=False),
        sa.Column("disputed", sa.Boolean(), nullable=False),
        sa.Column("requested_class", sa.Integer(), nullable=False),
        sa.Column("final_label_id", sa.Integer(), nullable=True),
        sa.Column("decided", sa.Boolean(), nullable=False),
        sa.Column("gold_label_id", sa.Integer(), nullable=True),
        _foreign("tasks", "project_id", "projects.project_id"),
        _foreign("tasks", "sample_id", "samples.sample_id"),
        _foreign("tasks", "gold_label_id", "labels.label_id"),
        _foreign("tasks", "final_label_id", "labels.label_id"),
        sa.PrimaryKeyConstraint("project_id", "sample_id", name="pk_tasks"),
    )
    op.create_index(
        "ix_tasks_project_id_is_open_lane_task_rank",
        "tasks",
        ["project_id", "is_open", "lane", "task_rank"],
    )
    op.create_index("ix_tasks_disputed", "tasks", ["project_id", "disputed"])
    op.create_table(
        "leases",
        *(
            sa.Column(n, sa.Integer(), nullable=False)
            for n in ("project_id", "sample_id", "user_id")
        ),
        sa.Column("tab", sa.String(), nullable=False),
        sa.Column("until", UtcTime(), nullable=False),
        _foreign("leases", "project_id", "projects.project_id"),
        _foreign("leases", "sample_id", "samples.sample_id"),
        _foreign("leases", "user_id", "users.user_id"),
        sa.PrimaryKeyConstraint("project_id", "sample_id", "user_id", name="pk_leases"),
    )
    op.create_index("ix_leases_holder", "leases", ["project_id", "user_id", "tab"])


def _decisions() -> None:
    op.create_table(
        "adjudications",
        sa.Column("adjudication_id", sa.Integer(), nullable=False),
        *(
            sa.Column(n, sa.Integer(), nullable=False)
            for n in ("project_id", "sample_id", "user_id")
        ),
        sa.Column("label_id", sa.Integer(), nullable=True),
        sa.Column("note", sa.String(), nullable=False),
        _foreign("adjudications", "project_id", "projects.project_id"),
        _foreign("adjudications", "sample_id", "samples.sample_id"),
        _foreign("adjudications", "user_id", "users.user_id"),
        _foreign("adjudications", "label_id", "labels.label_id"),
        sa.PrimaryKeyConstraint("adjudication_id", name="pk_adjudications"),
    )
    op.create_index(
        "ix_adjudications_project_id_sample_id", "adjudications", ["project_id", "sample_id"]
    )


def downgrade() -> None:
    for name in _NEW_TABLES:
        op.drop_table(name)
    with op.batch_alter_table("annotations") as annotations:
        annotations.drop_column("more_labels")
        annotations.drop_column("note")
    with op.batch_alter_table("projects") as projects:
        for name in reversed(_OF_PROJECTS):
            projects.drop_column(name)
