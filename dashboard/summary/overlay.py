"""Figures of several runs in one plot each: ε that they spent, and what they measured."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import altair as alt
import streamlit as st

from fedlens.dashboard.access.session import run_title, store_of
from fedlens.dashboard.summary.privacy import epsilon_text
from fedlens.dashboard.widgets.display import Frame, frame
from fedlens.dashboard.widgets.markup import plain
from fedlens.store import RoundRecord, RunRecord

SPENT = "ε spent"
"""Stands for two plots: DP and Bayesian DP promise different things and share no axis."""
DELTAS = (
    "Each run at its own δ, as its row says; ε at different δ are not to be compared. DP is for "
    "any person, Bayesian DP for people like those enrolled."
)
HEIGHT = 260
DASHES = ([1, 0], [9, 2], [5, 3], [2, 3])
"""A line is told from those of the same colour, and in grey print."""
COLOURS = ("#3f86c9", "#d97a2b", "#2f9e78", "#9a7fc4", "#b8860b", "#c2506e")
FIGURES = "figures"
COLUMNS = ["run", "round", "value", "said"]

Progress = Mapping[str, Sequence[RoundRecord]]


def figure_names(progress: Progress) -> list[str]:
    """What is known of any of the runs, ε first, then metrics in the order first met."""
    metrics = dict.fromkeys(
        name for rounds in progress.values() for one in rounds for name in one.metrics
    )
    return [SPENT, *metrics]


def overlay_frame(progress: Progress, figure: str) -> Frame:
    """One row a run and round of a figure; only finite values.

    Args:
        progress: rounds of each run, under the name that the legend has.
        figure: ``dp_epsilon``, ``bdp_sound`` or a metric's name.
    """
    return frame(list(_rows(progress, figure)), COLUMNS)


def _rows(progress: Progress, figure: str) -> Iterator[dict[str, object]]:
    for name, rounds in progress.items():
        for one in rounds:
            spent = figure in ("dp_epsilon", "bdp_sound")
            value = getattr(one, figure) if spent else one.metrics.get(figure, math.nan)
            if math.isfinite(value):
                said = epsilon_text(value) if spent else f"{value:.4g}"
                yield {"run": name, "round": one.round, "value": value, "said": said}


def unbounded(progress: Progress, figure: str) -> list[str]:
    """Names of runs whose ε has no bound in some round, which no line can show."""
    if figure not in ("dp_epsilon", "bdp_sound"):
        return []
    infinite = {
        name: any(math.isinf(getattr(one, figure)) for one in rounds)
        for name, rounds in progress.items()
    }
    return [name for name, is_so in infinite.items() if is_so]


def overlay_chart(rows: Frame, names: Sequence[str], title: str) -> alt.Chart:
    """A line a run against rounds; a run has the same colour and dash in every plot."""
    colours = [COLOURS[i % len(COLOURS)] for i in range(len(names))]
    dashes = [DASHES[i // len(COLOURS) % len(DASHES)] for i in range(len(names))]
    axis = alt.Axis(format="d", tickMinStep=1, grid=False)
    drawn: alt.Chart = (
        alt.Chart(rows)
        .mark_line(point=alt.OverlayMarkDef(size=22), strokeWidth=2)
        .encode(
            x=alt.X("round:Q", title="Round", axis=axis),
            y=alt.Y("value:Q", title=title, scale=alt.Scale(zero=False)),
            color=alt.Color("run:N", scale=alt.Scale(domain=list(names), range=colours))
            .title(None)
            .legend(orient="bottom", labelLimit=260, symbolType="stroke", columns=2),
            strokeDash=alt.StrokeDash(
                "run:N", scale=alt.Scale(domain=list(names), range=dashes), legend=None
            ),
            tooltip=[
                alt.Tooltip("run:N", title="Run"),
                alt.Tooltip("round:Q", title="Round"),
                alt.Tooltip("said:N", title=title),
            ],
        )
        .properties(height=HEIGHT)
    )
    return drawn


def render_overlay(runs: Sequence[RunRecord]) -> None:
    """Put the plots of the chosen figures on the page, where runs are ticked."""
    if not runs:
        return
    progress = {run_title(run): store_of(run.run_id).rounds(run.run_id) for run in runs}
    there = {name: rounds for name, rounds in progress.items() if rounds}
    st.markdown("#### Figures of the ticked runs")
    known = figure_names(there)
    chosen = st.multiselect("Figures", known, default=known[:2], key=FIGURES, bind="query-params")
    plots = [plot for figure in chosen for plot in _plots(figure)]
    columns = st.columns(2, gap="medium")
    for place, (figure, title) in enumerate(plots):
        with columns[place % 2]:
            _plot(there, figure, title)
    if SPENT in chosen:
        st.caption(DELTAS)


def _plots(figure: str) -> list[tuple[str, str]]:
    if figure != SPENT:
        return [(figure, figure.replace("_", " "))]
    return [("dp_epsilon", "DP ε spent"), ("bdp_sound", "BDP ε spent (sound)")]


def _plot(progress: Progress, figure: str, title: str) -> None:
    rows = overlay_frame(progress, figure)
    if open_ended := unbounded(progress, figure):
        st.markdown(f"**{title}: infinite, NOT PRIVATE:** {', '.join(map(plain, open_ended))}")
    if rows.empty:
        if not open_ended:
            st.caption(f"{title}: none of these runs has it.")
        return
    names = ", ".join(dict.fromkeys(rows["run"]))
    st.altair_chart(
        overlay_chart(rows, list(progress), title),
        alt=f"Line chart of {title} against rounds, a line for each of {names}",
    )
