"""One click trains students from labels: apart, once at a time, kept, and said to be simulation."""

from __future__ import annotations

import json
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import diagnosed
import populated
import pytest
from streamlit.testing.v1 import AppTest
from test_dashboard_diagnosis import page_text

from fedlens.dashboard import jobs as processes
from fedlens.dashboard.faults.jobs import RunPlace
from fedlens.dashboard.labelling.students import ProjectLabels, StudentJobs
from fedlens.store import Annotation, Store

Opener = Callable[..., AppTest]
SAID = {
    "tested_on": "real test images of embedded",
    "simulation_only": True,
    "curve": [
        {"labels": 3, "student_accuracy": 0.41},
        {"labels": 30, "student_accuracy": 0.83},
    ],
}
TRAINS = [
    sys.executable,
    "-c",
    f"print('41.0% right, trained on 3 labels'); print('words'); print({json.dumps(SAID)!r})",
]


@pytest.fixture
def project(store_at: tuple[str, Store], tmp_path: Path) -> int:
    """Ten answers to a finished run's project; the run's folder is the store's."""
    store = store_at[1]
    populated.whole_run(store, "run-1")
    diagnosed.folder_of(tmp_path)
    number = populated.add_project(store, "run-1")
    user, labels = store.ensure_user("ann"), store.labels(number)
    for sample in store.queue(number, user, 10):
        answer = Annotation(
            client_uuid=str(uuid.uuid4()),
            project_id=number,
            sample_id=sample.sample_id,
            user_id=user,
            label_id=labels[sample.requested_class].label_id,
        )
        store.annotate(answer)
    return number


def wait_for(jobs: StudentJobs, labels: ProjectLabels) -> None:
    """Until nothing is under way."""
    for _ in range(200):
        job = jobs.job(labels)
        if job is None or job.state == "failed":
            return
        time.sleep(0.05)
    raise AssertionError("still under way")


def command(monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    monkeypatch.setattr(ProjectLabels, "command", property(lambda _: words))


def test_training_runs_apart_once_and_its_curve_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command(monkeypatch, TRAINS)
    jobs, labels = StudentJobs(), ProjectLabels(diagnosed.folder_of(tmp_path), 7, "digits")
    assert jobs.taught(labels) is None
    job = jobs.ask(labels)
    assert jobs.ask(labels) is job or job.state != "running"
    wait_for(jobs, labels)
    assert job.done == ["41.0% right, trained on 3 labels"]
    taught = StudentJobs().taught(labels)
    assert taught is not None and taught.curve == ((3, 0.41), (30, 0.83))


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (
            "import sys; sys.stderr.write('a\\nfedlens: no sample has a class\\n'); sys.exit(1)",
            "no sample",
        ),
        ("print('{}')", "no answer of this version"),
        ("import os; os.kill(os.getpid(), 9)", "SIGKILL"),
    ],
)
def test_training_that_fails_says_why_in_a_line_and_may_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, why: str
) -> None:
    command(monkeypatch, [sys.executable, "-c", code])
    jobs, labels = StudentJobs(), ProjectLabels(diagnosed.folder_of(tmp_path), 7, "digits")
    first = jobs.ask(labels)
    wait_for(jobs, labels)
    assert first.state == "failed" and why in first.why
    assert jobs.ask(labels) is not first
    wait_for(jobs, labels)


def test_a_server_that_ends_leaves_no_training_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command(monkeypatch, [sys.executable, "-c", "import time; time.sleep(600)"])
    jobs, labels = StudentJobs(), ProjectLabels(diagnosed.folder_of(tmp_path), 7, "digits")
    job = jobs.ask(labels)
    while not processes.count_running():
        time.sleep(0.02)
    threading.Timer(0.1, processes.stop_all).start()
    wait_for(jobs, labels)
    assert job.state == "failed"


def test_a_project_s_name_is_never_a_flag_and_no_password_is_on_the_command_line() -> None:
    labels = ProjectLabels(RunPlace("r", Path("/a b;c")), 1, "--out=/etc", "/x/store.db")
    assert "--project=--out=/etc" in labels.command and "/a b;c" in labels.command
    assert "--store=/x/store.db" in labels.command
    assert not any(one.startswith("--store") for one in ProjectLabels(labels.run, 1, "p").command)


def test_an_engineer_s_click_trains_and_the_page_shows_the_curve(
    open_page: Opener, project: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command(monkeypatch, TRAINS)
    app = open_page("results", project=str(project))
    app.button(key="train_student").click().run()
    kept = ProjectLabels(RunPlace("run-1", tmp_path), project, "").kept_at
    for _ in range(100):
        if kept.exists():
            break
        time.sleep(0.05)
    app = open_page("results", project=str(project))
    assert "Simulation only" in page_text(app)
    assert [one.value for one in app.metric if one.label.startswith("Accuracy with")] == ["83.0%"]
    assert app.button(key="train_student").label == "Train anew"


def test_reviewers_see_the_curve_and_no_button(
    open_page: Opener, project: int, store_at: tuple[str, Store]
) -> None:
    store_at[1].add_account("boss", "admin", actor="test")
    store_at[1].add_account("tester", "reviewer", actor="test")
    app = open_page("results", project=str(project))
    assert "Engineers and admins train" in page_text(app)
    assert not [one for one in app.button if one.key == "train_student"]


def test_a_curve_of_another_store_s_project_is_not_shown(tmp_path: Path, monkeypatch) -> None:
    """Another store over the same run counts its projects from 1 too."""
    command(monkeypatch, TRAINS)
    jobs, run = StudentJobs(), diagnosed.folder_of(tmp_path)
    mine = ProjectLabels(run, 1, "digits")
    jobs.ask(mine)
    wait_for(jobs, mine)
    assert StudentJobs().taught(mine) is not None
    assert StudentJobs().taught(ProjectLabels(run, 1, "shoes", "/elsewhere/store.db")) is None
