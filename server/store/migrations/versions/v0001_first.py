"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "runs",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("stop_reason", sa.String(), nullable=True),
        sa.Column("config", sa.JSON(), nullable=False),
        sa.Column("config_sha256", sa.String(), nullable=False),
        sa.Column("data_name", sa.String(), nullable=False),
        sa.Column("unit", sa.String(), nullable=False),
        sa.Column("users", sa.BigInteger(), nullable=False),
        sa.Column("nodes", sa.Integer(), nullable=False),
        sa.Column("rounds_planned", sa.Integer(), nullable=False),
        sa.Column("private", sa.Boolean(), nullable=False),
        sa.Column("guarantee", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_runs")),
    )
    op.create_table(
        "users",
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("user_id", name=op.f("pk_users")),
        sa.UniqueConstraint("name", name=op.f("uq_users_name")),
    )
    op.create_table(
        "checkpoints",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("path", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.run_id"], name=op.f("fk_checkpoints_run_id_runs")
        ),
        sa.PrimaryKeyConstraint("run_id", "round", name=op.f("pk_checkpoints")),
    )
    op.create_table(
        "ledger",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("ledger_index", sa.Integer(), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("event", sa.JSON(), nullable=False),
        sa.Column("purpose", sa.String(), nullable=False),
        sa.Column("entry_hash", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name=op.f("fk_ledger_run_id_runs")),
        sa.PrimaryKeyConstraint("run_id", "ledger_index", name=op.f("pk_ledger")),
    )
    op.create_index(op.f("ix_ledger_run_id_round"), "ledger", ["run_id", "round"], unique=False)
    op.create_table(
        "projects",
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("instructions", sa.String(), nullable=False),
        sa.Column("purpose", sa.String(), nullable=False),
        sa.Column("queue_order", sa.String(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name=op.f("fk_projects_run_id_runs")),
        sa.PrimaryKeyConstraint("project_id", name=op.f("pk_projects")),
        sa.UniqueConstraint("name", name=op.f("uq_projects_name")),
    )
    op.create_table(
        "rounds",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("metrics", sa.JSON(), nullable=False),
        sa.Column("dp_epsilon", sa.Float(precision=53), nullable=True),
        sa.Column("delta_dp", sa.Float(precision=53), nullable=False),
        sa.Column("bdp_as_published", sa.Float(precision=53), nullable=True),
        sa.Column("bdp_corrected", sa.Float(precision=53), nullable=True),
        sa.Column("delta_bdp", sa.Float(precision=53), nullable=False),
        sa.Column("seconds", sa.Float(precision=53), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name=op.f("fk_rounds_run_id_runs")),
        sa.PrimaryKeyConstraint("run_id", "round", name=op.f("pk_rounds")),
    )
    op.create_table(
        "batches",
        sa.Column("batch_id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("ledger_index", sa.Integer(), nullable=False),
        sa.Column("purpose", sa.String(), nullable=False),
        sa.Column("checkpoint_sha256", sa.String(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("dp_epsilon", sa.Float(precision=53), nullable=True),
        sa.Column("delta_dp", sa.Float(precision=53), nullable=False),
        sa.Column("bdp_as_published", sa.Float(precision=53), nullable=True),
        sa.Column("bdp_corrected", sa.Float(precision=53), nullable=True),
        sa.Column("delta_bdp", sa.Float(precision=53), nullable=False),
        sa.Column("private", sa.Boolean(), nullable=False),
        sa.Column("provenance", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id", "ledger_index"],
            ["ledger.run_id", "ledger.ledger_index"],
            name=op.f("fk_batches_run_id_ledger_index_ledger"),
        ),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name=op.f("fk_batches_run_id_runs")),
        sa.PrimaryKeyConstraint("batch_id", name=op.f("pk_batches")),
        sa.UniqueConstraint(
            "run_id", "round", "purpose", "seed", name=op.f("uq_batches_run_id_round_purpose_seed")
        ),
    )
    op.create_table(
        "labels",
        sa.Column("label_id", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.project_id"], name=op.f("fk_labels_project_id_projects")
        ),
        sa.PrimaryKeyConstraint("label_id", name=op.f("pk_labels")),
        sa.UniqueConstraint("project_id", "key", name=op.f("uq_labels_project_id_key")),
        sa.UniqueConstraint("project_id", "name", name=op.f("uq_labels_project_id_name")),
    )
    op.create_table(
        "releases",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("ledger_index", sa.Integer(), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id", "ledger_index"],
            ["ledger.run_id", "ledger.ledger_index"],
            name=op.f("fk_releases_run_id_ledger_index_ledger"),
        ),
        sa.PrimaryKeyConstraint("run_id", "ledger_index", name=op.f("pk_releases")),
    )
    op.create_table(
        "samples",
        sa.Column("sample_id", sa.Integer(), nullable=False),
        sa.Column("batch_id", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("requested_class", sa.Integer(), nullable=False),
        sa.Column("png", sa.LargeBinary(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["batch_id"], ["batches.batch_id"], name=op.f("fk_samples_batch_id_batches")
        ),
        sa.PrimaryKeyConstraint("sample_id", name=op.f("pk_samples")),
        sa.UniqueConstraint("batch_id", "position", name=op.f("uq_samples_batch_id_position")),
    )
    op.create_index(op.f("ix_samples_sha256"), "samples", ["sha256"], unique=False)
    op.create_table(
        "annotations",
        sa.Column("annotation_id", sa.Integer(), nullable=False),
        sa.Column("client_uuid", sa.String(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("sample_id", sa.Integer(), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("label_id", sa.Integer(), nullable=True),
        sa.Column("skip_reason", sa.String(), nullable=True),
        sa.Column("lead_ms", sa.BigInteger(), nullable=True),
        sa.Column("supersedes_id", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["label_id"], ["labels.label_id"], name=op.f("fk_annotations_label_id_labels")
        ),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.project_id"], name=op.f("fk_annotations_project_id_projects")
        ),
        sa.ForeignKeyConstraint(
            ["sample_id"], ["samples.sample_id"], name=op.f("fk_annotations_sample_id_samples")
        ),
        sa.ForeignKeyConstraint(
            ["supersedes_id"],
            ["annotations.annotation_id"],
            name=op.f("fk_annotations_supersedes_id_annotations"),
        ),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.user_id"], name=op.f("fk_annotations_user_id_users")
        ),
        sa.PrimaryKeyConstraint("annotation_id", name=op.f("pk_annotations")),
        sa.UniqueConstraint("client_uuid", name=op.f("uq_annotations_client_uuid")),
        sa.UniqueConstraint("supersedes_id", name=op.f("uq_annotations_supersedes_id")),
    )
    op.create_index(op.f("ix_annotations_label_id"), "annotations", ["label_id"], unique=False)
    op.create_index(
        op.f("ix_annotations_project_id_user_id_sample_id"),
        "annotations",
        ["project_id", "user_id", "sample_id"],
        unique=False,
    )
    op.create_index(op.f("ix_annotations_sample_id"), "annotations", ["sample_id"], unique=False)
    op.create_index(
        "uq_annotations_first_answer",
        "annotations",
        ["project_id", "user_id", "sample_id"],
        unique=True,
        sqlite_where=sa.text("supersedes_id IS NULL"),
        postgresql_where=sa.text("supersedes_id IS NULL"),
    )


def downgrade() -> None:
    op.drop_table("annotations")
    op.drop_table("samples")
    op.drop_table("releases")
    op.drop_table("labels")
    op.drop_table("batches")
    op.drop_table("rounds")
    op.drop_table("projects")
    op.drop_table("ledger")
    op.drop_table("checkpoints")
    op.drop_table("users")
    op.drop_table("runs")
