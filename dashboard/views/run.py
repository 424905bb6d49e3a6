"""Run: what its samples look like, what was found, what it has cost, and its ledger."""

from __future__ import annotations

import json
import math
from functools import partial

import streamlit as st

from fedlens.accountant.wording import percentage
from fedlens.dashboard.access.account import account, put_closed, require
from fedlens.dashboard.access.session import all_runs, pick_run, plain_errors, store
from fedlens.dashboard.faults import panel
from fedlens.dashboard.privacy.books import Totals, budget_of
from fedlens.dashboard.samples import progress_strip
from fedlens.dashboard.summary import audits, charts, data_card, ledger_table
from fedlens.dashboard.summary.badges import privacy_warning, run_badges
from fedlens.dashboard.summary.privacy import ASSUMPTIONS, SO_FAR, bounds, delta_text, epsilon_text
from fedlens.dashboard.widgets.display import put_card
from fedlens.dashboard.widgets.markup import count_words, plain, text
from fedlens.dashboard.widgets.pages import DashboardPage, put_link
from fedlens.store import RoundRecord, RunRecord

REFRESH_SECONDS = 3
MOST_SHOWN = 100
"""Classes whose names are shown."""


def about(run: RunRecord) -> str:
    """Which of the enrolled users a run is about, in words; an empty text for all of them."""
    if named := run.config.get("data.slice"):
        return f"Only users of the slice {named}."
    told = {key: run.config.get(f"split.{key}", "") for key in ("side", "rule", "model")}
    if told["side"] not in ("below", "from"):
        return ""
    lies = "below" if told["side"] == "below" else "at or above"
    return (
        f"Only users on one side of a private split: their score ({told['rule']}) by the annotator "
        f"of {told['model']} is {lies} {run.config.get('split.threshold')}. Who they are is not "
        f"known here; a share of {run.config.get('split.share')} was expected."
    )


def _header(run: RunRecord) -> None:
    privacy_warning(run)
    run_badges(run)
    st.caption(
        f"Data {plain(run.data_name)} · {run.users:,} users on "
        f"{count_words(run.nodes, 'node')} · started {run.created_at:%Y-%m-%d} · id "
        f"{plain(run.run_id)} · configuration "
        f"{run.config_sha256[:12]}"
    )
    if whom := about(run):
        st.caption(plain(whom))
    if names := run.class_names[:MOST_SHOWN]:
        more = ", ..." if len(run.class_names) > len(names) else ""
        said = ", ".join(f"{number} {plain(name)}" for number, name in enumerate(names))
        st.caption(f"Classes: {said}{more}")
    if run.status == "running":
        st.caption(f"This page renews itself every {REFRESH_SECONDS} seconds.")
    covered = store().presence(run.run_id)
    if not covered.whole:
        st.warning(f"**Not everyone took part.** {covered.words}", icon=":material/group_off:")
    elif covered.rows:
        st.caption(covered.words)
    if run.stop_reason:
        st.info(f"Why it stopped: {plain(run.stop_reason)}", icon=":material/flag:")


def _hint(run: RunRecord) -> None:
    """What the diagnosis says, with the way to it."""
    answer = panel.look(run)
    if answer is None and not panel.under_way(run.run_id):
        return
    kind = "clear"
    if answer is not None and (not answer.fits or answer.findings):
        kind = "found" if answer.fits else "refused"
    said = "Looking for faults in the released sums …" if answer is None else answer.hint
    put_card(f'<p class="over">Diagnosis</p><h2>{text(said)}</h2>', kind if answer else "")
    put_link("diagnosis", "See the evidence, and what could not have been seen", run=run.run_id)


def _in_total(run: RunRecord) -> None:
    """The binding figure of all that was spent of the same people, where that is not this run."""
    total = Totals().beyond(run)
    if total is not None:
        budget = "" if total.budget is None else f" of ε ≤ {epsilon_text(total.budget)}"
        used = "" if total.used is None else f", {percentage(total.used)} used"
        put_card(
            '<p class="over">Spent in total of these users</p>'
            f'<p class="big num">DP ε {text(epsilon_text(total.epsilon))}<span class="quiet">'
            f"{text(budget)} at δ = {text(delta_text(total.delta))}{text(used)}</span></p>"
            f'<p class="quiet">This binds. BDP ε {text(epsilon_text(total.bayesian))} sound at '
            f"δ = {text(delta_text(total.bayesian_delta))}. Below: this run by itself.</p>"
        )
    put_link("privacy", "What was spent in total, and what is left", run=run.run_id)


