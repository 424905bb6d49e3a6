"""Curves of privatizers: figures of each point and of each attacker."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_FLOAT = sa.Float(precision=53)


def upgrade() -> None:
    op.create_table(
        "privatizer_curves",
        sa.Column("curve_id", sa.Integer(), nullable=False),
        sa.Column("method", sa.String(), nullable=False),
        sa.Column("data", sa.String(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("quick", sa.Boolean(), nullable=False),
        sa.Column("seeds", sa.Integer(), nullable=False),
        sa.Column("utility_measure", sa.String(), nullable=False),
        sa.Column("least_sum", _FLOAT, nullable=True),
        sa.Column("label", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("curve_id", name=op.f("pk_privatizer_curves")),
    )
    _points()
    _attacks()


def _points() -> None:
    op.create_table(
        "privatizer_points",
        sa.Column("curve_id", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("alpha", _FLOAT, nullable=True),
        sa.Column("weight", _FLOAT, nullable=True),
        sa.Column("suppression_ratio", _FLOAT, nullable=True),
        sa.Column("utility", _FLOAT, nullable=False),
        sa.Column("utility_std", _FLOAT, nullable=False),
        sa.Column("fresh", _FLOAT, nullable=True),
        sa.Column("fresh_std", _FLOAT, nullable=True),
        sa.Column("certified_nats", _FLOAT, nullable=True),
        sa.Column("fairness", sa.JSON(), nullable=False),
        sa.Column("latency_ms", _FLOAT, nullable=True),
        sa.Column("seconds", _FLOAT, nullable=False),
        sa.ForeignKeyConstraint(
            ["curve_id"],
            ["privatizer_curves.curve_id"],
            name=op.f("fk_privatizer_points_curve_id_privatizer_curves"),
        ),
        sa.PrimaryKeyConstraint("curve_id", "position", name=op.f("pk_privatizer_points")),
    )


def _attacks() -> None:
    op.create_table(
        "privatizer_attacks",
        sa.Column("curve_id", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("attacker", sa.String(), nullable=False),
        sa.Column("mean", _FLOAT, nullable=False),
        sa.Column("std", _FLOAT, nullable=False),
        sa.Column("low", _FLOAT, nullable=False),
        sa.Column("high", _FLOAT, nullable=False),
        sa.Column("leak", _FLOAT, nullable=False),
        sa.Column("leak_low", _FLOAT, nullable=False),
        sa.Column("leak_high", _FLOAT, nullable=False),
        sa.Column("frozen", _FLOAT, nullable=True),
        sa.ForeignKeyConstraint(
            ["curve_id", "position"],
            ["privatizer_points.curve_id", "privatizer_points.position"],
            name=op.f("fk_privatizer_attacks_curve_id_position_privatizer_points"),
        ),
        sa.PrimaryKeyConstraint(
            "curve_id", "position", "attacker", name=op.f("pk_privatizer_attacks")
        ),
    )


def downgrade() -> None:
    op.drop_table("privatizer_attacks")
    op.drop_table("privatizer_points")
    op.drop_table("privatizer_curves")
