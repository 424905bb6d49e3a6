"""Curated and faithful samples told apart, with agreement and what the filter turned down.

What was a ``release`` until this revision was guided and filtered where its run had an annotator:
it is ``curated`` now. Of older samples no agreement is known.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_TABLES = ("batches", "projects")


def upgrade() -> None:
    op.add_column("samples", sa.Column("agreement", sa.Float(precision=53), nullable=True))
    op.create_index("ix_samples_agreement", "samples", ["batch_id", "agreement"])
    nothing = sa.Column("rejected", sa.JSON(), nullable=False, server_default="{}")
    op.add_column("batches", nothing)
    for name in _TABLES:
        _rename(name, "release", "curated")


def downgrade() -> None:
    for name in _TABLES:
        for purpose in ("curated", "faithful"):
            _rename(name, purpose, "release")
    with op.batch_alter_table("batches") as batches:
        batches.drop_column("rejected")
    op.drop_index("ix_samples_agreement", "samples")
    with op.batch_alter_table("samples") as samples:
        samples.drop_column("agreement")


def _rename(table: str, old: str, new: str) -> None:
    rows = sa.table(table, sa.column("purpose", sa.String()))
    op.execute(rows.update().where(rows.c.purpose == old).values(purpose=new))
