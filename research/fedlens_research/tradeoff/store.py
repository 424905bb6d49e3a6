"""A curve as the store keeps it: figures, and nothing else."""

from __future__ import annotations

from pathlib import Path

from fedlens.store import (
    PrivatizerAttack,
    PrivatizerControl,
    PrivatizerCurve,
    PrivatizerPoint,
    open_store,
)
from fedlens_research.framework.figures import SeedFigure
from fedlens_research.tradeoff.figures import LABEL, Curve, CurvePoint
from fedlens_research.tradeoff.points import OperatingPoint


def record_of(curve: Curve) -> PrivatizerCurve:
    """The curve's figures; no record, no picture and no path goes with them."""
    return PrivatizerCurve(
        method=curve.method,
        data=curve.data,
        quick=curve.quick,
        seeds=len(curve.seeds),
        utility_measure=curve.measure,
        least_sum=curve.least_sum,
        label=LABEL,
        points=tuple(_point(place) for place in (curve.raw, *curve.places)),
        controls=tuple(PrivatizerControl(sent=one, **curve.control(one)) for one in curve.controls),
    )


def store_curve(curve: Curve, url: str | Path) -> int:
    """Add the curve to a store, which is made where there is none; gives back its id.

    Raises:
        StoreError: the store cannot be reached or made.
    """
    with open_store(url, create=True) as store:
        return store.record_privatizer_curve(record_of(curve))


def _point(place: CurvePoint) -> PrivatizerPoint:
    setting = place.setting or OperatingPoint()
    utility = place.figure(lambda one: one.utility) or SeedFigure.of([0.0])
    fresh = place.figure(lambda one: one.fresh)
    return PrivatizerPoint(
        alpha=setting.alpha,
        weight=setting.weight,
        suppression_ratio=setting.suppression_ratio,
        utility=utility.mean,
        utility_std=utility.deviation or 0.0,
        fresh=None if fresh is None else fresh.mean,
        fresh_std=None if fresh is None else fresh.deviation,
        certified_nats=place.mean(lambda one: one.certified),
        fairness=place.fairness,
        latency_ms=None if place.setting is None else place.mean(lambda one: one.latency),
        seconds=sum(one.seconds for one in place.seeds),
        attacks=tuple(_attack(place, name) for name in sorted(place.attackers)),
    )


def _attack(place: CurvePoint, name: str) -> PrivatizerAttack:
    row = place.sensitive([name])[name]
    kept = ("mean", "std", "low", "high", "leak", "leak_low", "leak_high")
    figures = {key: row[key] or 0.0 for key in kept}
    return PrivatizerAttack(attacker=name, frozen=row["frozen"], **figures)
