"""Curves of privatizers: the utility and the sensitive attribute after filters, in figures alone.

Rows are added and never change. There is no field for a record or a picture: sheets of records
before and after stay in the folder that a report was written to.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from fedlens.store.checks import check_text, check_time, check_whole, require
from fedlens.store.records import utc_now
from fedlens.store.rows import to_record, to_values
from fedlens.store.schema_privatizers import (
    PrivatizerAttackTable,
    PrivatizerCurveTable,
    PrivatizerPointTable,
)
from fedlens.store.transactions import Transactions


@dataclass(frozen=True, kw_only=True)
class PrivatizerAttack:
    """One attacker of released records: shares in [0, 1], leaks in nats.

    Intervals are of 95%, by bootstrap; ``mean`` and ``std`` are over seeds.
    """

    attacker: str
    mean: float
    """Balanced accuracy on the sensitive attribute."""
    std: float
    low: float
    high: float
    leak: float
    """H(S) less its cross-entropy: at least so much is left of the sensitive attribute."""
    leak_low: float
    leak_high: float
    frozen: float | None = None
    """Balanced accuracy of the same attacker as fitted on raw records."""

    def __post_init__(self) -> None:
        check_text(self, "attacker")
        _check_shares(self, "mean", "low", "high", "frozen")
        _check_finite(self, "std", "leak", "leak_low", "leak_high")


@dataclass(frozen=True, kw_only=True)
class PrivatizerPoint:
    """One filter over all seeds; at position 0 of a curve raw records and the lines of reference.

    ``alpha``, ``weight`` (λ) and ``suppression_ratio`` say where on the curve it is; all are
    ``None`` for raw records.
    """

    alpha: float | None = None
    weight: float | None = None
    suppression_ratio: float | None = None
    utility: float
    """By the service's network (or 1 less the normalised squared error)."""
    utility_std: float
    fresh: float | None = None
    """By a fresh network that learned from released records."""
    fresh_std: float | None = None
    certified_nats: float | None = None
    """At most that is told of the whole record; ``None`` where nothing is certified."""
    fairness: Mapping[str, float] = field(default_factory=dict)
    latency_ms: float | None = None
    """Median of the filter for one record, on one CPU thread."""
    seconds: float
    attacks: tuple[PrivatizerAttack, ...]

    def __post_init__(self) -> None:
        _check_finite(self, "utility", "utility_std", "seconds")
        places = ("alpha", "weight", "suppression_ratio")
        _check_finite(self, *places, "fresh", "fresh_std", "certified_nats", "latency_ms")
        for name, value in self.fairness.items():
            require(math.isfinite(value), f"fairness[{name!r}]", value, "give a finite number")
        names = [one.attacker for one in self.attacks]
        once = len(names) > 0 and len(names) == len(set(names))
        require(once, "attacks", names, "give at least one, each once")

    @property
    def is_raw(self) -> bool:
        """Whether no filter is at work here."""
        return self.alpha is None and self.suppression_ratio is None


@dataclass(frozen=True, kw_only=True)
class PrivatizerControl:
    """What is told where something else is sent in place of a filtered record; means over seeds."""

    sent: str
    """In words, such as ``the answer alone``."""
    secret: float | None = None
    """Balanced accuracy on the sensitive attribute, of who gets it."""
    low: float | None = None
    high: float | None = None
    use: float | None = None
    """Share of records whose use is right; ``None`` where nothing is sent that tells it."""

    def __post_init__(self) -> None:
        check_text(self, "sent")
        _check_shares(self, "secret", "low", "high", "use")


@dataclass(frozen=True, kw_only=True)
class PrivatizerCurve:
    """A curve: a method's points on one source of data, raw records first."""

    method: str
    data: str
    at: datetime = field(default_factory=utc_now)
    quick: bool
    seeds: int
    """How many."""
    utility_measure: str
    least_sum: float | None = None
    """K, nats: leaks at least, if all of the utility is kept; ``None`` where unknown."""
    label: str
    """What the figures are worth, in words."""
    points: tuple[PrivatizerPoint, ...]
    controls: tuple[PrivatizerControl, ...] = ()
    """What a filter has to do better than; empty where it was not measured."""

    def __post_init__(self) -> None:
        check_text(self, "method", "data", "utility_measure", "label")
        check_whole(self, "seeds")
        check_time("at", self.at)
        _check_finite(self, "least_sum")
        first = [point.is_raw for point in self.points]
        ordered = len(first) > 1 and first[0] and not any(first[1:])
        require(ordered, "points", len(first), "give raw records first, then at least one filter")


@dataclass(frozen=True, kw_only=True)
class StoredPrivatizerCurve(PrivatizerCurve):
    """A curve as it lies in the store."""

    curve_id: int


def _read(session: Session, row: PrivatizerCurveTable) -> StoredPrivatizerCurve:
    attacks: dict[int, list[PrivatizerAttack]] = {}
    found = select(PrivatizerAttackTable).where(PrivatizerAttackTable.curve_id == row.curve_id)
    ordered = found.order_by(PrivatizerAttackTable.position, PrivatizerAttackTable.attacker)
    for one in session.scalars(ordered):
        attacks.setdefault(one.position, []).append(to_record(PrivatizerAttack, one))
    points = select(PrivatizerPointTable).where(PrivatizerPointTable.curve_id == row.curve_id)
    return to_record(
        StoredPrivatizerCurve,
        row,
        controls=tuple(PrivatizerControl(**one) for one in row.controls),
        points=tuple(
            to_record(PrivatizerPoint, one, attacks=tuple(attacks[one.position]))
            for one in session.scalars(points.order_by(PrivatizerPointTable.position))
        ),
    )


def _check_finite(record: object, *names: str) -> None:
    for name in names:
        value = getattr(record, name)
        finite = value is None or math.isfinite(value)
        require(finite, name, value, "give a finite number")


def _check_shares(record: object, *names: str) -> None:
    for name in names:
        value = getattr(record, name)
        require(value is None or 0 <= value <= 1, name, value, "it is a share from 0 to 1")


class PrivatizerMethods(Transactions):
    """Curves of privatizers."""

    def record_privatizer_curve(self, record: PrivatizerCurve) -> int:
        """Add a curve with its points, all or nothing; give back its id."""
        with self._writing() as session:
            controls = [asdict(one) for one in record.controls]
            values = to_values(record, "points", "controls")
            row = PrivatizerCurveTable(**values, controls=controls)
            session.add(row)
            session.flush()
            for position, point in enumerate(record.points):
                place = {"curve_id": row.curve_id, "position": position}
                session.add(PrivatizerPointTable(**place, **to_values(point, "attacks")))
                session.flush()
                for one in point.attacks:
                    session.add(PrivatizerAttackTable(**place, **to_values(one)))
            session.flush()
            return row.curve_id

    def privatizer_curves(self) -> list[StoredPrivatizerCurve]:
        """All curves with their points, the newest first."""
        with self._reading() as session:
            newest = select(PrivatizerCurveTable).order_by(
                PrivatizerCurveTable.at.desc(), PrivatizerCurveTable.curve_id.desc()
            )
            return [_read(session, row) for row in session.scalars(newest)]
