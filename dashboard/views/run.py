"""Run: one run's progress, what it has cost, how its samples changed, and its ledger."""

from __future__ import annotations

import json

import streamlit as st

from dashboard import audits, charts, ledger_table, percentiles, strips
from dashboard.badges import privacy_warning, run_badges
from dashboard.pages import PAGES, DashboardPage
from dashboard.privacy import ASSUMPTIONS, bounds, delta_text, epsilon_text
from dashboard.session import RUN_PARAMETER, pick_run, plain_errors, store
from server.store import RoundRecord, RunRecord

REFRESH_SECONDS = 3
BUDGET_SETTING = "privacy.epsilon_budget"


def budget_of(run: RunRecord) -> float:
    """The DP ε at which the run stops; 0 for none."""
    value = run.config.get(BUDGET_SETTING, 0.0)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


def _header(run: RunRecord) -> None:
    privacy_warning(run)
    run_badges(run)
    st.caption(
        f"Data {run.data_name} · {run.users:,} users on {run.nodes} nodes · started "
        f"{run.created_at:%Y-%m-%d} · id {run.run_id} · configuration "
        f"{run.config_sha256[:12]}"
    )
    if run.status == "running":
        st.caption(f"This page renews itself every {REFRESH_SECONDS} seconds.")
    if run.stop_reason:
        st.info(f"Why it stopped: {run.stop_reason}", icon=":material/flag:")


def _figures(run: RunRecord, rounds: list[RoundRecord]) -> None:
    done, *spent = st.columns(5)
    last = rounds[-1] if rounds else None
    done.metric("Rounds", f"{last.round if last else 0} / {run.rounds_planned}", border=True)
    if last is None:
        return
    for column, one in zip(spent, bounds(last), strict=True):
        label = f"{one.name} (δ = {delta_text(one.delta)})"
        column.metric(label, epsilon_text(one.epsilon), border=True)


def _privacy_chart(run: RunRecord, rounds: list[RoundRecord]) -> None:
    st.markdown("#### Privacy spent")
    if charts.epsilon_frame(rounds).empty:
        st.warning("No accountant gives a finite bound for this run: ε is ∞ throughout.")
    else:
        st.altair_chart(
            charts.epsilon_chart(rounds, budget_of(run)),
            alt="Line chart of epsilon against rounds: DP, BDP sound, corrected and as published",
        )
    st.caption(ASSUMPTIONS)


def _losses(rounds: list[RoundRecord]) -> None:
    st.markdown("#### Training")
    st.caption(
        "Computed from what was released and from generated samples; nothing here was measured "
        "on users' data."
    )
    columns = st.columns(3)
    for place, name in enumerate(charts.metric_names(rounds)):
        with columns[place % 3]:
            st.markdown(f"**{name.replace('_', ' ')}**")
            st.altair_chart(
                charts.metric_chart(rounds, name), alt=f"Line chart of {name} against rounds"
            )


def _live(run_id: str) -> None:
    run, rounds = store().run(run_id), store().rounds(run_id)
    _header(run)
    _figures(run, rounds)
    with st.container(border=True):
        st.markdown(f"**What is guaranteed.** {run.guarantee}")
    if rounds:
        left, right = st.columns(2, gap="large")
        with left:
            _privacy_chart(run, rounds)
            percentiles.show(rounds[-1], run.users)
        with right:
            strips.strip_by_round(run, store().batches(run_id))
            st.page_link(
                PAGES["samples"].in_navigation(),
                label="Look at this run's samples",
                icon=":material/grid_view:",
                query_params={RUN_PARAMETER: run_id},
            )
        _losses(rounds)
    else:
        st.info(f"Round 1 of {run.rounds_planned} is under way; the first figures follow it.")
    audits.show(store().audits(run_id), run.name)
    ledger_table.show(store().ledger(run_id), store().releases(run_id))
    if run.status != "running" and st.session_state.get("refreshing") == run_id:
        # It has just ended: draw the page once more, without the clock.
        del st.session_state["refreshing"]
        st.rerun()


def _settings(run: RunRecord) -> None:
    with st.expander("Configuration"):
        st.code(json.dumps(dict(run.config), indent=1, sort_keys=True), language="json")


def render() -> None:
    """Show the page."""
    st.title("Run")
    with plain_errors():
        runs = store().runs()
        if not runs:
            st.info("**No runs yet.** The page *Runs* says how to start one.")
            return
        run = pick_run(runs)
        running = run.status == "running"
        if running:
            st.session_state["refreshing"] = run.run_id
        st.fragment(_refreshed, run_every=REFRESH_SECONDS if running else None)(run.run_id)
        _settings(run)


def _refreshed(run_id: str) -> None:
    with plain_errors():
        _live(run_id)


PAGE = DashboardPage("Run", ":material/monitoring:", "run", 20, render)
