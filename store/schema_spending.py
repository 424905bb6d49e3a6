"""The tables of who may spend: requests that wait for an officer, and the rules that they go by."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Index
from sqlalchemy.orm import Mapped, mapped_column

from fedlens.store.schema import Base


class SpendingRequestTable(Base):
    """``StoredRequest``. Its run may be another store's."""

    __tablename__ = "spending_requests"

    request_id: Mapped[int] = mapped_column(primary_key=True)
    people: Mapped[str] = mapped_column(index=True)
    run_id: Mapped[str]
    probe: Mapped[str]
    asked_epsilon: Mapped[float]
    epsilon: Mapped[float]
    delta: Mapped[float]
    why: Mapped[str]
    author: Mapped[str]
    status: Mapped[str]
    decided_by: Mapped[str | None]
    note: Mapped[str]
    created_at: Mapped[datetime]
    changed_at: Mapped[datetime]

    __table_args__ = (Index("ix_spending_requests_question", "run_id", "probe"),)


class SpendingRuleTable(Base):
    """``SpendingRule``: append-only; the last one about some people holds."""

    __tablename__ = "spending_rules"

    rule_id: Mapped[int] = mapped_column(primary_key=True)
    people: Mapped[str] = mapped_column(index=True)
    approve_above: Mapped[float | None]
    warn_at: Mapped[float]
    author: Mapped[str]
    created_at: Mapped[datetime]
