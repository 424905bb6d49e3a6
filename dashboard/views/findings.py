"""Findings: what engineers think is wrong with users' data, the evidence, and what became of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import streamlit as st

from fedlens.dashboard.access.account import account, require, require_later
from fedlens.dashboard.access.session import (
    RUN_PARAMETER,
    all_runs,
    choice,
    choose_page,
    home,
    plain_errors,
    run_title,
    store,
    store_of,
)
from fedlens.dashboard.access.workspace import runs_by_store
from fedlens.dashboard.faults import panel, report
from fedlens.dashboard.faults.evidence import (
    diagnoses_in,
    freeze_diagnosis,
    probes_of,
    samples_in,
)
from fedlens.dashboard.faults.report import build_report
from fedlens.dashboard.samples.filters import ALL, classes_of
from fedlens.dashboard.summary.badges import privacy_warning
from fedlens.dashboard.widgets.display import put_card
from fedlens.dashboard.widgets.markup import plain
from fedlens.dashboard.widgets.pages import DashboardPage, put_link
from fedlens.store import (
    FindingEntry,
    FindingRecord,
    FindingStatus,
    Member,
    RunRecord,
    Store,
    StoredFinding,
    StoreError,
)
from fedlens.store.findings import LONGEST_HYPOTHESIS, LONGEST_NOTE

FINDING = "finding"
"""Of the address: the one that is open."""
AT_ONCE = 20


def _asked() -> StoredFinding | None:
    """The finding that the address names, if there is one."""
    said = st.query_params.get(FINDING, "")
    if not (said.isascii() and said.isdigit() and len(said) < 10):
        return None
    try:
        return store().finding(int(said))
    except StoreError:
        st.warning(f"There is no finding {said} in this store.")
        return None


def _filtered(runs: list[RunRecord]) -> list[StoredFinding]:
    """The findings that the filters leave; what they are set to stands in the address."""
    by_id = {run.run_id: run for run in runs}
    owners = [owner for owner, there in runs_by_store(home()) if there] or [store()]
    authors = sorted({found.author for owner in owners for found in owner.findings()})
    of_run, of_status, of_author = st.columns(3)
    with of_run:
        run = choice("Run", [ALL, *by_id], lambda o: _all(o) or run_title(by_id[o]), RUN_PARAMETER)
    with of_status:
        words = {str(name): shown for name, (shown, _) in report.STATUS.items()}
        status = choice("Status", [ALL, *words], lambda o: _all(o) or words[o], "status")
    with of_author:
        author = choice("Author", [ALL, *authors], lambda o: _all(o) or o, "author")
    chosen: FindingStatus | None = next((one for one in report.STATUS if one == status), None)
    wanted = {"run_id": None if run == ALL else run, "author": None if author == ALL else author}
    found = [one for owner in owners for one in owner.findings(status=chosen, **wanted)]
    return sorted(found, key=lambda one: one.changed_at, reverse=True)


def _all(option: str) -> str:
    return "All" if option == ALL else ""


def _page(found: list[StoredFinding]) -> list[StoredFinding]:
    if len(found) <= AT_ONCE:
        return found
    first = choose_page(len(found), AT_ONCE)
    return found[first : first + AT_ONCE]


def _list(runs: list[RunRecord]) -> None:
    found = _filtered(runs)
    by_id = {run.run_id: run for run in runs}
    if not found:
        st.info(
            "**No findings here.** Keep one from a card of the page *Diagnosis*, or write one down "
            "below."
        )
    for one in _page(found):
        put_card(report.heading_card(one, by_id[one.run_id]))
        put_link("findings", "View", finding=str(one.finding_id), run=one.run_id)
    if account().may("manage"):
        _write_down(by_id)


def _write_down(runs: dict[str, RunRecord]) -> None:
    with (
        st.expander("Write a finding down"),
        st.form("new_finding", clear_on_submit=True, border=False),
    ):
        run_id = st.selectbox("Run", list(runs), format_func=lambda one: run_title(runs[one]))
        words = st.text_input(
            "Hypothesis", max_chars=LONGEST_HYPOTHESIS, placeholder="What is wrong, in whose data?"
        )
        if st.form_submit_button("Keep it"):
            record = FindingRecord(run_id=run_id, hypothesis=words)
            made = store_of(run_id).add_finding(record, author=require("manage").name)
            _open(made, run_id)


def _open(finding_id: int, run_id: str) -> None:
    st.query_params[FINDING], st.query_params[RUN_PARAMETER] = str(finding_id), run_id
    st.rerun()


def _detail(finding: StoredFinding) -> None:
    run, history = store().run(finding.run_id), store().finding_history(finding.finding_id)
    put_link("findings", "All findings", icon=":material/arrow_back:")
    privacy_warning(run)
    left, right = st.columns([1.7, 1], gap="large")
    with left:
        put_card(
            report.heading_card(finding, run), "found" if finding.status == "confirmed" else ""
        )
        _diagnoses(finding, history)
        for entry in history:
            if entry.kind == "probe":
                put_card(report.probe_card(entry.content))
        shown = samples_in(history, store())
        if shown:
            put_card(report.samples_card(shown, run))
    with right:
        _report(finding)
        if account().may("manage"):
            _judge(finding)
            _add_evidence(finding, run)
        put_card(report.history_card(history))


def _diagnoses(finding: StoredFinding, history: list[FindingEntry]) -> None:
    """What the finding was filed on, as it stood; what was added later folded away below it."""
    kept = diagnoses_in(history)
    for number, (entry, answer) in enumerate(kept):
        said = report.describe_origin(entry, first=number == 0)
        cards = report.diagnosis_cards(answer, finding.fault, len(classes_of(finding.run_id)))
        if number == 0:
            st.caption(plain(said))
            place = st.container()
        else:
            place = st.expander(plain(said))
        with place:
            for inner, kind in cards:
                put_card(inner, kind)


def _report(finding: StoredFinding) -> None:
    st.download_button(
        "Report to share",
        partial(_reported, finding.finding_id, store(), require_later("look")),
        file_name=f"finding-{finding.finding_id}.html",
        mime="text/html",
        icon=":material/ios_share:",
        on_click="ignore",
        help="One file with the pictures in it, both privacy statements and the evidence.",
    )


def _reported(finding_id: int, source: Store, allowed: Callable[[], Member]) -> bytes:
    source.log(allowed().name, "exported", f"finding {finding_id}")
    return build_report(source, finding_id).encode()


def _judge(finding: StoredFinding) -> None:
    """What became of it, and why."""
    with st.form(f"judge-{finding.finding_id}", clear_on_submit=True):
        options = list(report.STATUS)
        status = st.radio(
            "Status",
            options,
            index=options.index(finding.status),
            format_func=lambda one: report.STATUS[one][0],
            horizontal=True,
        )
        note = st.text_area("Note", max_chars=LONGEST_NOTE)
        words = st.text_input("Hypothesis", finding.hypothesis, max_chars=LONGEST_HYPOTHESIS)
        if st.form_submit_button("Save"):
            author = require("manage").name
            number = finding.finding_id
            store().reword_finding(number, words, author=author)
            store().set_finding_status(number, status, author=author, note=note)
            st.rerun()


def _add_evidence(finding: StoredFinding, run: RunRecord) -> None:
    """Buttons for what is at hand: the run's diagnosis, and probes beside it."""
    answer = panel.load_answer(run)
    kept = [one.content for one in store().finding_history(finding.finding_id)]
    probes = [one for one in probes_of(panel.place_of(run.run_id)) if one not in kept]
    with st.expander("Add evidence"):
        if answer is not None and st.button("The run's diagnosis as it is now"):
            content = freeze_diagnosis(answer, finding.fault)
            author = require("manage").name
            store().add_evidence(finding.finding_id, "diagnosis", content, author=author)
            st.rerun()
        for number, content in enumerate(probes):
            if st.button(f"Answer of the probe {plain(content['probe'])}", key=f"probe-{number}"):
                author = require("manage").name
                store().add_evidence(finding.finding_id, "probe", content, author=author)
                st.rerun()
        st.caption(
            "Samples are added on the page *Samples*: choose some there, then this finding. The "
            "answers of probes are offered once `fedlens probe` has asked beside the run."
        )
        put_link("samples", "Choose samples", run=run.run_id)


def render() -> None:
    """Show the page."""
    st.title("Findings")
    with plain_errors():
        require("look")
        runs = all_runs()
        if not runs:
            st.info("**No runs yet.** The page *Runs* says how to start one.")
            return
        asked = _asked()
        if asked is None:
            _list(runs)
        else:
            _detail(asked)


PAGE = DashboardPage("Findings", ":material/bug_report:", "findings", 27, render)
