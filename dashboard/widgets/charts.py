"""Line charts against rounds. DP and Bayesian DP stand side by side, never on one axis."""

from __future__ import annotations

import math
from collections.abc import Sequence

import altair as alt

from fedlens.dashboard.summary.privacy import bounds, epsilon_text, series_names
from fedlens.dashboard.widgets.tables import Frame, frame
from fedlens.store import RoundRecord

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
