"""Students of a project on the page of results: one click, how far it is, and the curve.

The dashboard loads no training code. It runs ``fedlens student --curve``, one at a time, and keeps
its answer in the run's folder.
"""

from __future__ import annotations

import json
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import altair as alt
import streamlit as st

from fedlens.dashboard.access.account import account, require
from fedlens.dashboard.access.session import plain_errors, store_url
from fedlens.dashboard.faults import panel
from fedlens.dashboard.faults.jobs import RunPlace
from fedlens.dashboard.jobs import CommandFailed, Job, Jobs
from fedlens.dashboard.widgets.display import frame
from fedlens.dashboard.widgets.markup import plain
from fedlens.store import StoredProject
from fedlens.store.engine import locate

FOLDER = "students"
FORMAT = "fedlens-students-1"
MOST_SECONDS = 3600
SHARES = 4
"""Students of a curve."""
_LAST = 300
_TURN = threading.Lock()


@dataclass(frozen=True)
class ProjectLabels:
    """Whose labels teach students of which run."""

    run: RunPlace
    project_id: int
    project: str
    store: str = ""
    """Path of the store; empty for the one that the run remembers."""

    @property
    def kept_at(self) -> Path:
        """The file that holds the last answer, once there is one."""
        return self.run.path / FOLDER / f"project-{self.project_id}.json"

    @property
    def command(self) -> list[str]:
        """What trains and tests; names are single arguments that cannot be taken for flags."""
        command = [sys.executable, "-m", "fedlens.cli", "student", str(self.run.path.absolute())]
        command += [f"--project={self.project}", "--curve", "--json"]
        return [*command, f"--store={self.store}"] if self.store else command


@dataclass(frozen=True)
class StudentCurve:
    """How well students do by how many labels they learned from."""

    curve: tuple[tuple[int, float], ...]
    """Number of labels and share of test images that are right, the fewest labels first."""
    tested_on: str
    """Which images, in words."""
    simulation_only: bool
    """Whether the test images are in no budget."""


@dataclass
class TrainingJob(Job):
    """Training that is under way, or came to nothing."""

    done: list[str] = field(default_factory=list)
    """What each student that is trained has reached, in words."""

    def hear(self, line: str) -> None:
        """Take up a line of its output."""
        super().hear(line)
        if line.rstrip().endswith(" labels"):
            self.done.append(line.strip()[:_LAST])


class StudentJobs(Jobs[ProjectLabels, TrainingJob]):
    """All training of this server."""

    def __init__(self) -> None:
        super().__init__(_TURN)
        self._here: dict[Path, StudentCurve] = {}
        """What a folder that cannot be written to could not keep."""

    def taught(self, labels: ProjectLabels) -> StudentCurve | None:
        """What is kept, if there is anything that can be read."""
        try:
            content = json.loads(labels.kept_at.read_text(encoding="utf-8"))
            # Another store over the same run counts its projects from 1 too.
            if content["format"] == FORMAT and content.get("project") in (None, labels.project):
                return read_students(content["students"])
        except (OSError, ValueError, KeyError, TypeError):
            pass
        return self._here.get(labels.kept_at)

    def ask(self, labels: ProjectLabels) -> TrainingJob:
        """Have students trained, unless that is under way already."""
        return self._start(labels, TrainingJob(), lambda job: self._work(labels, job))

    def _work(self, labels: ProjectLabels, job: TrainingJob) -> bool:
        try:
            said = json.loads(job.run_command(labels.command, most_seconds=MOST_SECONDS))
            students = read_students(said)
        except (ValueError, KeyError, TypeError):
            raise CommandFailed("Its last line was no answer of this version.") from None
        if not _keep(labels, said):
            self._here[labels.kept_at] = students
        return True


def read_students(said: Any) -> StudentCurve:
    """The command's object.

    Raises:
        KeyError, TypeError, ValueError: it is another one.
    """
    return StudentCurve(
        curve=tuple((int(one["labels"]), float(one["student_accuracy"])) for one in said["curve"]),
        tested_on=str(said["tested_on"]),
        simulation_only=bool(said["simulation_only"]),
    )


