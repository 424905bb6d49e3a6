"""The sound Bayesian figure, the percentile curve, and which accountant gave the DP figure."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_EPSILON = sa.Float(precision=53)


def upgrade() -> None:
    method = sa.Column("dp_method", sa.String(), nullable=False, server_default="rdp")
    op.add_column("rounds", method)
    op.add_column("rounds", sa.Column("bdp_sound", _EPSILON, nullable=True))
    op.add_column("rounds", sa.Column("percentiles", sa.JSON(), nullable=True))
    op.add_column("rounds", sa.Column("percentiles_corrected", sa.JSON(), nullable=True))
    op.add_column("batches", sa.Column("bdp_sound", _EPSILON, nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("batches") as batches:
        batches.drop_column("bdp_sound")
    with op.batch_alter_table("rounds") as rounds:
        for name in ("percentiles_corrected", "percentiles", "bdp_sound", "dp_method"):
            rounds.drop_column(name)
