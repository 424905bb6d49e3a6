"""Training under way and what came of it: one at a time, each in a process of its own.

The dashboard loads no training code. It runs ``fedlens student --curve`` and keeps its answer in
the run's folder.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fedlens.dashboard.faults.places import RunPlace
from fedlens.dashboard.processes import CommandFailed, followed

FOLDER = "students"
FORMAT = "fedlens-students-1"
MOST_SECONDS = 3600
SHARES = 4
"""Students of a curve."""
_LAST = 300
# Of the whole program: any visitor can make Streamlit forget the object that holds the jobs.
_TURN = threading.Lock()
TrainingState = Literal["waiting", "running", "failed"]


@dataclass(frozen=True)
class LabelsOfProject:
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
class TaughtStudents:
    """How well students do by how many labels they learned from."""

    curve: tuple[tuple[int, float], ...]
    """Number of labels and share of test images that are right, the fewest labels first."""
    tested_on: str
    """Which images, in words."""
    simulation_only: bool
    """Whether the test images are in no budget."""


@dataclass
class TrainingJob:
    """Training that is under way, or came to nothing."""

    state: TrainingState = "waiting"
    began: float = field(default_factory=time.monotonic)
    done: list[str] = field(default_factory=list)
    """What each student that is trained has reached, in words."""
    why: str = ""
    """What went wrong, in one sentence."""

    @property
    def seconds(self) -> int:
        """Since it was asked for."""
        return int(time.monotonic() - self.began)


class StudentJobs:
    """All training of this server. Safe to use from several sessions at once."""

    def __init__(self) -> None:
        self._jobs: dict[Path, TrainingJob] = {}
        self._here: dict[Path, TaughtStudents] = {}
        """What a folder that cannot be written to could not keep."""
        self._lock = threading.Lock()

    def taught(self, labels: LabelsOfProject) -> TaughtStudents | None:
        """What is kept, if there is anything that can be read."""
        try:
            content = json.loads(labels.kept_at.read_text(encoding="utf-8"))
            # Another store over the same run counts its projects from 1 too.
            if content["format"] == FORMAT and content.get("project") in (None, labels.project):
                return read_students(content["students"])
        except (OSError, ValueError, KeyError, TypeError):
            pass
        return self._here.get(labels.kept_at)

    def job(self, labels: LabelsOfProject) -> TrainingJob | None:
        """The training, while it is under way or after it failed."""
        return self._jobs.get(labels.kept_at)

    def ask(self, labels: LabelsOfProject) -> TrainingJob:
        """Have students trained, unless that is under way already."""
        with self._lock:
            there = self._jobs.get(labels.kept_at)
            if there is not None and there.state != "failed":
                return there
            job = self._jobs[labels.kept_at] = TrainingJob()
        # A daemon, so that it does not hold up the end of the server.
        threading.Thread(target=self._work, args=(labels, job), daemon=True).start()
        return job

    def _work(self, labels: LabelsOfProject, job: TrainingJob) -> None:
        with _TURN:
            job.state, job.began = "running", time.monotonic()
            try:
                said = self._said(labels.command, job)
                students = read_students(said)
                if not _keep(labels, said):
                    self._here[labels.kept_at] = students
                del self._jobs[labels.kept_at]
            except (CommandFailed, OSError) as error:
                job.state, job.why = "failed", str(error)
            except (ValueError, KeyError, TypeError):
                job.state, job.why = "failed", "Its last line was no answer of this version."

    def _said(self, command: list[str], job: TrainingJob) -> Any:
        """The last line that a process writes, those before it being its progress.

        Raises:
            CommandFailed: it ended with an error, whose last line is the reason, or took too long.
        """

        def heard(line: str) -> None:
            if line.rstrip().endswith(" labels"):
                job.done.append(line.strip()[:_LAST])

        return json.loads(followed(command, heard, most_seconds=MOST_SECONDS))


def read_students(said: Any) -> TaughtStudents:
    """The command's object.

    Raises:
        KeyError, TypeError, ValueError: it is another one.
    """
    return TaughtStudents(
        curve=tuple((int(one["labels"]), float(one["student_accuracy"])) for one in said["curve"]),
        tested_on=str(said["tested_on"]),
        simulation_only=bool(said["simulation_only"]),
    )


def _keep(labels: LabelsOfProject, said: Any) -> bool:
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
