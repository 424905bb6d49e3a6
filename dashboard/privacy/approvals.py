"""The officer's desk on the privacy page: what waits, and from when on an officer is asked."""

from __future__ import annotations

import streamlit as st

from fedlens.accountant.ledger.officer import WaitingProbe
from fedlens.dashboard.access.account import account, require
from fedlens.dashboard.access.session import home, store_of
from fedlens.dashboard.faults import panel, probes
from fedlens.dashboard.privacy.answers import request_words
from fedlens.dashboard.privacy.books import Books
from fedlens.dashboard.privacy.people import People, open_population
from fedlens.dashboard.summary.privacy import delta_text, epsilon_text
from fedlens.dashboard.widgets.display import put_card
from fedlens.dashboard.widgets.markup import plain, text
from fedlens.foundation.errors import FedlensError
from fedlens.store import SpendingRule, StoredRequest, StoreError
from fedlens.store.spending import LONGEST_WORDS

LARGEST_RULE = 1000.0


def render_waiting(books: Books, requests: list[StoredRequest]) -> None:
    """Put what waits for an officer at the head of the page, with buttons for one."""
    waiting = [one for one in requests if one.status == "waiting"]
    for one in waiting:
        put_card(_card(one), "found")
        if account().may("approve"):
            _decide(one)
    for place, held in enumerate(probes.without_requested(books.waiting(), requests)):
        put_card(_held_card(held, books.delta()), "found")
        if account().may("approve"):
            _decide_held(books.people, held, place)


def _card(one: StoredRequest) -> str:
    facts = [("Probe", one.probe), ("Of run", _run_name(one.run_id))]
    facts.append(("Costs", _cost(one.epsilon, one.delta)))
    facts += [("For", one.why)] if one.why else []
    facts.append(("Asked for", f"{one.created_at:%Y-%m-%d %H:%M} UTC"))
    return _waiting_card(f"{one.author} wants to ask all users one number", facts)


def _held_card(one: WaitingProbe, delta: float) -> str:
    """Of a probe that its population's ledger held back; approved, it is not asked from here."""
    name = _run_name(one.run) if one.run else ""
    question = one.question.replace(one.run, name) if one.run else one.question
    asked = f"{one.users or 'everyone'}, in {one.times} rounds" if one.times > 1 else one.users
    facts = [("Asks", question), ("Of run", name or "none yet: settings in a file")]
    facts += [("Of", asked)] if asked else []
    facts.append(("Costs", _cost(one.epsilon(delta), delta)))
    facts.append(("Then", "the run goes on, or the command is given, once more"))
    return _waiting_card("A run or a command wants to ask users one number", facts)


def _waiting_card(title: str, facts: list[tuple[str, str]]) -> str:
    rows = "".join(f"<dt>{text(name)}</dt><dd>{text(said)}</dd>" for name, said in facts)
    return (
        f'<p class="over">Waits for an officer</p><h2>{text(title)}</h2>'
        f'<dl class="facts">{rows}</dl>'
    )


def _cost(epsilon: float, delta: float) -> str:
    return (
        f"DP ε = {epsilon_text(epsilon)} at δ = {delta_text(delta)}; Bayesian DP ε is at most that "
        "at this δ"
    )


def _run_name(run_id: str) -> str:
    try:
        return store_of(run_id).run(run_id).name
    except StoreError:
        return run_id


def _ask_decision(key: str, label: str, reason: str) -> tuple[bool | None, str]:
    """Whether it is approved, and why; None before anything is pressed."""
    with st.form(key, border=False):
        note = st.text_input(reason, max_chars=LONGEST_WORDS)
        left, right, _ = st.columns([1, 1, 3])
        approve = left.form_submit_button(label, type="primary")
        decline = right.form_submit_button("Decline")
    return (approve if approve or decline else None), note


def _decide(one: StoredRequest) -> None:
    """Two ways out: carried out at once, or declined with a reason."""
    reason = "Reason (needed to decline; shown to who asked)"
    approved, note = _ask_decision(f"decide-{one.request_id}", "Approve and ask", reason)
    if approved is None:
        return
    officer = require("approve").name
    try:
        home().decide_request(one.request_id, approved=approved, author=officer, note=note)
        if approved:
            probes.carry_out(one.request_id)
        else:
            probes.decline_held(one, officer, note)
    except StoreError as error:
        st.error(plain(error))
        return
    st.rerun()


def _decide_held(people: People, one: WaitingProbe, place: int) -> None:
    """The same of what the population's ledger held back: it is let through, or not."""
    approved, note = _ask_decision(f"decide-held-{place}", "Approve", "Reason (kept on record)")
    if approved is None:
        return
    officer = require("approve").name
    try:
        open_population(people.population).decide(one, approved=approved, by=officer, why=note)
    except (FedlensError, OSError) as error:
        st.error(plain(error))
        return
    done = "spending approved" if approved else "spending declined"
    home().log(officer, done, f"{one.question}, population {people.name}")
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
