"""Training under way and what came of it: one at a time, each in a process of its own.

The dashboard loads no training code. It runs ``fedlens student --curve`` and keeps its answer in
the run's folder.
"""

from __future__ import annotations

import json
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedlens.dashboard.faults.places import RunPlace
from fedlens.dashboard.jobs import Job, Jobs
from fedlens.dashboard.processes import CommandFailed

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
