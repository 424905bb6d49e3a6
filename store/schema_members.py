"""The tables of membership: who is enrolled where, and which nodes a round had. Days, no times."""

from __future__ import annotations

from datetime import date

from sqlalchemy import JSON, BigInteger, ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from fedlens.store.schema import Base


class MemberNodeTable(Base):
    """``RegisteredNode``."""

    __tablename__ = "member_nodes"

    population: Mapped[str] = mapped_column(primary_key=True)
    node: Mapped[int] = mapped_column(primary_key=True)
    users: Mapped[int] = mapped_column(BigInteger)
    since: Mapped[date]
    seen: Mapped[date]
    revoked: Mapped[date | None]


class MemberTable(Base):
    """``RegisteredUser``."""

    __tablename__ = "members"

    population: Mapped[str] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(BigInteger, primary_key=True, index=True)
    node: Mapped[int] = mapped_column(primary_key=True)
    since: Mapped[date]
    until: Mapped[date | None]
    revoked: Mapped[date | None]


class PresenceTable(Base):
    """``PresenceRow``."""

    __tablename__ = "presence"

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.run_id"), primary_key=True)
    round: Mapped[int] = mapped_column(primary_key=True)
    answered: Mapped[list[int]] = mapped_column(JSON)
    nodes: Mapped[int]
    users: Mapped[int] = mapped_column(BigInteger)
    users_declared: Mapped[int] = mapped_column(BigInteger)
