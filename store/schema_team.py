"""The tables of a team that labels: accounts, what they did, who is on which sample, who decided.

What is kept of a person is a name, a role and a salted hash. The log has days and no times; the
only times are those at which a session and a lease end.
"""

from __future__ import annotations

from datetime import date, datetime

from sqlalchemy import BigInteger, ForeignKey, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from fedlens.store.schema import Base

SHARED = "answered >= 2"
"""Condition on tasks: two people or more have answered. Word for word, for its index to be used."""


GOLD = "gold_label_id IS NOT NULL"
"""Condition on tasks: a reviewer has said what is right."""


class AccountTable(Base):
    """``Member``: an annotator who may sign in."""

    __tablename__ = "accounts"

    user_id: Mapped[int] = mapped_column(ForeignKey("users.user_id"), primary_key=True)
    role: Mapped[str]
    password: Mapped[str | None]
    """Salted scrypt hash; ``None`` where only the access token or another gate admits them."""
    disabled: Mapped[bool]


class SignInTable(Base):
    """A session of an account; its cookie's value is known by digest alone."""

    __tablename__ = "sign_ins"

    token_sha256: Mapped[str] = mapped_column(primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.user_id"), index=True)
    expires_at: Mapped[datetime]


class LogTable(Base):
    """``LogEntry``: append-only."""

    __tablename__ = "team_log"

    entry_id: Mapped[int] = mapped_column(primary_key=True)
    day: Mapped[date]
    actor: Mapped[str]
    action: Mapped[str]
    subject: Mapped[str]


class TaskTable(Base):
    """One sample of one project's queue, with how many people answered it and how many ought to."""

    __tablename__ = "tasks"

    project_id: Mapped[int] = mapped_column(ForeignKey("projects.project_id"), primary_key=True)
    sample_id: Mapped[int] = mapped_column(ForeignKey("samples.sample_id"), primary_key=True)
    need: Mapped[int]
    """Annotators whose answers are wanted."""
    answered: Mapped[int]
    """Annotators whose answer is in force."""
    is_open: Mapped[bool]
    """``answered < need``."""
    lane: Mapped[int]
    """Lanes are served in order: 0 where answers differ, 1 everything else."""
    rank: Mapped[int] = mapped_column("task_rank", BigInteger)
    """Place in its lane."""
    is_control: Mapped[bool]
    """Of the random share, which no order of interest has chosen."""
    disputed: Mapped[bool]
    """Whether labels in force differ."""
    requested_class: Mapped[int | None]
    """The sample's, here too: a table of a million samples is counted without their pictures."""
    final_label_id: Mapped[int | None] = mapped_column(ForeignKey("labels.label_id"))
    """What the sample counts as: a reviewer's decision, or else the majority's label, if any."""
    decided: Mapped[bool]
    """Whether a reviewer said so."""
    gold_label_id: Mapped[int | None] = mapped_column(ForeignKey("labels.label_id"))
    """The right answer, where a reviewer has said so."""

    __table_args__ = (
        Index(None, "project_id", "is_open", "lane", "task_rank"),
        Index("ix_tasks_decided", "project_id", "decided"),
        Index("ix_tasks_disputed", "project_id", "disputed", "decided"),
        # Labels by class are counted, and samples with two answers listed, by an index alone.
        Index(
            "ix_tasks_counted",
            "project_id",
            "requested_class",
            "final_label_id",
            "answered",
            "decided",
            "is_control",
        ),
        Index(
            "ix_tasks_shared",
            "project_id",
            "task_rank",
            "sample_id",
            sqlite_where=text(SHARED),
            postgresql_where=text(SHARED),
        ),
        Index(
            "ix_tasks_gold",
            "project_id",
            "sample_id",
            sqlite_where=text(GOLD),
            postgresql_where=text(GOLD),
        ),
    )


class LeaseTable(Base):
    """Which annotator, in which tab, has a sample on their desk, and until when."""

    __tablename__ = "leases"

    project_id: Mapped[int] = mapped_column(ForeignKey("projects.project_id"), primary_key=True)
    sample_id: Mapped[int] = mapped_column(ForeignKey("samples.sample_id"), primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.user_id"), primary_key=True)
    tab: Mapped[str]
    until: Mapped[datetime]

    __table_args__ = (Index("ix_leases_holder", "project_id", "user_id", "tab"),)


class AdjudicationTable(Base):
    """``Adjudication``: append-only; the last one about a sample holds."""

    __tablename__ = "adjudications"

    adjudication_id: Mapped[int] = mapped_column(primary_key=True)
    project_id: Mapped[int] = mapped_column(ForeignKey("projects.project_id"))
    sample_id: Mapped[int] = mapped_column(ForeignKey("samples.sample_id"))
    user_id: Mapped[int] = mapped_column(ForeignKey("users.user_id"))
    label_id: Mapped[int | None] = mapped_column(ForeignKey("labels.label_id"))
    """``None``: the sample is left out, or open again."""
    note: Mapped[str]
    client_uuid: Mapped[str]
    reopens: Mapped[bool]
    created_at: Mapped[datetime]

    __table_args__ = (
        UniqueConstraint("client_uuid", "sample_id"),
        Index(None, "project_id", "sample_id"),
    )
