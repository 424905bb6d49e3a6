"""How far a diagnosis is, as cards: its steps with a bar, or why nothing came of it."""

from __future__ import annotations

from fedlens.dashboard.faults.jobs import QUIET_SECONDS, DiagnosisJob
from fedlens.dashboard.widgets.markup import text
from fedlens.diagnosis.steps import STEPS


def progress_card(job: DiagnosisJob) -> str:
    """A diagnosis that is under way or waits for its turn."""
    if job.state == "waiting":
        title, below = "Waiting for another diagnosis", ""
    else:
        title, below = _step(job), _progress_bar(job) + _list(job)
    return (
        f'<div role="status"><p class="over">Under way, {clock(job.seconds)}</p>'
        f"<h2>{text(title)}</h2></div>{below}{_quiet(job)}"
        '<p class="quiet">Usually one to three minutes. You may leave this page: the answer is '
        "kept.</p>"
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
