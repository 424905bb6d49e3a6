"""Curves of privatizers as tables and charts: attacks, estimates and what is certified, apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from fedlens.dashboard.widgets.display import Frame, frame
from fedlens.store import (
    PrivatizerAttack,
    PrivatizerControl,
    PrivatizerPoint,
    StoredPrivatizerCurve,
)

BLIND = ("prior", "side-information", "position")
"""Lines of reference: they do not look at a record."""
SEES = ", "
"""Between the name of an attacker and what it sees in place of one release."""
NONE_YET, NO_BOUND = "–", "none"
RELEASE = "release"
KNOWS = {
    "likelihood": "the code, weights, noise law",
    "code": "the code, weights, noise law",
    "decode": "release, weights, noise law",
    "formula": "release, the attribute's formula",
    **dict.fromkeys(BLIND, "no record"),
}
"""What attackers know of a filter besides labelled records; all others see its releases alone."""
COLOURS = (
    *("#1f5fa8", "#d1711b", "#2a8c6c", "#8a6fb0", "#a61b1b", "#4f6d7a"),
    *("#b0952a", "#d16b9a", "#5b8c2a", "#333333", "#7a5230"),
)
GREY = "#777777"
HEIGHT = 320
AXES = ("value", "low", "high")

CONTROLS_CAPTION = (
    "*No filter*: what is to be had by sending something else in a record's place. Where **the "
    "answer alone** keeps as much of the use as a filter and tells no more, send the answer."
)
ATTACKS_CAPTION = (
    "*code* has the filter's weights, as every device does, and reads the **noisy code** that a "
    "release is computed from: by data processing no reader of a release knows more than the "
    "best such reader, which it estimates from below. *decode* "
    "brings a release back to its code. *Ten alike* sees the mean of ten near-duplicates of each "
    "record, *noise-free* codes without noise. The others have no "
    "weights and are **fresh**: fitted on released records of an own part, scored on others that "
    "neither they nor the filter have seen. Balanced accuracy on the sensitive attribute; bars are "
    "95% bootstrap intervals, ± the deviation over seeds. *Frozen* is the same attacker as fitted "
    "on raw records; it flatters a filter, since a real attacker trains again. An attack is an "
    "estimate: a better attacker may come."
)
CERTIFIED_CAPTION = (
    "At most so much is told of the **whole record**, to any reader, where a filter's noise stands "
    "between the record and all that is sent: for a code whose length is limited the capacity of "
    "its channel, for any records and anything about them; else the Gaussian log-det bound for "
    "records with the training records' covariance. *None*: nothing is certified. "
    "**Released records are not differentially private**, and these filters were trained without "
    "noise."
)


def title(curve: StoredPrivatizerCurve) -> str:
    """A curve in a line of a picker."""
    quick = ", quick" if curve.quick else ""
    return f"{curve.method} on {curve.data}, {curve.at:%Y-%m-%d %H:%M}{quick} · {curve.curve_id}"


def place(point: PrivatizerPoint) -> str:
    """Where on its curve a point is."""
    values = {"α": point.alpha, "λ": point.weight, "suppressed": point.suppression_ratio}
    words = [f"{name} = {value:g}" for name, value in values.items() if value is not None]
    return ", ".join(words) or "raw records"


def looking(point: PrivatizerPoint) -> list[PrivatizerAttack]:
    """The attacks that look at records, each released once."""
    return [one for one in point.attacks if one.attacker not in BLIND and SEES not in one.attacker]


def strongest(point: PrivatizerPoint) -> PrivatizerAttack:
    """The attack that reads most."""
    return max(looking(point) or list(point.attacks), key=lambda one: one.mean)


def knows(attacker: str) -> str:
    """What an attacker knows of the filter; ``code, ten alike`` sees more than ``code``."""
    return KNOWS.get(attacker.partition(" x")[0].partition(SEES)[0], RELEASE)


def point_table(curve: StoredPrivatizerCurve) -> Frame:
    """One row a point: raw records, what can be sent without a filter, then the filters."""
    raw, *filtered = (_point_row(curve, point) for point in curve.points)
    return frame([raw, *map(_control_row, curve.controls), *filtered])


def _control_row(one: PrivatizerControl) -> dict[str, Any]:
    return {
        "Point": f"no filter: {one.sent}",
        "Utility": _number(one.use),
        "Fresh network": NONE_YET,
        "Strongest attacker": NONE_YET,
        "reads": _number(one.secret),
    }


def _point_row(curve: StoredPrivatizerCurve, point: PrivatizerPoint) -> dict[str, Any]:
    best = strongest(point)
    return {
        "Point": place(point),
        "Utility": _with_deviation(point.utility, point.utility_std, curve.seeds),
        "Fresh network": _with_deviation(point.fresh, point.fresh_std, curve.seeds),
        "Strongest attacker": best.attacker,
        "reads": _with_deviation(best.mean, best.std, curve.seeds),
        "Without weights": _number(_without_weights(point)),
        "frozen": _number(best.frozen),
        "Leaks at least (nats)": _number(max([0.0, *(one.leak for one in looking(point))])),
        "Filter (ms a record)": _number(point.latency_ms),
    }


def _without_weights(point: PrivatizerPoint) -> float | None:
    """The most that is read by who sees releases alone."""
    means = [one.mean for one in looking(point) if "weights" not in knows(one.attacker)]
    return max(means, default=None)


def attack_table(curve: StoredPrivatizerCurve) -> Frame:
    """One row a point and attacker, the lines of reference among those of raw records."""
    return frame(
        [
            {
                "Point": place(point) if one.attacker not in BLIND else "no record",
                "Attacker": one.attacker,
                "Knows": knows(one.attacker),
                "Reads": _with_deviation(one.mean, one.std, curve.seeds),
                "95% interval": f"{one.low:.3f} to {one.high:.3f}",
                "Frozen": _number(one.frozen),
                "Leaks at least (nats)": f"{one.leak:.4f} ({one.leak_low:.4f} to "
                f"{one.leak_high:.4f})",
            }
            for point in curve.points
            for one in point.attacks
        ]
    )


def certified_table(curve: StoredPrivatizerCurve) -> Frame:
    """One row a filter: what is certified of it, or that nothing is."""
    return frame(
        [
            {
                "Point": place(point),
                "Told of the record, at most (nats)": NO_BOUND
                if point.certified_nats is None
                else f"{point.certified_nats:.4g}",
            }
            for point in curve.points[1:]
        ]
    )


def fairness_table(curve: StoredPrivatizerCurve) -> Frame:
    """One row a point that has figures of fairness, raw records first."""
    rows = [
        {"Point": place(point)}
        | {name.replace("_", " "): f"{value:.3f}" for name, value in point.fairness.items()}
        for point in curve.points
        if point.fairness
    ]
    return frame(rows)


def sensitive_chart(curve: StoredPrivatizerCurve) -> alt.LayerChart:
    """Balanced accuracy of each attacker against the utility, with lines of reference."""
    levels = {
        f"{one.attacker} only": one.mean for one in curve.points[0].attacks if one.attacker in BLIND
    }
    levels["raw records"] = strongest(curve.points[0]).mean
    levels |= {one.sent: one.secret for one in curve.controls if one.secret is not None}
    rows = _rows(curve, "mean", "low", "high")
    return _chart(curve, rows, "balanced accuracy on the sensitive attribute", levels)


def leak_chart(curve: StoredPrivatizerCurve) -> alt.LayerChart:
    """Each attacker's lower bound on the leak against the utility, with K where it is known."""
    levels = {"nothing": 0.0}
    if curve.least_sum is not None:
        levels["K: leaks at least, all utility kept"] = curve.least_sum
    rows = _rows(curve, "leak", "leak_low", "leak_high")
    return _chart(curve, rows, "leaks at least (nats)", levels)


