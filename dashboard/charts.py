"""Line charts against rounds. Privacy charts always hold both accountants."""

from __future__ import annotations

import math
from collections.abc import Sequence

import altair as alt

from dashboard.frames import Frame, frame
from dashboard.privacy import bounds, series_names
from server.store import RoundRecord

# Told apart by colour-blind readers and, by the dashes, in grey print.
COLOURS = ("#1f5fa8", "#2a8c6c", "#d1711b", "#8a6fb0")
DASHES = ([1, 0], [9, 2], [5, 3], [2, 3])
HEIGHT = 380
SMALL_HEIGHT = 160


def epsilon_frame(rounds: Sequence[RoundRecord]) -> Frame:
    """One row a round and accountant: ``round``, ``epsilon``, ``bound``; infinities left out."""
    rows = [
        {"round": record.round, "epsilon": spent.epsilon, "bound": name}
        for record in rounds
        for name, spent in zip(series_names(record), bounds(record), strict=True)
        if math.isfinite(spent.epsilon)
    ]
    return frame(rows, ["round", "epsilon", "bound"])


def epsilon_chart(rounds: Sequence[RoundRecord], budget: float = 0.0) -> alt.LayerChart:
    """ε spent against rounds: DP, the three BDP figures, and the DP budget if any.

    Args:
        rounds: at least one.
        budget: DP ε at which the run stops; 0 for none.
    """
    names = series_names(rounds[-1])
    lines = (
        alt.Chart(epsilon_frame(rounds))
        .mark_line(point=alt.OverlayMarkDef(size=28), strokeWidth=2)
        .encode(
            x=_round_axis(rounds),
            y=alt.Y("epsilon:Q", title="ε spent so far"),
            color=alt.Color("bound:N", scale=alt.Scale(domain=names, range=list(COLOURS)))
            .title(None)
            .legend(orient="bottom", labelLimit=400, symbolType="stroke", columns=1),
            strokeDash=alt.StrokeDash(
                "bound:N", scale=alt.Scale(domain=names, range=list(DASHES)), legend=None
            ),
            tooltip=[
                alt.Tooltip("bound:N", title="Bound"),
                alt.Tooltip("round:Q", title="Round"),
                alt.Tooltip("epsilon:Q", title="ε", format=".3g"),
            ],
        )
    )
    chart: alt.LayerChart = alt.LayerChart(layer=[lines, *_budget_line(budget)])
    return chart.properties(height=HEIGHT)


def _budget_line(budget: float) -> list[alt.Chart | alt.LayerChart]:
    if budget <= 0:
        return []
    base = alt.Chart(frame([{"budget": budget}]))
    rule = base.mark_rule(color="#a61b1b", strokeDash=[4, 4]).encode(y="budget:Q")
    text = base.mark_text(align="left", dx=4, dy=-7, color="#a61b1b").encode(
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
