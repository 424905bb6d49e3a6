"""Runs: what was trained, how far it is, and what it has cost in privacy."""

from __future__ import annotations

import streamlit as st

from dashboard.audits import ALARM, RED, has_alarm
from dashboard.badges import STATUS
from dashboard.frames import coloured, frame, put
from dashboard.pages import PAGES, DashboardPage
from dashboard.privacy import ASSUMPTIONS, NOT_PRIVATE, bounds, delta_text, epsilon_text
from dashboard.session import RUN_PARAMETER, plain_errors, store
from server.store import RoundRecord, RunRecord

START_HINT = "fedlens simulate --preset demo --out runs/demo"
NONE_YET = "–"
COLUMNS = ("DP ε (δ)", "BDP ε sound (δ)", "BDP ε corrected (δ)", "BDP ε as published (δ)")


def row(run: RunRecord, last: RoundRecord | None, *, alarm: bool = False) -> dict[str, str | int]:
    """One line of the table; ``last`` is the run's latest round, ``alarm`` an audit's."""
    return {
        "Name": run.name,
        "Privacy": ALARM if alarm else "private" if run.private else NOT_PRIVATE,
        "Status": STATUS[run.status][0],
        "Rounds": f"{last.round if last else 0} / {run.rounds_planned}",
        "Data": run.data_name,
        "Unit": run.unit,
        "Users": run.users,
        **(_figures(last) if last else dict.fromkeys(COLUMNS, NONE_YET)),
        "Started": f"{run.created_at:%Y-%m-%d}",
    }


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


def _table(runs: list[RunRecord]) -> None:
    rows = []
    for run in runs:
        rounds = store().rounds(run.run_id)
        last = rounds[-1] if rounds else None
        rows.append(row(run, last, alarm=has_alarm(run.run_id)))
    event = put(
        coloured(frame(rows), "Privacy", _colour),
        "Table of runs with their status, progress and privacy figures",
        on_select="rerun",
        selection_mode="single-cell",
        key="runs_table",
    )
    cells = event["selection"]["cells"]
    if cells:
        _open(runs[cells[0][0]].run_id)


def _open(run_id: str) -> None:
    st.switch_page(PAGES["run"].in_navigation(), query_params={RUN_PARAMETER: run_id})


def _opener(runs: list[RunRecord]) -> None:
    """The way to a run without a mouse."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        names = [run.name for run in runs]
        index = st.selectbox(
            "Open a run", range(len(runs)), format_func=lambda i: names[i], key="opened_run"
        )
        if st.button("Open", key="open_run", type="primary"):
            _open(runs[index or 0].run_id)


def render() -> None:
    """Show the page."""
    st.title("Runs")
    with plain_errors():
        runs = store().runs()
        if not runs:
            _empty()
            return
        st.caption("Click anywhere in a line to open that run.")
        _table(runs)
        _opener(runs)
        st.caption(ASSUMPTIONS)


PAGE = DashboardPage("Runs", ":material/list:", "runs", 10, render)
