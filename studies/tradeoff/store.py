"""A curve as the store keeps it: figures, and nothing else."""

from __future__ import annotations

from pathlib import Path

from server.store import PrivatizerAttack, PrivatizerCurve, PrivatizerPoint, open_store
from studies.tradeoff.figures import LABEL, Curve, Place


def record_of(curve: Curve) -> PrivatizerCurve:
    """The curve's figures; no record, no picture and no path goes with them."""
    return PrivatizerCurve(
        method=curve.method,
        data=curve.data.partition(":")[0] if "/" in curve.data else curve.data,
        quick=curve.quick,
        seeds=len(curve.seeds),
        utility_measure=curve.measure,
        least_sum=curve.least_sum,
        label=LABEL,
        points=tuple(_point(place) for place in (curve.raw, *curve.places)),
    )


def store_curve(curve: Curve, url: str | Path) -> int:
    """Add the curve to a store, which is made where there is none; gives back its id.

    Raises:
        StoreError: the store cannot be reached or made.
    """
    with open_store(url, create=True) as store:
        return store.record_privatizer_curve(record_of(curve))


def _point(place: Place) -> PrivatizerPoint:
    knobs = place.knobs
    utility = place.figure(lambda one: one.utility) or (0.0, 0.0)
    fresh = place.figure(lambda one: one.fresh) or (None, None)
    certified = place.figure(lambda one: one.certified) or (None, None)
    latency = place.figure(lambda one: one.latency) or (None, None)
    return PrivatizerPoint(
        alpha=None if knobs is None else knobs.alpha,
        weight=None if knobs is None else knobs.weight,
        suppression_ratio=None if knobs is None else knobs.suppression_ratio,
        utility=utility[0],
        utility_std=utility[1],
        fresh=fresh[0],
        fresh_std=fresh[1],
        certified_nats=certified[0],
        fairness=place.fairness,
        latency_ms=None if knobs is None else latency[0],
        seconds=sum(one.seconds for one in place.seeds),
        attacks=tuple(_attack(place, name) for name in sorted(place.attackers)),
    )


def _attack(place: Place, name: str) -> PrivatizerAttack:
    row = place.sensitive([name])[name]
    return PrivatizerAttack(
        attacker=name,
        mean=row["mean"] or 0.0,
        std=row["std"] or 0.0,
        low=row["low"] or 0.0,
        high=row["high"] or 0.0,
        leak=row["leak"] or 0.0,
        leak_low=row["leak_low"] or 0.0,
        leak_high=row["leak_high"] or 0.0,
        frozen=row["frozen"],
    )
