"""A run's diagnosis on any page: its question, its answer, or how far it is."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import lru_cache

import streamlit as st

from fedlens.dashboard.access.session import Pins, pinned_reference, store, store_url
from fedlens.dashboard.faults.answer import DiagnosisAnswer
from fedlens.dashboard.faults.jobs import (
    QUIET_SECONDS,
    Diagnoses,
    DiagnosisJob,
    Question,
    RunPlace,
    list_places,
)
from fedlens.dashboard.samples.batches import load_examples
from fedlens.dashboard.samples.filters import classes_of
from fedlens.dashboard.widgets.markup import text
from fedlens.diagnosis.steps import STEPS
from fedlens.diagnosis.stored_answers import is_public
from fedlens.store import RunRecord


def progress_card(job: DiagnosisJob) -> str:
    """A diagnosis that is under way or waits for its turn."""
    if job.state == "waiting":
        title, below = "Waiting for another diagnosis", ""
    else:
        title, below = _step(job), _progress_bar(job) + _list(job)
    return (
        f'<div role="status"><p class="over">Under way, {clock(job.seconds)}</p>'
        f"<h2>{text(title)}</h2>{_look(job)}</div>{below}{_quiet(job)}"
        '<p class="quiet">Usually less than a minute. You may leave this page: the answer is '
        "kept.</p>"
    )


def _look(job: DiagnosisJob) -> str:
    """What stands out at first sight, which is no finding."""
    if not job.look:
        return ""
    return (
        f"<p><b>First look, by few images:</b> {text(job.look)}. This is no finding: the whole "
        "answer follows, and may be another.</p>"
    )


def _step(job: DiagnosisJob) -> str:
    return "Starting" if job.step is None else job.step.words


def _progress_bar(job: DiagnosisJob) -> str:
    percent = round(100 * job.share)
    return (
        f'<div class="meter" role="progressbar" aria-label="Diagnosis" aria-valuemin="0" '
        f'aria-valuemax="100" aria-valuenow="{percent}"><i style="width:{percent}%"></i></div>'
    )


def _list(job: DiagnosisJob) -> str:
    """All steps, those that are done ticked off."""
    place = 0 if job.step is None else job.step.place
    items = []
    for number, words in enumerate(STEPS.values(), start=1):
        kind = "done" if number < place else "now" if number == place else ""
        current = ' aria-current="step"' if kind == "now" else ""
        items.append(f'<li class="{kind}"{current}>{text(words)}</li>')
    return f'<ol class="steps">{"".join(items)}</ol>'


def _quiet(job: DiagnosisJob) -> str:
    """What is said of one that has not been heard of for long."""
    if job.state != "running" or job.quiet_seconds < QUIET_SECONDS:
        return ""
    return (
        f'<p role="alert"><b>No sign of it for {clock(job.quiet_seconds)}.</b> The machine may be '
        "busy, or it hangs: cancel it and try again.</p>"
    )


def failed_card(job: DiagnosisJob) -> str:
    """One that ended with an error, or was killed."""
    at = "" if job.step is None else f" It was at: {job.step.words.lower()}."
    return (
        '<p class="over">No answer</p><h2>The diagnosis ended with an error</h2>'
        f"<p>{text(job.why)}{text(at)}</p>"
    )


def cancelled_card(job: DiagnosisJob) -> str:
    """One that was ended before it was done."""
    return (
        '<p class="over">No answer</p><h2>The diagnosis was cancelled</h2>'
        f"<p>{text(job.why)} Nothing of it was kept.</p>"
    )


def stale_card() -> str:
    """The answer below is of fewer sums than the run has released."""
    return (
        '<p class="over">Of earlier sums</p><h2>The run has released more since</h2><p>What stands '
        "below was found in the sums that it had released before.</p>"
    )


def clock(seconds: int) -> str:
    """Minutes and seconds."""
    return f"{seconds // 60}:{seconds % 60:02d}"


ENDED = ("finished", "stopped-by-budget")


@st.cache_resource(show_spinner=False)
def diagnoses() -> Diagnoses:
    """All diagnoses of this server."""
    return Diagnoses()


PLACES_SECONDS = 5


@lru_cache(maxsize=4)
def _run_places(url: str, _turn: int) -> Mapping[str, RunPlace]:
    return list_places(url)


def run_places(url: str) -> Mapping[str, RunPlace]:
    """The runs' folders by run id, looked for at most every five seconds."""
    return _run_places(url, int(time.monotonic() / PLACES_SECONDS))


def forget_places() -> None:
    """Look for the runs' folders anew."""
    _run_places.cache_clear()


def place_of(run_id: str) -> RunPlace | None:
    """The run's folder, if it lies on this machine."""
    return run_places(store_url()).get(run_id)


def pinned_place(run: RunRecord, pins: Pins | None = None) -> RunPlace | None:
    """The folder of the run that is pinned as this one's reference, if it can be compared with."""
    pinned = pinned_reference(run, pins)
    place = None if pinned is None else place_of(pinned)
    return place if place is not None and place.releases() else None


def has_public_data(run: RunRecord) -> bool:
    """Whether a run may be compared with the test images of its own data, unasked."""
    return is_public(str(run.config.get("data.name", run.data_name)))


def load_answer(run: RunRecord, pins: Pins | None = None) -> DiagnosisAnswer | None:
    """The answer of a run that is kept.

    Against the pinned reference run, or else against the test images of its own data, if public.

    Args:
        run: whose answer.
        pins: of the workspace, where they are known already.
    """
    place = place_of(run.run_id)
    if place is None or not place.releases():
        return None
    pinned = pinned_place(run, pins)
    against = None if pinned is None else diagnoses().answer(Question(place, str(pinned.path)))
    if against is not None or not has_public_data(run):
        return against
    return diagnoses().answer(Question(place))


def ask(run: RunRecord, question: Question) -> DiagnosisJob:
    """Have a question answered in the background."""
    classes = classes_of(run.run_id)
    shown = load_examples(store(), run.run_id, classes)
    return diagnoses().ask(question, shown, max(classes, default=0) + 1)


def look(run: RunRecord) -> DiagnosisAnswer | None:
    """The kept answer of a run that has ended; where there is none yet, it is asked for."""
    answer = load_answer(run)
    place = place_of(run.run_id)
    asked = run.status in ENDED and has_public_data(run) and not run.is_probe
    if answer is None and place and place.releases() and asked:
        question = Question(place)
        if diagnoses().job(question) is None:
            ask(run, question)
    return answer


def under_way(run_id: str) -> bool:
    """Whether the run is being looked at."""
    if not diagnoses().count_open():
        return False
    place = place_of(run_id)
    job = diagnoses().job(Question(place)) if place and place.releases() else None
    return job is not None and not job.over


def hint(run: RunRecord, pins: Pins | None = None) -> tuple[str, str]:
    """The answer in a few words and its colour; nothing before the first look."""
    answer = load_answer(run, pins)
    if answer is None:
        return ("looking for faults …" if under_way(run.run_id) else ""), ""
    if not answer.fits:
        return answer.hint, "bad"
    return answer.hint, "found" if answer.findings else "good"
