"""Diagnosis: which fault users' data has, in what share of them, and what could not be seen."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from fedlens.dashboard.access.account import account, require
from fedlens.dashboard.access.session import (
    RUN_PARAMETER,
    all_runs,
    nearby,
    pick_run,
    pinned_reference,
    plain_errors,
    store,
    store_url,
)
from fedlens.dashboard.faults import cards, panel, probes, report
from fedlens.dashboard.faults.answer import DiagnosedFault, DiagnosisAnswer
from fedlens.dashboard.faults.evidence import freeze_diagnosis, hypothesis_of
from fedlens.dashboard.faults.jobs import DiagnosisJob, Question, RunPlace
from fedlens.dashboard.faults.panel import cancelled_card, failed_card, progress_card, stale_card
from fedlens.dashboard.samples.filters import classes_of
from fedlens.dashboard.summary.badges import privacy_warning
from fedlens.dashboard.widgets.display import put_card
from fedlens.dashboard.widgets.pages import DashboardPage, put_link
from fedlens.diagnosis.stored_answers import PUBLIC
from fedlens.store import FindingRecord, RunRecord

REFRESH_SECONDS = 2
AGAINST = "against"
"""Of the address: the reference."""
OWN = "own"
"""Instead of a reference's name: the public test images of the run's own data."""
NONE_YET = "none-yet"
"""Instead of one where the run's data are not public, so that nothing may be taken unasked."""
CHOOSE = (
    "**Choose what the run is compared with.** Its own data are not known to be public, and a "
    "diagnosis that looked at their test images would be in no budget: take an earlier run of the "
    "same federation, or public records of the same kind."
)
WHAT = (
    "Compares the noisy sums that this run already released with what users of public records "
    "would have released, sound and under each fault of a library. Looking again costs no privacy."
)


def references(run: RunRecord, places: Mapping[str, RunPlace]) -> dict[str, str]:
    """What a run may be compared with, in words, by what the command calls it.

    The default stands first: the pinned reference run, or else the run's own data.
    """
    pinned = panel.pinned_place(run)
    first = {} if pinned is None else {str(pinned.path): f"Pinned reference run {pinned.name}"}
    own = {OWN: f"Test images of {run.data_name}, public"}
    if not panel.has_public_data(run):
        own = {} if first else {NONE_YET: "Nothing yet"}
    others = {name: f"Test images of {name}, public" for name in PUBLIC if name != run.data_name}
    earlier = {
        str(place.path): f"Earlier run {place.name}"
        for run_id, place in places.items()
        if run_id != run.run_id and place.releases()
    }
    return first | own | {**earlier, **first} | others


def _reference(run: RunRecord) -> str:
    answers = {one.run_id for one in all_runs() if one.is_probe}
    places = panel.run_places(store_url())
    offered = references(run, {one: at for one, at in places.items() if one not in answers})
    ids = list(offered)
    asked = st.query_params.get(AGAINST, "")
    chosen = st.selectbox(
        "Compared with",
        ids,
        index=ids.index(asked) if asked in offered else 0,
        format_func=lambda one: offered[one],
        key=f"reference-{run.run_id}",
    )
    if chosen != ids[0]:
        st.query_params[AGAINST] = chosen
    elif AGAINST in st.query_params:
        del st.query_params[AGAINST]
    return "" if chosen == OWN else chosen


def _unreadable(run: RunRecord, place: RunPlace | None) -> str | None:
    """Why a run cannot be diagnosed, with the fix; None where it can."""
    if run.is_probe:
        return (
            "A probe asks one question. Its answer is in the diagnosis of the run that was asked."
        )
    if place is None:
        return (
            "The folder of this run was not found. Start the dashboard on the machine that has it, "
            "on a folder above it: fedlens dashboard FOLDER."
        )
    if place.releases():
        return None
    if run.status == "running":
        return "The first sums are released after the warm-up; this page then begins by itself."
    if run.unit != "user":
        return "The run protects records, not users: it keeps no sums over users."
    return "The run kept no released sums: it has a privatizer, or no noise."


@st.fragment(run_every=REFRESH_SECONDS)
def _waiting(question: Question) -> None:
    with plain_errors():
        require("look")
        job = panel.diagnoses().job(question)
        if job is None or job.over:
            st.rerun()
            return
        put_card(progress_card(job))


def _cancel(question: Question) -> None:
    """Beside what renews itself, so that the button is not drawn anew under the pointer."""
    if account().may("manage") and st.button(
        "Cancel", key="diagnose_cancel", icon=":material/cancel:"
    ):
        panel.diagnoses().cancel(question, require("manage").name)
        st.rerun()


