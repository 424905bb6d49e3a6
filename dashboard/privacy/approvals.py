"""The officer's desk on the privacy page: what waits, and from when on an officer is asked."""

from __future__ import annotations

import streamlit as st

from fedlens.dashboard.access.account import account, require
from fedlens.dashboard.access.session import home, store_of
from fedlens.dashboard.faults import panel, probes
from fedlens.dashboard.privacy.answers import request_words
from fedlens.dashboard.privacy.people import People, open_population
from fedlens.dashboard.summary.privacy import delta_text, epsilon_text
from fedlens.dashboard.widgets.display import put_card
from fedlens.dashboard.widgets.markup import plain, text
from fedlens.store import SpendingRule, StoredRequest, StoreError
from fedlens.store.spending import LONGEST_WORDS

LARGEST_RULE = 1000.0


def render_waiting(requests: list[StoredRequest]) -> None:
    """Put what waits for an officer at the head of the page, with buttons for one."""
    waiting = [one for one in requests if one.status == "waiting"]
    for one in waiting:
        put_card(_card(one), "found")
        if account().may("approve"):
            _decide(one)


def _card(one: StoredRequest) -> str:
    cost = (
        f"DP ε = {epsilon_text(one.epsilon)} at δ = {delta_text(one.delta)}; Bayesian DP ε is at "
        "most that at this δ"
    )
    why = f"<dt>For</dt><dd>{text(one.why)}</dd>" if one.why else ""
    return (
        '<p class="over">Waits for an officer</p>'
        f"<h2>{text(one.author)} wants to ask all users one number</h2>"
        f'<dl class="facts"><dt>Probe</dt><dd><code>{text(one.probe)}</code></dd>'
        f"<dt>Of run</dt><dd>{text(_run_name(one.run_id))}</dd><dt>Costs</dt><dd>{text(cost)}</dd>"
        f"{why}<dt>Asked for</dt><dd>{one.created_at:%Y-%m-%d %H:%M} UTC</dd></dl>"
    )


def _run_name(run_id: str) -> str:
    try:
        return store_of(run_id).run(run_id).name
    except StoreError:
        return run_id


def _decide(one: StoredRequest) -> None:
    """Two ways out: carried out at once, or declined with a reason."""
    with st.form(f"decide-{one.request_id}", border=False):
        note = st.text_input(
            "Reason (needed to decline; shown to who asked)", max_chars=LONGEST_WORDS
        )
        left, right, _ = st.columns([1, 1, 3])
        approve = left.form_submit_button("Approve and ask", type="primary")
        decline = right.form_submit_button("Decline")
    if not (approve or decline):
        return
    officer = require("approve").name
    try:
        home().decide_request(one.request_id, approved=approve, author=officer, note=note)
        if approve:
            probes.carry_out(one.request_id)
    except StoreError as error:
        st.error(plain(error))
        return
    st.rerun()


def render_under_way(requests: list[StoredRequest]) -> None:
    """Say of what was approved how far it is."""
    for one in requests:
        if one.status in ("approved", "being asked"):
            put_card(f'<p class="over">Approved</p><p>{text(request_words(one))}</p>')
        if one.status == "approved" and account().may("approve"):
            if panel.place_of(one.run_id) is None:
                st.caption("The run's folder is not on this machine: it is asked where it is.")
            elif st.button("Ask it now", key=f"carry-{one.request_id}"):
                require("approve")
                probes.carry_out(one.request_id)
                st.rerun()


def render_rule(people: People, rule: SpendingRule) -> None:
    """Put the rule's form on the page, for officers."""
    if not account().may("approve"):
        return
    with st.expander("From when on you are asked, and warned"), st.form("spending-rule"):
        asked = st.checkbox("Ask an officer", value=rule.approve_above is not None)
        above = st.number_input(
            "Approve probes that cost more than DP ε =",
            min_value=0.0,
            max_value=LARGEST_RULE,
            value=rule.approve_above or 0.0,
            step=0.05,
        )
        warn = st.number_input(
            "Warn from this share of the budget on, in %",
            min_value=1,
            max_value=100,
            value=round(100 * rule.warn_at),
        )
        if st.form_submit_button("Set"):
            officer = require("approve").name
            limit = above if asked else None
            home().set_spending_rule(people.key, limit, warn / 100, author=officer)
            if people.population:  # whose ledger asks it of commands too
                open_population(people.population).set_officer_rule(limit, warn / 100, by=officer)
            st.rerun()
