"""Diagnoses under way and those kept: one at a time, each in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from dashboard.faults.answer import AnswerError, KeptDiagnosis, read_answer
from dashboard.faults.places import RunPlace
from dashboard.processes import counted, reason
from server.kept_diagnoses import (
    MOST_PICTURED,
    KeptAnswer,
    keep_answer,
    kept_at,
    key_of,
    read_kept,
)

MOST_SECONDS = 1800
MOST_AT_ONCE = 20
"""Questions that may be under way or wait: each page that is opened may ask one."""
State = Literal["waiting", "running", "failed"]
# Of the whole program: any visitor can make Streamlit forget the object that holds the jobs.
_TURN = threading.Lock()


@dataclass(frozen=True)
class Question:
    """A run's released sums against a reference."""

    run: RunPlace
    reference: str = ""
    """Name of a public data set or folder of an earlier run; empty: the run's own data set's test
    images."""

    @property
    def key(self) -> str:
        """Changes whenever the answer may: with the reference and with the releases on disk."""
        return key_of(self.run.path, self.run.run_id, self.reference)

    @property
    def kept_at(self) -> Path:
        """The file that holds the answer, once there is one."""
        return kept_at(self.run.path, self.run.run_id, self.reference)


@dataclass
class Job:
    """One question that is being answered, or could not be."""

    state: State = "waiting"
    began: float = field(default_factory=time.monotonic)
    why: str = ""
    """What went wrong, in one sentence."""

    @property
    def seconds(self) -> int:
        """Since it was asked."""
        return int(time.monotonic() - self.began)


class Diagnoses:
    """All questions of this server. Safe to use from several sessions at once."""

    def __init__(self) -> None:
        self._jobs: dict[Path, Job] = {}
        self._answers: dict[Path, tuple[int, KeptDiagnosis]] = {}
        """By the file that keeps it: when that was written, 0 where it could not be."""
        self._lock = threading.Lock()

    def answer(self, question: Question) -> KeptDiagnosis | None:
        """The answer that is kept, if there is one that can be read."""
        path = question.kept_at
        try:
            written = path.stat().st_mtime_ns
        except OSError:
            written = 0  # a folder that cannot be written to: the answer is here alone
        there = self._answers.get(path)
        if there is not None and there[0] in (written, 0):
            return there[1]
        kept = _read(path) if written else None
        if kept is not None:
            self._answers[path] = (written, kept)
        return kept

    def job(self, question: Question) -> Job | None:
        """The question's job, while it is under way or after it failed."""
        return self._jobs.get(question.kept_at)

    def ask(self, question: Question, samples: list[dict[str, Any]], classes: int) -> Job:
        """Have it answered, unless that is under way already.

        Args:
            question: what is asked.
            samples: synthetic ones to show faults on, each ``png`` in base64 and its ``label``.
            classes: number of classes.
        """
        with self._lock:
            there = self._jobs.get(question.kept_at)
            if there is not None and there.state != "failed":
                return there
            going = sum(one.state != "failed" for one in self._jobs.values())
            job = self._jobs[question.kept_at] = Job()
            if going >= MOST_AT_ONCE:
                job.state, job.why = "failed", f"{going} others wait already: try again later."
                return job
        # A daemon, so that it does not hold up the end of the server.
        arguments = (question, job, samples, classes)
        threading.Thread(target=self._work, args=arguments, daemon=True).start()
        return job

    def _work(
        self, question: Question, job: Job, samples: list[dict[str, Any]], classes: int
    ) -> None:
        with _TURN:
            job.state = "running"
            try:
                found = _last_object(self._said(command_of(question), ""))
                # The command keeps its answer itself, where the run's folder can be written to.
                if self.answer(question) is None:
                    self._take(question, found, self._pictured(found, samples, classes))
                del self._jobs[question.kept_at]
            except (_Failed, AnswerError, OSError) as error:
                job.state, job.why = "failed", str(error)

    def _take(self, question: Question, found: Any, looks: Any) -> None:
        """Keep an answer: on disk, or here alone where that cannot be."""
        answer = read_answer(found, looks)
        if not keep_answer(question.kept_at, KeptAnswer(question.reference, found, looks)):
            self._answers[question.kept_at] = (0, answer)

    def _pictured(self, found: Any, samples: list[dict[str, Any]], classes: int) -> Any:
        """Pictures of the findings; none where they cannot be made, which is no reason to fail."""
        if not samples or not found.get("findings"):
            return {}
        asked = {
            "findings": found["findings"],
            "samples": samples,
            "classes": classes,
            "most": MOST_PICTURED,
        }
        try:
            said = self._said([sys.executable, "-m", "dashboard.faults.looks"], json.dumps(asked))
            return _last_object(said)
        except _Failed:
            return {}

    def _said(self, command: list[str], given: str) -> str:
        """What a process writes.

        Raises:
            _Failed: it ended with an error, or took too long.
        """
        pipe = subprocess.PIPE
        # Our own interpreter and module; paths and names are single arguments, never a shell's.
        with (
            subprocess.Popen(  # noqa: S603
                command, stdin=pipe, stdout=pipe, stderr=pipe, text=True
            ) as process,
            counted(process),
        ):
            try:
                said, wrong = process.communicate(given, timeout=MOST_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                minutes = MOST_SECONDS // 60
                raise _Failed(f"It took more than {minutes} minutes and was stopped.") from None
        if process.returncode:
            raise _Failed(reason(process.returncode, wrong))
        return said


class _Failed(Exception):
    """A process that did not answer."""


def command_of(question: Question) -> list[str]:
    """The command that answers a question."""
    # An absolute path and a flag with its value: neither can begin as another flag does.
    path = str(question.run.path.absolute())
    command = [sys.executable, "-m", "fedlens.cli", "diagnose", path, "--json"]
    return [*command, f"--reference={question.reference}"] if question.reference else command


def _last_object(text: str) -> Any:
    lines = text.strip().splitlines()
    try:
        return json.loads(lines[-1])
    except (ValueError, IndexError):
        raise _Failed("Its last line was no JSON.") from None


def _read(path: Path) -> KeptDiagnosis | None:
    kept = read_kept(path)
    try:
        return None if kept is None else read_answer(kept.diagnosis, kept.looks)
    except AnswerError:
        return None