def _ended(run: RunRecord, question: Question, job: DiagnosisJob) -> None:
    """Nothing came of it: why, and a way to begin again."""
    if job.state == "cancelled":
        put_card(cancelled_card(job))
    else:
        put_card(failed_card(job), "refused")
    if st.button("Try again", key="diagnose_again"):
        require("look")
        panel.ask(run, question)
        st.rerun()


def _answer(run: RunRecord, question: Question) -> None:
    answer, job = panel.diagnoses().answer(question), panel.diagnoses().job(question)
    if answer is not None:
        _shown(run, question, answer)
        return
    earlier = panel.diagnoses().earlier(question)
    if job is None and (earlier is None or run.status in panel.ENDED):
        job = panel.ask(run, question)
    if job is None:
        _stale(run, question)
    elif job.over:
        _ended(run, question, job)
    else:
        _waiting(question)
        _cancel(question)
    if earlier is not None:
        _shown(run, question, earlier)


def _stale(run: RunRecord, question: Question) -> None:
    """A run that goes on has released more since: its sums are looked at when asked for."""
    put_card(stale_card())
    if st.button("Look at the newest sums", key="diagnose_anew"):
        require("look")
        panel.ask(run, question)
        st.rerun()


def _shown(run: RunRecord, question: Question, answer: DiagnosisAnswer) -> None:
    """The answer, each fault with what users said of it and a way to keep it as a finding."""
    classes = len(classes_of(run.run_id))
    found = answer.findings if answer.fits else ()
    if not found:
        put_card(*cards.verdict_card(answer))
    for finding in found:
        put_card(cards.finding_card(finding, answer, classes), "found")
        probes.render_answers(finding, question.run)
        _keep(run, question.run, finding, answer)
    if found:
        probes.render_probe(found[0], run, question.run, nearby(str(question.run.path)))
    for inner in cards.remaining_cards(answer):
        put_card(inner)


def _keep(
    run: RunRecord, place: RunPlace, finding: DiagnosedFault, answer: DiagnosisAnswer
) -> None:
    """A link to the finding that was kept of this fault, or a button that keeps one.

    What users have answered about it by then is kept with it.
    """
    fault, hypothesis = finding.fault or None, hypothesis_of(finding)
    alike = [one for one in store().findings(run_id=run.run_id) if one.fault == fault]
    there = [one for one in alike if fault or one.hypothesis == hypothesis]
    if there:
        number, status = there[0].finding_id, report.STATUS[there[0].status][0].lower()
        about = f"Finding {number}: {status}"
        put_link(
            "findings", about, icon=":material/bug_report:", finding=str(number), run=run.run_id
        )
    elif account().may("manage") and st.button(
        "Keep as a finding", key=f"keep-{finding.fault}", icon=":material/bug_report:"
    ):
        author = require("manage").name
        record = FindingRecord(run_id=run.run_id, hypothesis=hypothesis, fault=fault)
        kept = freeze_diagnosis(answer, finding.fault)
        number = store().add_finding(record, author=author, diagnosis=kept)
        for content in probes.answers_to(finding, place):
            store().add_evidence(number, "probe", content, author=author)
        st.rerun()


def _links(run: RunRecord) -> None:
    with st.container(horizontal=True):
        for page, label in (
            ("samples", "Look at the samples"),
            ("compare", "Compare with another run"),
            ("run", "The run's figures"),
        ):
            put_link(page, label, run=run.run_id)
        sound = pinned_reference(run)
        if sound is not None:
            more = {RUN_PARAMETER: run.run_id, "with": sound}
            put_link("compare", "Compare with the pinned sound run", **more)


def render() -> None:
    """Show the page."""
    st.title("Diagnosis")
    with plain_errors():
        runs = all_runs()
        if not runs:
            st.info("**No runs yet.** The page *Runs* says how to start one.")
            return
        left, right = st.columns(2)
        with left:
            run = pick_run(runs)
        with right:
            reference = _reference(run)
        privacy_warning(run)
        st.caption(WHAT)
        place = panel.place_of(run.run_id)
        why = _unreadable(run, place)
        if why is not None or place is None:
            st.info(why or "")
            return
        if reference == NONE_YET:
            st.info(CHOOSE)
            return
        _answer(run, Question(place, reference))
        _links(run)


PAGE = DashboardPage("Diagnosis", ":material/troubleshoot:", "diagnosis", 25, render)
