"""Dates in place of times, and no seconds of rounds: both tell who was drawn for a round."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_COLUMNS = (
    ("runs", "created_at"),
    ("ledger", "created_at"),
    ("batches", "created_at"),
    ("audits", "at"),
)


def upgrade() -> None:
    with op.batch_alter_table("rounds") as rounds:
        rounds.drop_column("seconds")
    for table, column in _COLUMNS:
        _replace(
            table,
            column,
            sa.Date(),
            sqlite=sa.func.substr(sa.literal_column(column), 1, 10),  # times are UTC texts there
            postgresql=sa.cast(sa.func.timezone("UTC", sa.column(column)), sa.Date),
        )


def downgrade() -> None:
    for table, column in _COLUMNS:
        _replace(
            table,
            column,
            sa.DateTime(timezone=True),
            sqlite=sa.literal_column(f"{column} || ' 00:00:00.000000'"),
            postgresql=sa.func.timezone("UTC", sa.cast(sa.column(column), sa.DateTime)),
        )
    seconds = sa.Column("seconds", sa.Float(precision=53), nullable=False, server_default="0")
    with op.batch_alter_table("rounds") as rounds:
        rounds.add_column(seconds)


def _replace(table: str, column: str, kind: Any, **values: Any) -> None:
    """Give a column another type, its values reckoned from those there, on either engine.

    SQLite's own conversion would make the number 2026 of a date.
    """
    with op.batch_alter_table(table) as changed:
        changed.add_column(sa.Column("made", kind))
    value = values[op.get_context().dialect.name]
    op.execute(sa.table(table, sa.column("made")).update().values(made=value))
    with op.batch_alter_table(table) as changed:
        changed.drop_column(column)
        changed.alter_column("made", new_column_name=column, existing_type=kind, nullable=False)
