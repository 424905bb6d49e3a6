"""A diagnosis under way: its steps, cancelled, killed, silent, overtaken by newer sums."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import diagnosed
import populated
import pytest
from streamlit.testing.v1 import AppTest
from test_dashboard_diagnosis import FOUND, answered, page_text

from fedlens.dashboard import jobs as processes
from fedlens.dashboard.faults import jobs, panel
from fedlens.dashboard.faults.jobs import Diagnoses, DiagnosisJob, Question, RunPlace
from fedlens.dashboard.faults.panel import failed_card, progress_card
from fedlens.dashboard.jobs import explain_failure
from fedlens.diagnosis.steps import STEPS, DiagnosisStep, read_step
from fedlens.store import Store

Opener = Callable[..., AppTest]
WAITS = "import time; time.sleep(60)"


@pytest.fixture
def place(store_at: tuple[str, Store], tmp_path: Path) -> RunPlace:
    """A finished run whose folder is the store's."""
    populated.whole_run(store_at[1], "run-1")
    return diagnosed.folder_of(tmp_path)


@pytest.fixture
def says(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Has the command say lines, then do something; what is left running is ended."""

    def set_(*lines: str, then: str = WAITS) -> None:
        printed = "".join(f"print({line!r}, flush=True); " for line in lines)
        command = [sys.executable, "-c", printed + then]
        monkeypatch.setattr(jobs, "command_of", lambda _: command)

    yield set_
    for job in list(panel.diagnoses()._jobs.values()):  # also one that has not begun yet
        job.give_up("cancelled", "The test is over.")
        job.handle.end()
    panel.diagnoses.clear()
    for _ in range(100):
        processes.stop_all()
        if not processes.count_running():
            return
        time.sleep(0.05)


def until(true: Callable[[], object]) -> None:
    for _ in range(400):
        if true():
            return
        time.sleep(0.05)
    raise AssertionError("it never came to that")


def at(diagnoses: Diagnoses, question: Question, step: DiagnosisStep) -> DiagnosisJob:
    """Wait until a question's job is at a step."""
    until(lambda: (job := diagnoses.job(question)) is not None and job.step == step)
    job = diagnoses.job(question)
    assert job is not None
    return job


def test_a_step_survives_its_line_and_no_other_line_is_one() -> None:
    for name in STEPS:
        step = DiagnosisStep(name, 3, 7)
        assert read_step(step.to_line() + "\n") == step
    step = DiagnosisStep("look", said="words " * 100)
    assert read_step(step.to_line()) == DiagnosisStep("look", said=step.said[:300])
    for line in (
        "",
        "words",
        "[]",
        "3",
        "{}",
        '{"step": "elsewhere", "done": 0, "total": 0}',
        '{"step": "fits", "done": 8, "total": 7}',
        '{"step": "fits", "done": -1, "total": 7}',
        '{"step": "fits", "done": "x", "total": 7}',
        '{"step": "fits", "done": 1, "total": 1e99}',
        "[" * 100_000,
        json.dumps(diagnosed.said()),
    ):
        assert read_step(line) is None


def test_the_share_grows_from_step_to_step_up_to_the_whole() -> None:
    shares = [DiagnosisStep(name, done, 10).share for name in STEPS for done in (0, 5, 10)]
    assert shares == sorted(shares)
    assert (shares[0], round(shares[-1], 9)) == (0.0, 1.0)


def test_a_job_follows_the_commands_steps_and_its_last_line_is_the_answer(
    place: RunPlace, says: Callable[..., None]
) -> None:
    diagnoses, question = Diagnoses(), Question(place)
    lines = [
        DiagnosisStep("reference").to_line(),
        "other words",
        DiagnosisStep("look", said="looks like <b>dim</b>").to_line(),
        DiagnosisStep("fits", 57, 118).to_line(),
    ]
    go = place.path / "go"
    wait = f"import time, pathlib\nwhile not pathlib.Path({str(go)!r}).exists(): time.sleep(.02)"
    says(*lines, then=f"exec({wait!r}); print({json.dumps(diagnosed.said())!r})")
    diagnoses.ask(question, [], 10)
    job = at(diagnoses, question, DiagnosisStep("fits", 57, 118))
    assert job.state == "running"
    shown = progress_card(job)
    for expected in (
        "Trying every fault of the library: 57 of 118",
        'role="progressbar"',
        'aria-current="step"',
        f'aria-valuenow="{round(100 * job.share)}"',
        "First look, by few images:</b> looks like &lt;b&gt;dim&lt;/b&gt;. This is no finding",
    ):
        assert expected in shown
    assert shown.count('class="done"') == 3
    go.touch()
    answered(diagnoses, question)
    assert diagnoses.job(question) is None and diagnoses.answer(question) is not None


def test_a_running_one_is_cancelled_by_name_and_keeps_nothing(
    open_page: Opener, place: RunPlace, says: Callable[..., None]
) -> None:
    says(DiagnosisStep("evidence").to_line())
    app = open_page("diagnosis", run="run-1")
    question = Question(place)
    at(panel.diagnoses(), question, DiagnosisStep("evidence"))
    app.run()
    assert "Reading the released sums" in page_text(app)
    app.button(key="diagnose_cancel").click().run()
    text = page_text(app)
    assert "The diagnosis was cancelled" in text and "By tester. Nothing of it was kept." in text
    until(lambda: not processes.count_running())
    assert panel.diagnoses().answer(question) is None
    assert "cancelled" in page_text(open_page("diagnosis", run="run-1")), "not begun by itself"
    says(then=f"print({json.dumps(FOUND)!r})")
    app.button(key="diagnose_again").click().run()
    until(lambda: panel.diagnoses().answer(question))
    assert "Turned left" in page_text(open_page("diagnosis", run="run-1"))


def test_one_that_waits_is_cancelled_and_never_begins(
    place: RunPlace, says: Callable[..., None]
) -> None:
    says()
    diagnoses = Diagnoses()
    first, second = Question(place), Question(place, "mnist")
    running = diagnoses.ask(first, [], 10)
    until(lambda: running.state == "running" and processes.count_running())
    waiting = diagnoses.ask(second, [], 10)
    assert waiting.state == "waiting"
    assert diagnoses.cancel(second, "ada") and not diagnoses.cancel(second, "ben")
    assert diagnoses.cancel(first, "ada")
    until(lambda: not processes.count_running())
    time.sleep(0.2)
    assert (waiting.state, waiting.why, waiting.step) == ("cancelled", "By ada.", None)
    assert not processes.count_running()


@pytest.mark.parametrize("role", ["viewer", "annotator", "reviewer"])
def test_roles_that_spend_nothing_cancel_nothing(
    open_page: Opener,
    place: RunPlace,
    store_at: tuple[str, Store],
    says: Callable[..., None],
    role: str,
) -> None:
    store_at[1].add_account("boss", "admin", actor="test")
    store_at[1].add_account("tester", role, actor="test")  # type: ignore[arg-type]
    says()
    app = open_page("diagnosis", run="run-1")
    assert "diagnose_cancel" not in [one.key for one in app.button]


def test_a_killed_one_says_one_clear_sentence(
    open_page: Opener, place: RunPlace, says: Callable[..., None]
) -> None:
    says(
        DiagnosisStep("fits", 3, 118).to_line(),
        then="import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    )
    open_page("diagnosis", run="run-1")
    answered(panel.diagnoses(), Question(place))
    text = page_text(open_page("diagnosis", run="run-1"))
    assert "The system ended it (SIGKILL) before it was done" in text
    assert "It was at: trying every fault of the library: 3 of 118." in text
    assert "Traceback" not in text


def test_a_signals_name_is_said_where_it_has_one() -> None:
    assert "(SIGSEGV)" in explain_failure(-signal.SIGSEGV, "")
    assert "(signal 250)" in explain_failure(-250, "")


def test_one_that_is_silent_for_long_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    job = DiagnosisJob(state="running", step=DiagnosisStep("findings"))
    assert "No sign of it" not in progress_card(job)
    monkeypatch.setattr(job, "heard", job.heard - 200)
    shown = progress_card(job)
    assert "No sign of it for 3:2" in shown and 'role="alert"' in shown
    job.give_up("failed", "<b>")
    job.give_up("cancelled", "later")
    assert job.state == "failed" and "&lt;b&gt;" in failed_card(job)


def test_sums_that_are_released_meanwhile_are_another_question(
    place: RunPlace, says: Callable[..., None]
) -> None:
    """The answer is kept as that to what was asked, and the job does not stay for ever."""
    diagnoses, question = Diagnoses(), Question(place)
    before = question.kept_at
    more = place.path / "releases" / "round-000002.safetensors"
    says(then=f"open({str(more)!r}, 'wb').write(b'more'); print({json.dumps(FOUND)!r})")
    job = diagnoses.ask(question, [], 10)
    until(lambda: before.exists())
    assert question.kept_at != before
    until(lambda: diagnoses.job(question) is None)
    assert diagnoses.answer(question) is None and not diagnoses._jobs
    assert job.state == "running"
    earlier = diagnoses.earlier(question)
    assert earlier is not None and earlier.findings
    assert diagnoses.earlier(Question(place, "mnist")) is None


@pytest.mark.parametrize("last", ["[1]", "3", "null", '{"findings": [1]}', "words"])
def test_a_last_line_that_is_no_answer_ends_the_job(
    place: RunPlace, says: Callable[..., None], last: str
) -> None:
    says(last, then="")
    job = Diagnoses().ask(Question(place), [{"png": "", "label": 0}], 10)
    until(lambda: job.over)
    assert job.state == "failed" and job.why


def test_a_run_that_goes_on_is_looked_at_once_at_a_time_and_as_it_is_when_its_turn_comes(
    place: RunPlace, says: Callable[..., None]
) -> None:
    """Or each round that is released while one is under way would have another one wait."""
    says(then=f"import time; time.sleep(1); print({json.dumps(FOUND)!r})")
    diagnoses, question = Diagnoses(), Question(place)
    first = diagnoses.ask(Question(place, "mnist"), [], 10)
    until(lambda: first.state == "running")
    waiting = diagnoses.ask(question, [], 10)
    before = question.kept_at
    (place.path / "releases" / "round-000002.safetensors").write_bytes(b"more sums")
    assert question.kept_at != before
    assert diagnoses.job(question) is waiting and waiting.state == "waiting"
    assert diagnoses.ask(Question(place), [], 10) is waiting
    until(lambda: not diagnoses._jobs)
    assert diagnoses.answer(question) is not None and not before.exists()


@pytest.mark.parametrize("status", ["running", "finished"])
@pytest.mark.law("7: a finding keeps its history")
def test_an_answer_of_earlier_sums_is_shown_as_such(
    open_page: Opener,
    place: RunPlace,
    store_at: tuple[str, Store],
    says: Callable[..., None],
    status: str,
) -> None:
    store_at[1].set_run_status("run-1", status)  # type: ignore[arg-type]
    diagnosed.keep(place, FOUND)
    (place.path / "releases" / "round-000002.safetensors").write_bytes(b"more sums")
    says()
    text = page_text(app := open_page("diagnosis", run="run-1"))
    assert "Turned left" in text
    if status == "running":
        assert "The run has released more since" in text
        assert panel.diagnoses().job(Question(place)) is None, "not begun by itself"
        app.button(key="diagnose_anew").click().run()
    assert "Under way" in page_text(app)
