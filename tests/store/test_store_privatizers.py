"""Curves of privatizers: kept as they were measured, figures alone, nothing that cannot be."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from store_builders import MOMENT

from fedlens.store import (
    PrivatizerAttack,
    PrivatizerControl,
    PrivatizerCurve,
    PrivatizerPoint,
    Store,
    StoreError,
)
from fedlens.store.schema import Base


def an_attack(**changes: Any) -> PrivatizerAttack:
    fields: dict[str, Any] = {
        "attacker": "trees",
        "mean": 0.62,
        "std": 0.01,
        "low": 0.6,
        "high": 0.64,
        "leak": 0.04,
        "leak_low": -0.01,
        "leak_high": 0.06,
        "frozen": 0.51,
    }
    return PrivatizerAttack(**fields | changes)


def a_point(**changes: Any) -> PrivatizerPoint:
    fields: dict[str, Any] = {
        "alpha": 0.5,
        "utility": 0.95,
        "utility_std": 0.002,
        "fresh": 0.96,
        "fresh_std": 0.001,
        "certified_nats": 120.5,
        "fairness": {"demographic_parity": 0.1},
        "latency_ms": 0.2,
        "seconds": 61.5,
        "attacks": (an_attack(attacker="same"), an_attack()),
    }
    return PrivatizerPoint(**fields | changes)


def the_raw_point(**changes: Any) -> PrivatizerPoint:
    bare = {"alpha": None, "certified_nats": None, "latency_ms": None}
    return a_point(**bare | {"attacks": (an_attack(frozen=None),)} | changes)


def a_curve(**changes: Any) -> PrivatizerCurve:
    fields: dict[str, Any] = {
        "method": "information",
        "data": "embedded-mnist-thickness",
        "at": MOMENT,
        "quick": False,
        "seeds": 3,
        "utility_measure": "accuracy",
        "least_sum": 0.01,
        "label": "simulation only: trained and measured on raw data",
        "controls": (
            PrivatizerControl(sent="nothing", secret=0.5),
            PrivatizerControl(sent="the answer alone", secret=0.61, low=0.6, high=0.63, use=0.97),
        ),
        "points": (the_raw_point(), a_point(), a_point(alpha=0.9, fairness={})),
    }
    return PrivatizerCurve(**fields | changes)


def bare(curve: PrivatizerCurve) -> dict[str, Any]:
    return {name: getattr(curve, name) for name in PrivatizerCurve.__dataclass_fields__}


def test_curves_come_back_as_they_went_in_the_newest_first(store: Store) -> None:
    assert store.privatizer_curves() == []
    series = a_curve(
        method="alpha",
        least_sum=None,
        points=(
            the_raw_point(fresh=None, fresh_std=None, fairness={}),
            a_point(alpha=1.0, weight=1.5, certified_nats=None),
        ),
    )
    found = [a_curve(at=MOMENT - timedelta(days=1)), a_curve(), a_curve(), series]
    ids = [store.record_privatizer_curve(one) for one in found]
    assert len(set(ids)) == 4  # the same curve again is another one
    assert [one.curve_id for one in store.privatizer_curves()] == [*ids[:0:-1], ids[0]]
    there = {one.curve_id: bare(one) for one in store.privatizer_curves()}
    assert [there[number] for number in ids] == [bare(one) for one in found]


@pytest.mark.parametrize(
    ("build", "changes", "name"),
    [
        (an_attack, {"mean": 1.2}, "mean"),
        (an_attack, {"frozen": -0.1}, "frozen"),
        (an_attack, {"leak": math.nan}, "leak"),
        (an_attack, {"attacker": ""}, "attacker"),
        (a_point, {"utility": math.inf}, "utility"),
        (a_point, {"certified_nats": math.inf}, "certified_nats"),
        (a_point, {"attacks": ()}, "attacks"),
        (a_point, {"attacks": (an_attack(), an_attack())}, "attacks"),
        (a_point, {"fairness": {"parity": math.nan}}, "fairness"),
        (a_curve, {"seeds": -1}, "seeds"),
        (a_curve, {"label": ""}, "label"),
        (a_curve, {"at": MOMENT.replace(tzinfo=None)}, "at"),
        (a_curve, {"points": (the_raw_point(),)}, "points"),
        (a_curve, {"points": (a_point(), a_point())}, "points"),
        (a_curve, {"points": (the_raw_point(), the_raw_point())}, "points"),
    ],
)
def test_what_is_no_figure_is_refused(build: Any, changes: dict[str, Any], name: str) -> None:
    with pytest.raises(StoreError, match=f"^{name}"):
        build(**changes)


@pytest.mark.law("3: the store has no place for a real record")
def test_there_is_no_place_for_a_record() -> None:
    """Numbers, short names, and JSON of named floats: nothing that a picture would fit in."""
    tables = [t for t in Base.metadata.sorted_tables if t.name.startswith("privatizer_")]
    assert len(tables) == 3
    texts = {
        f"{table.name}.{column.name}"
        for table in tables
        for column in table.columns
        if not isinstance(column.type, sa.Float | sa.Integer | sa.Boolean)
    }
    assert texts == {
        "privatizer_curves.method",
        "privatizer_curves.data",
        "privatizer_curves.at",
        "privatizer_curves.utility_measure",
        "privatizer_curves.label",
        "privatizer_curves.controls",
        "privatizer_points.fairness",
        "privatizer_attacks.attacker",
    }