def _figures(run: RunRecord, rounds: list[RoundRecord]) -> None:
    """DP first, for it binds for everybody, its Bayesian companion beside it; others on demand."""
    last = rounds[-1] if rounds else None
    _in_total(run)
    done, dp, bayesian = st.columns(3)
    done.metric("Rounds", f"{last.round if last else 0} / {run.rounds_planned}", border=True)
    if last is None:
        return
    all_of_them = bounds(last)
    budget = budget_of(run)
    for column, one in zip((dp, bayesian), all_of_them, strict=False):
        column.metric(
            f"{one.name} (δ = {delta_text(one.delta)})", epsilon_text(one.epsilon), border=True
        )
    if budget > 0 and math.isfinite(all_of_them[0].epsilon):
        share = min(1.0, all_of_them[0].epsilon / budget)
        st.progress(share, text=f"{share:.0%} of the DP budget of ε = {budget:g}")
    if run.status == "running":
        st.caption(SO_FAR)
    with st.expander("All Bayesian figures, and what each promises"):
        places = st.columns(2)
        for column, one in zip(places, all_of_them[2:], strict=True):
            label = f"{one.name} (δ = {delta_text(one.delta)})"
            column.metric(label, epsilon_text(one.epsilon), border=True)
        st.caption(ASSUMPTIONS)
    with st.expander("What is guaranteed, in words"):
        st.markdown(plain(run.guarantee))


def _privacy_charts(run: RunRecord, rounds: list[RoundRecord]) -> None:
    st.markdown("#### Privacy spent")
    if charts.epsilon_frame(rounds).empty:
        st.warning("No accountant gives a finite bound for this run: ε is ∞ throughout.")
        return
    dp, bayesian, users = st.columns(3, gap="large")
    with dp:
        st.markdown("**For any person (DP)**")
        st.altair_chart(
            charts.dp_chart(rounds, budget_of(run)), alt="Line chart of DP's epsilon against rounds"
        )
    with bayesian:
        st.markdown("**For people like those enrolled (Bayesian DP)**")
        st.altair_chart(
            charts.bayesian_chart(rounds),
            alt="Line chart of epsilon against rounds: BDP sound, corrected and as published",
        )
    with users:
        charts.render_percentiles(rounds[-1], run.users)


def _losses(rounds: list[RoundRecord]) -> None:
    st.markdown("#### Training")
    st.caption(
        "Computed from what was released and from generated samples; nothing here was measured "
        "on users' data."
    )
    columns = st.columns(4)
    for place, name in enumerate(charts.metric_names(rounds)):
        with columns[place % 4]:
            st.markdown(f"**{name.replace('_', ' ')}**")
            st.altair_chart(
                charts.metric_chart(rounds, name), alt=f"Line chart of {name} against rounds"
            )


def _live(run_id: str) -> None:
    run, rounds = store().run(run_id), store().rounds(run_id)
    _header(run)
    if rounds:
        left, right = st.columns([1.15, 1], gap="large")
        with left:
            progress_strip.render_strip(run, store().batches(run_id))
            about = "Look at this run's samples"
            put_link("samples", about, icon=":material/grid_view:", run=run_id)
        with right:
            _hint(run)
            _figures(run, rounds)
        _privacy_charts(run, rounds)
        _losses(rounds)
    else:
        _figures(run, rounds)
        st.info(f"Round 1 of {run.rounds_planned} is under way; the first figures follow it.")
    data_card.render_card(run)
    audits.render_audits(store().audits(run_id), run.name)
    covered = store().presence(run_id)
    ledger_table.render_ledger(store().ledger(run_id), store().releases(run_id), covered)
    _stop_refreshing(run)


def _stop_refreshing(run: RunRecord) -> None:
    going_on = run.status == "running" or panel.under_way(run.run_id)
    if not going_on and st.session_state.get("refreshing") == run.run_id:
        # It has just ended: draw the page once more, without the clock.
        del st.session_state["refreshing"]
        st.rerun()


def _pin(run: RunRecord) -> None:
    """Whether other runs over this data are compared with this one; a switch for those who may."""
    pinned = store().pinned_references().get(run.data_name) == run.run_id
    if not account().may("manage"):
        if pinned:
            st.caption(
                f"Pinned reference: runs over {plain(run.data_name)} are compared with this one."
            )
        return
    label = "Unpin as reference" if pinned else "Pin as reference"
    about = f"Compare and Diagnosis take it as default for other runs over {plain(run.data_name)}."
    if st.button(label, icon=":material/keep:", help=about, key=f"pin-{pinned}"):
        author = require("manage").name
        if pinned:
            store().unpin_reference(run.run_id)
        else:
            store().pin_reference(run.run_id, author=author)
        store().log(author, "reference unpinned" if pinned else "reference pinned", run.name)
        st.rerun()


def _settings(run: RunRecord) -> None:
    st.code(json.dumps(dict(run.config), indent=1, sort_keys=True), language="json")


def render() -> None:
    """Show the page."""
    st.title("Run")
    with plain_errors():
        runs = all_runs()
        if not runs:
            st.info("**No runs yet.** The page *Runs* says how to start one.")
            return
        run = pick_run(runs)
        panel.look(run)
        going_on = run.status == "running" or panel.under_way(run.run_id)
        if going_on:
            st.session_state["refreshing"] = run.run_id
        st.fragment(_refreshed, run_every=REFRESH_SECONDS if going_on else None)(run.run_id)
        _pin(run)
        put_closed("Configuration", "look", partial(_settings, run))


def _refreshed(run_id: str) -> None:
    with plain_errors():
        require("look")
        _live(run_id)


PAGE = DashboardPage("Run", ":material/monitoring:", "run", 20, render)
