"""The tables of engineers' work: findings with their history, tags, pinned runs, saved views."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from fedlens.store.schema import Base


class FindingTable(Base):
    """``StoredFinding``, as its history has left it."""

    __tablename__ = "findings"

    finding_id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.run_id"), index=True)
    hypothesis: Mapped[str]
    fault: Mapped[str | None]
    status: Mapped[str]
    author: Mapped[str]
    created_at: Mapped[datetime]
    changed_at: Mapped[datetime]


class FindingEntryTable(Base):
    """``FindingEntry``: append-only."""

    __tablename__ = "finding_entries"

    entry_id: Mapped[int] = mapped_column(primary_key=True)
    finding_id: Mapped[int] = mapped_column(ForeignKey("findings.finding_id"), index=True)
    at: Mapped[datetime] = mapped_column("happened_at")
    author: Mapped[str]
    kind: Mapped[str]
    content: Mapped[Mapping[str, Any]]


class SampleTagTable(Base):
    """A word that somebody gave a sample, for all to see."""

    __tablename__ = "sample_tags"

    sample_id: Mapped[int] = mapped_column(ForeignKey("samples.sample_id"), primary_key=True)
    tag: Mapped[str] = mapped_column(primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.run_id"))
    """The sample's: a run's tags are listed without a look at its samples."""
    author: Mapped[str]

    __table_args__ = (Index("ix_sample_tags_run_id_tag", "run_id", "tag", "sample_id"),)


class TagEntryTable(Base):
    """A tag that was given to a sample, or taken from it: append-only. Days and no times."""

    __tablename__ = "tag_entries"

    entry_id: Mapped[int] = mapped_column(primary_key=True)
    day: Mapped[date]
    actor: Mapped[str]
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.run_id"))
    """The sample's: a run's history is listed without a look at its samples."""
    sample_id: Mapped[int] = mapped_column(ForeignKey("samples.sample_id"), index=True)
    tag: Mapped[str]
    added: Mapped[bool]
    """Else it was taken away."""

    __table_args__ = (Index("ix_tag_entries_run_id", "run_id", "entry_id"),)


class PinnedReferenceTable(Base):
    """The run that others over data of this name are compared with."""

    __tablename__ = "pinned_references"

    data_name: Mapped[str] = mapped_column(primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.run_id"))
    author: Mapped[str]


class SavedViewTable(Base):
    """``SavedView``."""

    __tablename__ = "saved_views"

    name: Mapped[str] = mapped_column(primary_key=True)
    address: Mapped[str]
    author: Mapped[str]
