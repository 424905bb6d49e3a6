"""Members of a population, its nodes, and which nodes each round had."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.create_table(
        "member_nodes",
        sa.Column("population", sa.String(), nullable=False),
        sa.Column("node", sa.Integer(), nullable=False),
        sa.Column("users", sa.BigInteger(), nullable=False),
        *_days("since", "seen"),
        sa.Column("revoked", sa.Date(), nullable=True),
        sa.PrimaryKeyConstraint("population", "node", name="pk_member_nodes"),
    )
    op.create_table(
        "members",
        sa.Column("population", sa.String(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("node", sa.Integer(), nullable=False),
        *_days("since"),
        sa.Column("until", sa.Date(), nullable=True),
        sa.Column("revoked", sa.Date(), nullable=True),
        sa.PrimaryKeyConstraint("population", "number", "node", name="pk_members"),
    )
    op.create_index("ix_members_number", "members", ["number"])
    op.create_table(
        "presence",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("answered", sa.JSON(), nullable=False),
        sa.Column("nodes", sa.Integer(), nullable=False),
        sa.Column("users", sa.BigInteger(), nullable=False),
        sa.Column("users_declared", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="fk_presence_run_id_runs"),
        sa.PrimaryKeyConstraint("run_id", "round", name="pk_presence"),
    )


def _days(*names: str) -> list[sa.Column[object]]:
    return [sa.Column(name, sa.Date(), nullable=False) for name in names]


def downgrade() -> None:
    for name in ("presence", "members", "member_nodes"):
        op.drop_table(name)