def _keep(labels: ProjectLabels, said: Any) -> bool:
    path = labels.kept_at
    kept = {"format": FORMAT, "project": labels.project, "students": said}
    try:
        path.parent.mkdir(exist_ok=True)
        part = path.with_suffix(".part")
        part.write_text(json.dumps(kept), encoding="utf-8")
        part.replace(path)
    except OSError:
        return False
    return True


REFRESH_SECONDS = 2
SIMULATION = (
    "**Simulation only**: tested on {tested_on}, whose use is in no ledger and no budget. A "
    "federation with real users has no such images on the server."
)


UNDER_WAY = (
    "**Simulation only** where tested on real images, whose use is in no ledger and no budget; "
    "where none has such names, tested on labelled samples that are kept back."
)


@st.cache_resource(show_spinner=False)
def student_jobs() -> StudentJobs:
    """All training of this server."""
    return StudentJobs()


def labels_of(project: StoredProject) -> ProjectLabels | None:
    """What students of a project are trained from; ``None`` where the run's folder is elsewhere."""
    place = panel.place_of(project.run_id)
    if place is None:
        return None
    # A file's path alone: another store's URL may hold a password, which others would see.
    own = locate(store_url()).path
    path = "" if own is None else str(own.absolute())
    return ProjectLabels(place, project.project_id, project.name, path)


def render_students(project: StoredProject, answered: int) -> None:
    """Put the section on the page.

    Args:
        project: whose labels teach.
        answered: how many samples have an answer now.
    """
    st.markdown("#### Student accuracy")
    labels = labels_of(project)
    if labels is None:
        st.caption(
            "The folder of the project's run was not found on this machine, so no student can be "
            "trained here. FEDLENS_RUNS may name the folder that holds run folders."
        )
        return
    job, taught = student_jobs().job(labels), student_jobs().taught(labels)
    if taught is not None:
        _curve(taught)
    if job is not None and job.state != "failed":
        _waiting(labels)
        return
    if job is not None:
        st.warning(f"Training ended with an error: {plain(job.why)}")
    if account().may("manage"):
        words = "Train a student from these labels" if taught is None else "Train anew"
        about = f"On a tenth, a quarter, half and all of {answered:,} samples; some minutes."
        if st.button(words, key="train_student", icon=":material/school:", help=about):
            require("manage")
            student_jobs().ask(labels)
            st.rerun()
    elif taught is None:
        st.caption("Engineers and admins train students from labels.")


@st.fragment(run_every=REFRESH_SECONDS)
def _waiting(labels: ProjectLabels) -> None:
    with plain_errors():
        require("look")
        job = student_jobs().job(labels)
        if job is None or job.state == "failed":
            st.rerun()
            return
        clock = f"{job.seconds // 60}:{job.seconds % 60:02d}"
        doing = "Waiting for another training" if job.state == "waiting" else "Training students"
        done = len(job.done)
        st.progress(min(1.0, done / SHARES), text=f"{doing}: {done} of {SHARES} trained, {clock}")
        for line in job.done:
            st.caption(line)
        if job.done:
            st.caption(UNDER_WAY)


def _curve(taught: StudentCurve) -> None:
    most, best = taught.curve[-1]
    st.metric(f"Accuracy with {most:,} labels", f"{best:.1%}")
    rows = frame([{"labels": labels, "accuracy": right} for labels, right in taught.curve])
    base = alt.Chart(rows).encode(
        alt.X("labels:Q", title="labels"),
        alt.Y("accuracy:Q", title="test images right", axis=alt.Axis(format="%")),
        tooltip=["labels", alt.Tooltip("accuracy:Q", format=".1%")],
    )
    chart = base.mark_line(point=True).properties(height=220)
    st.altair_chart(chart, alt="Line chart of students' accuracy against the number of labels")
    if taught.simulation_only:
        st.caption(SIMULATION.format(tested_on=taught.tested_on))
