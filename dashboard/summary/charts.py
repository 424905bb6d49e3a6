"""Line charts against rounds. DP and Bayesian DP stand side by side, never on one axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import altair as alt
import streamlit as st

from fedlens.dashboard.summary.privacy import bounds, delta_text, epsilon_text, series_names
from fedlens.dashboard.widgets.display import Frame, frame
from fedlens.store import RoundRecord

CURVE_HEIGHT = 300
SOUND = "BDP sound, for most users"
CORRECTED = "BDP corrected, for most users (estimate)"
COLUMNS = ["left out", "epsilon", "bound", "said"]
ROUNDING = 1e-9
CURVE_COLOURS = ("#2f9e78", "#d97a2b")


def curve_frame(last: RoundRecord, users: int) -> Frame:
    """One row a share of users and bound; shares that leave out less than one user are no use.

    Args:
        last: the run's latest round.
        users: N, enrolled users.
    """
    rows: list[dict[str, Any]] = [
        {
            "left out": round(1 - share, 9),
            "epsilon": epsilon,
            "bound": name,
            "said": epsilon_text(epsilon),
        }
        for name, curve in ((SOUND, last.percentiles), (CORRECTED, last.percentiles_corrected))
        for share, epsilon in sorted((float(s), e) for s, e in curve.items())
        if (1 - share) * users >= 1 - ROUNDING and math.isfinite(epsilon)
    ]
    return frame(rows, COLUMNS)


def percentile_chart(rows: Frame) -> alt.Chart:
    """ε against the share of users that it leaves out."""
    drawn: alt.Chart = (
        alt.Chart(rows)
        .mark_line(point=alt.OverlayMarkDef(size=28), strokeWidth=2)
        .encode(
            x=alt.X(
                "left out:Q", title="Share of users left out", axis=alt.Axis(format="~%")
            ).scale(type="log", reverse=True, nice=False, padding=8),
            y=alt.Y("epsilon:Q", title="ε for all others"),
            color=alt.Color(
                "bound:N", scale=alt.Scale(domain=[SOUND, CORRECTED], range=list(CURVE_COLOURS))
            )
            .title(None)
            .legend(orient="bottom", labelLimit=400, symbolType="stroke", columns=1),
            tooltip=[
                alt.Tooltip("bound:N", title="Bound"),
                alt.Tooltip("left out:Q", title="Share of users left out", format="~%"),
                alt.Tooltip("said:N", title="ε"),
            ],
        )
        .properties(height=CURVE_HEIGHT)
    )
    return drawn


def render_percentiles(last: RoundRecord, users: int) -> None:
    """Put the curve on the page with what it means, if the round has one."""
    rows = curve_frame(last, users)
    if rows.empty:
        return
    st.markdown("**For most users (Bayesian DP)**")
    st.altair_chart(
        percentile_chart(rows),
        alt="Line chart of epsilon against the share of users that it leaves out",
    )
    everybody = last.percentiles.get("1", math.inf)
    dp = f" For every single person, at the same δ: DP ε = {epsilon_text(everybody)}."
    flat = " For this run the bound is the same for everyone." if _flat(rows) else ""
    st.caption(
        f"At δ = {delta_text(last.delta_bdp)}: all people drawn like those enrolled, but for the "
        "share left out, are protected with the ε of a curve, by Markov's inequality from that "
        "figure. A share of less than one of "
        f"{users:,} users would say nothing and is not shown.{dp}{flat}"
    )


def _flat(rows: Frame) -> bool:
    """Whether Bayesian accounting gains nothing: updates met the clip, or too few were seen."""
    return float(rows["epsilon"].max()) == float(rows["epsilon"].min())


# Told apart by colour-blind readers and, by the dashes, in grey print.
COLOURS = ("#3f86c9", "#2f9e78", "#d97a2b", "#9a7fc4")
DASHES = ([1, 0], [9, 2], [5, 3], [2, 3])
HEIGHT = 300
SMALL_HEIGHT = 160


def epsilon_frame(rounds: Sequence[RoundRecord]) -> Frame:
    """One row a round and accountant: ``round``, ``epsilon``, ``bound``; infinities left out.

    ``said`` is ε in words: rounded up, which a chart's own formats do not do.
    """
    rows = [
        {
            "round": record.round,
            "epsilon": spent.epsilon,
            "bound": name,
            "said": epsilon_text(spent.epsilon),
        }
        for record in rounds
        for name, spent in zip(series_names(record), bounds(record), strict=True)
        if math.isfinite(spent.epsilon)
    ]
    return frame(rows, ["round", "epsilon", "bound", "said"])


def dp_chart(rounds: Sequence[RoundRecord], budget: float = 0.0) -> alt.LayerChart:
    """DP's ε spent against rounds, with the budget if any.

    Args:
        rounds: at least one.
        budget: DP ε at which the run stops; 0 for none.
    """
    lines = _lines(rounds, series_names(rounds[-1])[:1], COLOURS[:1], DASHES[:1])
    chart: alt.LayerChart = alt.LayerChart(layer=[lines, *_budget_line(budget)])
    return chart.properties(height=HEIGHT)


def bayesian_chart(rounds: Sequence[RoundRecord]) -> alt.Chart:
    """The three Bayesian figures against rounds, on an axis of their own.

    They promise something else than DP: one axis for both would invite comparing their heights.
    """
    names = series_names(rounds[-1])[1:]
    return _lines(rounds, names, COLOURS[1:], DASHES[1:]).properties(height=HEIGHT)


def _lines(
    rounds: Sequence[RoundRecord],
    names: Sequence[str],
    colours: Sequence[str],
    dashes: Sequence[Sequence[int]],
) -> alt.Chart:
    rows = epsilon_frame(rounds)
    lines: alt.Chart = (
        alt.Chart(rows[rows["bound"].isin(names)])
        .mark_line(point=alt.OverlayMarkDef(size=28), strokeWidth=2)
        .encode(
            x=_round_axis(rounds),
            y=alt.Y("epsilon:Q", title="ε spent so far"),
            color=alt.Color("bound:N", scale=alt.Scale(domain=list(names), range=list(colours)))
            .title(None)
            .legend(orient="bottom", labelLimit=400, symbolType="stroke", columns=1),
            strokeDash=alt.StrokeDash(
                "bound:N", scale=alt.Scale(domain=list(names), range=list(dashes)), legend=None
            ),
            tooltip=[
                alt.Tooltip("bound:N", title="Bound"),
                alt.Tooltip("round:Q", title="Round"),
                alt.Tooltip("said:N", title="ε"),
            ],
        )
    )
    return lines


def _budget_line(budget: float) -> list[alt.Chart | alt.LayerChart]:
    if budget <= 0:
        return []
    base = alt.Chart(frame([{"budget": budget}]))
    rule = base.mark_rule(color="#d0453c", strokeDash=[4, 4]).encode(y="budget:Q")
    text = base.mark_text(align="left", dx=4, dy=-7, color="#d0453c").encode(
        x=alt.value(0), y="budget:Q", text=alt.value(f"DP budget {budget:g}: the run stops here")
    )
    return [rule, text]


def metric_frame(rounds: Sequence[RoundRecord]) -> Frame:
    """One row a round and metric: ``round``, ``metric``, ``value``; only finite values."""
    rows = [
        {"round": record.round, "metric": name, "value": value}
        for record in rounds
        for name, value in record.metrics.items()
        if math.isfinite(value)
    ]
    return frame(rows, ["round", "metric", "value"])


def metric_chart(rounds: Sequence[RoundRecord], name: str) -> alt.Chart:
    """One metric against rounds, on its own scale."""
    rows = metric_frame(rounds)
    chart: alt.Chart = (
        alt.Chart(rows[rows["metric"] == name])
        .mark_line(point=alt.OverlayMarkDef(size=22), color=COLOURS[0], strokeWidth=2)
        .encode(
            x=_round_axis(rounds),
            y=alt.Y("value:Q", title=None, scale=alt.Scale(zero=False)),
            tooltip=[
                alt.Tooltip("round:Q", title="Round"),
                alt.Tooltip("value:Q", title=name.replace("_", " "), format=".4g"),
            ],
        )
        .properties(height=SMALL_HEIGHT)
    )
    return chart


def metric_names(rounds: Sequence[RoundRecord]) -> list[str]:
    """Names of all metrics, in the order first met."""
    return list(dict.fromkeys(name for record in rounds for name in record.metrics))


def _round_axis(rounds: Sequence[RoundRecord]) -> alt.X:
    numbers = [record.round for record in rounds]
    ticks = min(10, max(numbers) - min(numbers) + 1)
    # Rounds are whole: no tick between two of them.
    axis = alt.Axis(format="d", tickMinStep=1, tickCount=ticks, grid=False)
    scale = alt.Scale(domain=[min(numbers), max(numbers)], nice=False, padding=8)
    return alt.X("round:Q", title="Round", axis=axis, scale=scale)
