"""Dates in place of times, no seconds of rounds, and no Bayesian figures of exact norms.

Times tell who was drawn for a round. Bayesian figures were computed from users' exact norms until
this revision, so they tell of single people too, as do the sentences that name them.
"""

from __future__ import annotations

import re
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
_FIGURES = ("bdp_as_published", "bdp_corrected", "bdp_sound")
_CURVES = ("percentiles", "percentiles_corrected")
_BAYESIAN = re.compile(r"Bayesian differential privacy at .*?(?=Not covered:|Records went|$)", re.S)
NOT_KEPT = (
    "Bayesian figures of runs before this version were computed from exact norms of users and are "
    "not kept; differential privacy's stand."
)


def upgrade() -> None:
    _drop_figures()
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


def _drop_figures() -> None:
    """Take out all that was computed from exact norms: ε to NULL, which says that none is known."""
    for name, curves in (("rounds", _CURVES), ("batches", ())):
        kinds = {figure: sa.Float() for figure in _FIGURES} | dict.fromkeys(curves, sa.JSON())
        table = sa.table(name, *(sa.column(column, kind) for column, kind in kinds.items()))
        nothing = dict.fromkeys(_FIGURES) | {curve: {} for curve in curves}
        op.execute(table.update().values(nothing))
    runs = sa.table("runs", sa.column("run_id", sa.String()), sa.column("guarantee", sa.String()))
    for run_id, guarantee in op.get_bind().execute(sa.select(runs.c.run_id, runs.c.guarantee)):
        changed = runs.update().where(runs.c.run_id == run_id)
        op.execute(changed.values(guarantee=_without_figures(guarantee)))


def _without_figures(guarantee: str) -> str:
    """A run's guarantee less what it says of Bayesian figures; in other words than ours, all."""
    left, found = _BAYESIAN.subn(f"{NOT_KEPT} ", guarantee)
    known = found or "Bayesian" not in guarantee.replace("There is no Bayesian figure.", "")
    return left.strip() if known else NOT_KEPT


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
