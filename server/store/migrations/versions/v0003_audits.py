"""What audits of a run found."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_EPSILON = sa.Float(precision=53)


def upgrade() -> None:
    op.create_table(
        "audits",
        sa.Column("audit_id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("claimed_epsilon", _EPSILON, nullable=True),
        sa.Column("delta", _EPSILON, nullable=False),
        sa.Column("lower_bound", _EPSILON, nullable=True),
        sa.Column("estimate", _EPSILON, nullable=True),
        sa.Column("cap", _EPSILON, nullable=True),
        sa.Column("verdict", sa.String(), nullable=False),
        sa.Column("words", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name=op.f("fk_audits_run_id_runs")),
        sa.PrimaryKeyConstraint("audit_id", name=op.f("pk_audits")),
    )
    op.create_index(op.f("ix_audits_run_id"), "audits", ["run_id"], unique=False)


def downgrade() -> None:
    op.drop_table("audits")