def _rows(curve: StoredPrivatizerCurve, *figures: str) -> list[dict[str, Any]]:
    """One row a filter and attacker, with its figures of these names."""
    return [
        {"utility": point.utility, "attacker": one.attacker, "point": place(point)}
        | {axis: getattr(one, name) for axis, name in zip(AXES, figures, strict=True)}
        for point in curve.points[1:]
        for one in looking(point)
    ]


def _chart(
    curve: StoredPrivatizerCurve,
    rows: Sequence[dict[str, Any]],
    label: str,
    levels: dict[str, float],
) -> alt.LayerChart:
    names = sorted({row["attacker"] for row in rows})
    colour = alt.Color(
        "attacker:N", scale=alt.Scale(domain=names, range=list(COLOURS[: len(names)]))
    ).title("attacker")
    across = alt.X(
        "utility:Q", title=f"utility ({curve.utility_measure})", scale=alt.Scale(zero=False)
    )
    base = alt.Chart(frame(rows))
    up = alt.Y("value:Q", title=label, scale=alt.Scale(zero=False))
    lines = base.mark_line(point=alt.OverlayMarkDef(size=40)).encode(
        x=across,
        y=up,
        color=colour,
        tooltip=["attacker:N", "point:N", *(f"{one}:Q" for one in ("utility", "value"))],
    )
    bars = base.mark_rule().encode(
        x=across, y=alt.Y("low:Q", title=label), y2="high:Q", color=colour
    )
    chart: alt.LayerChart = alt.LayerChart(layer=[lines, bars, *_levels(levels)])
    return chart.properties(height=HEIGHT)


def _levels(levels: dict[str, float]) -> list[Any]:
    base = alt.Chart(frame([{"name": name, "level": value} for name, value in levels.items()]))
    rules = base.mark_rule(color=GREY, strokeDash=[4, 4]).encode(y="level:Q")
    words = base.mark_text(align="left", dx=4, dy=-6, color=GREY).encode(
        x=alt.value(0), y="level:Q", text="name:N"
    )
    return [rules, words]


def _with_deviation(value: float | None, deviation: float | None, seeds: int) -> str:
    if value is None:
        return NONE_YET
    return f"{value:.3f}" if seeds < 2 or deviation is None else f"{value:.3f} ± {deviation:.3f}"


def _number(value: float | None) -> str:
    return NONE_YET if value is None else f"{value:.3f}"
