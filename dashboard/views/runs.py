"""Runs: what was trained, what it looks like, what it has cost and what was found in it."""

from __future__ import annotations

import streamlit as st

from fedlens.dashboard.access.account import require
from fedlens.dashboard.access.session import RUN_PARAMETER, choose_page, plain_errors, store
from fedlens.dashboard.faults import panel
from fedlens.dashboard.summary import cards
from fedlens.dashboard.summary.audits import ALARM, RED, has_alarm
from fedlens.dashboard.summary.badges import STATUS
from fedlens.dashboard.summary.privacy import (
    ASSUMPTIONS,
    NOT_PRIVATE,
    bounds,
    delta_text,
    epsilon_text,
)
from fedlens.dashboard.widgets.display import colour_column, frame, put_table
from fedlens.dashboard.widgets.pages import PAGES, DashboardPage
from fedlens.store import RoundRecord, RunRecord

START_HINT = "fedlens simulate --preset demo --out runs/demo"
NONE_YET = "–"
COLUMNS = ("DP ε (δ)", "BDP ε sound (δ)", "BDP ε corrected (δ)", "BDP ε as published (δ)")
AT_ONCE = 12
REFRESH_SECONDS = 4
LONGEST_NAME = 48


def row(run: RunRecord, last: RoundRecord | None, *, alarm: bool = False) -> dict[str, str | int]:
    """One line of the table; ``last`` is the run's latest round, ``alarm`` an audit's."""
    return {
        "Name": short(run.name),
        "Privacy": ALARM if alarm else "private" if run.private else NOT_PRIVATE,
        "Status": STATUS[run.status][0],
        "Rounds": f"{last.round if last else 0} / {run.rounds_planned}",
        "Data": run.data_name,
        "Unit": run.unit,
        "Users": run.users,
        **(_figures(last) if last else dict.fromkeys(COLUMNS, NONE_YET)),
        "Started": f"{run.created_at:%Y-%m-%d}",
    }


def short(name: str) -> str:
    """A name that leaves room for the table's other columns: its middle is left out."""
    half = LONGEST_NAME // 2
    return name if len(name) <= LONGEST_NAME else f"{name[:half]}…{name[-half + 1 :]}"


def _figures(last: RoundRecord) -> dict[str, str]:
    return {
        f"{one.name} (δ)": f"{epsilon_text(one.epsilon)} ({delta_text(one.delta)})"
        for one in bounds(last)
    }


def _colour(value: object) -> str:
    return RED if value in (NOT_PRIVATE, ALARM) else ""


def _empty() -> None:
    st.info("**No runs yet.** Start one in a terminal; it appears here by itself.")
    st.code(START_HINT, language="bash")
    st.button("Look again", key="look_again")


def _last(run: RunRecord) -> RoundRecord | None:
    rounds = store().rounds(run.run_id)
    return rounds[-1] if rounds else None


def _table(runs: list[RunRecord]) -> None:
    rows = [row(run, _last(run), alarm=has_alarm(run.run_id)) for run in runs]
    event = put_table(
        colour_column(frame(rows), "Privacy", _colour),
        "Table of runs with their status, progress and privacy figures",
        on_select="rerun",
        selection_mode="single-cell",
        key="runs_table",
    )
    cells = event["selection"]["cells"]
    if cells:
        page = PAGES["run"].in_navigation()
        st.switch_page(page, query_params={RUN_PARAMETER: runs[cells[0][0]].run_id})


def _shown(runs: list[RunRecord]) -> list[RunRecord]:
    """The runs of the page that the address names."""
    if len(runs) <= AT_ONCE:
        return runs
    first = choose_page(len(runs), AT_ONCE)
    return runs[first : first + AT_ONCE]


def _cards(ids: list[str]) -> None:
    """Cards that renew themselves while something is going on."""
    with plain_errors():
        require("look")
        columns = st.columns(2, gap="medium")
        for place, run_id in enumerate(ids):
            run = store().run(run_id)
            with columns[place % 2]:
                cards.render_run_card(run, _last(run))


def render() -> None:
    """Show the page."""
    st.title("Runs")
    with plain_errors():
        runs = store().runs()
        if not runs:
            _empty()
            return
        shown = _shown(runs)
        ended = [run for run in shown if run.status in panel.ENDED]
        if ended:
            panel.look(ended[0])
        busy = any(run.status == "running" or panel.under_way(run.run_id) for run in shown)
        every = REFRESH_SECONDS if busy else None
        st.fragment(_cards, run_every=every)([run.run_id for run in shown])
        with st.expander("All figures as a table", expanded=len(runs) > AT_ONCE):
            st.caption("Click anywhere in a line to open that run.")
            _table(runs)
            st.caption(ASSUMPTIONS)


PAGE = DashboardPage("Runs", ":material/list:", "runs", 10, render)
