"""Findings with their history, tags of samples, pinned reference runs, and indexes of samples."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from fedlens.store.schema import UtcTime

revision = "0005"
down_revision = "0004"

_INDEXES = {
    "ix_samples_stored": ["batch_id", "sample_id"],
    "ix_samples_class": ["batch_id", "requested_class", "sample_id"],
}


def upgrade() -> None:
    for name, columns in _INDEXES.items():
        op.create_index(name, "samples", columns)
    _findings()
    op.create_table(
        "sample_tags",
        sa.Column("sample_id", sa.Integer(), nullable=False),
        *_texts("tag", "run_id", "author"),
        _foreign("sample_tags", "sample_id", "samples.sample_id"),
        _foreign("sample_tags", "run_id", "runs.run_id"),
        sa.PrimaryKeyConstraint("sample_id", "tag", name="pk_sample_tags"),
    )
    op.create_index("ix_sample_tags_run_id_tag", "sample_tags", ["run_id", "tag", "sample_id"])
    op.create_table(
        "pinned_references",
        *_texts("data_name", "run_id", "author"),
        _foreign("pinned_references", "run_id", "runs.run_id"),
        sa.PrimaryKeyConstraint("data_name", name="pk_pinned_references"),
    )


def _findings() -> None:
    op.create_table(
        "findings",
        sa.Column("finding_id", sa.Integer(), nullable=False),
        *_texts("run_id", "hypothesis"),
        sa.Column("fault", sa.String(), nullable=True),
        *_texts("status", "author"),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("changed_at", UtcTime(), nullable=False),
        _foreign("findings", "run_id", "runs.run_id"),
        sa.PrimaryKeyConstraint("finding_id", name="pk_findings"),
    )
    op.create_index("ix_findings_run_id", "findings", ["run_id"])
    op.create_table(
        "finding_entries",
        sa.Column("entry_id", sa.Integer(), nullable=False),
        sa.Column("finding_id", sa.Integer(), nullable=False),
        sa.Column("happened_at", UtcTime(), nullable=False),
        *_texts("author", "kind"),
        sa.Column("content", sa.JSON(), nullable=False),
        _foreign("finding_entries", "finding_id", "findings.finding_id"),
        sa.PrimaryKeyConstraint("entry_id", name="pk_finding_entries"),
    )
    op.create_index("ix_finding_entries_finding_id", "finding_entries", ["finding_id"])


def _texts(*names: str) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.String(), nullable=False) for name in names]


def _foreign(table: str, column: str, target: str) -> sa.ForeignKeyConstraint:
    other, _, _ = target.partition(".")
    return sa.ForeignKeyConstraint([column], [target], name=f"fk_{table}_{column}_{other}")


def downgrade() -> None:
    for name in ("pinned_references", "sample_tags", "finding_entries", "findings"):
        op.drop_table(name)
    for name in _INDEXES:
        op.drop_index(name, "samples")
