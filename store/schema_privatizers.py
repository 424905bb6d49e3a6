"""The tables of privatizers' curves: figures alone, with no column that could hold a record."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import JSON, ForeignKey, ForeignKeyConstraint
from sqlalchemy.orm import Mapped, mapped_column

from fedlens.store.schema import Base


class PrivatizerCurveTable(Base):
    """``PrivatizerCurve``: append-only."""

    __tablename__ = "privatizer_curves"

    curve_id: Mapped[int] = mapped_column(primary_key=True)
    method: Mapped[str]
    data: Mapped[str]
    at: Mapped[datetime]
    quick: Mapped[bool]
    seeds: Mapped[int]
    utility_measure: Mapped[str]
    least_sum: Mapped[float | None]
    label: Mapped[str]
    controls: Mapped[list[Mapping[str, Any]]] = mapped_column(JSON)


class PrivatizerPointTable(Base):
    """``PrivatizerPoint``; position 0 is what is read from raw records."""

    __tablename__ = "privatizer_points"

    curve_id: Mapped[int] = mapped_column(
        ForeignKey("privatizer_curves.curve_id"), primary_key=True
    )
    position: Mapped[int] = mapped_column(primary_key=True)
    alpha: Mapped[float | None]
    weight: Mapped[float | None]
    suppression_ratio: Mapped[float | None]
    utility: Mapped[float]
    utility_std: Mapped[float]
    fresh: Mapped[float | None]
    fresh_std: Mapped[float | None]
    certified_nats: Mapped[float | None]
    fairness: Mapped[Mapping[str, float]]
    latency_ms: Mapped[float | None]
    seconds: Mapped[float]


class PrivatizerAttackTable(Base):
    """``PrivatizerAttack``."""

    __tablename__ = "privatizer_attacks"

    curve_id: Mapped[int] = mapped_column(primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    attacker: Mapped[str] = mapped_column(primary_key=True)
    mean: Mapped[float]
    std: Mapped[float]
    low: Mapped[float]
    high: Mapped[float]
    leak: Mapped[float]
    leak_low: Mapped[float]
    leak_high: Mapped[float]
    frozen: Mapped[float | None]

    __table_args__ = (
        ForeignKeyConstraint(
            ["curve_id", "position"], ["privatizer_points.curve_id", "privatizer_points.position"]
        ),
    )
