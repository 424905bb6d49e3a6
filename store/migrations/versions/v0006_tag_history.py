"""Who gave and took which tags; indexes by which labels of a million samples are counted."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

_COUNTED = (
    "project_id",
    "requested_class",
    "final_label_id",
    "answered",
    "decided",
    "is_control",
)
_SHARED = sa.text("answered >= 2")
_GOLD = sa.text("gold_label_id IS NOT NULL")


def upgrade() -> None:
    op.create_table(
        "tag_entries",
        sa.Column("entry_id", sa.Integer(), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("sample_id", sa.Integer(), nullable=False),
        sa.Column("tag", sa.String(), nullable=False),
        sa.Column("added", sa.Boolean(), nullable=False),
        _foreign("run_id", "runs"),
        _foreign("sample_id", "samples"),
        sa.PrimaryKeyConstraint("entry_id", name="pk_tag_entries"),
    )
    op.create_index("ix_tag_entries_run_id", "tag_entries", ["run_id", "entry_id"])
    op.create_index("ix_tag_entries_sample_id", "tag_entries", ["sample_id"])
    op.drop_index("ix_annotations_label_id", "annotations")
    op.create_index("ix_annotations_label", "annotations", ["label_id", "sample_id"])
    op.create_index("ix_tasks_counted", "tasks", list(_COUNTED))
    op.create_index(
        "ix_tasks_shared",
        "tasks",
        ["project_id", "task_rank", "sample_id"],
        sqlite_where=_SHARED,
        postgresql_where=_SHARED,
    )
    op.create_index(
        "ix_tasks_gold",
        "tasks",
        ["project_id", "sample_id"],
        sqlite_where=_GOLD,
        postgresql_where=_GOLD,
    )


def _foreign(column: str, other: str) -> sa.ForeignKeyConstraint:
    name = f"fk_tag_entries_{column}_{other}"
    return sa.ForeignKeyConstraint([column], [f"{other}.{column}"], name=name)


def downgrade() -> None:
    op.drop_index("ix_tasks_gold", "tasks")
    op.drop_index("ix_tasks_shared", "tasks")
    op.drop_index("ix_tasks_counted", "tasks")
    op.drop_index("ix_annotations_label", "annotations")
    op.create_index("ix_annotations_label_id", "annotations", ["label_id"])
    op.drop_table("tag_entries")
