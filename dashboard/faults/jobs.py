"""Diagnoses under way and those kept: one at a time, each in a process of its own."""

from __future__ import annotations

import json
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fedlens.dashboard.faults.answer import AnswerError, KeptDiagnosis, read_answer
from fedlens.dashboard.faults.places import RunPlace
from fedlens.dashboard.processes import CommandFailed, Handle, followed
from fedlens.diagnosis.steps import DiagnosisStep, read_step
from fedlens.diagnosis.stored_answers import (
    FOLDER,
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
QUIET_SECONDS = 180
"""Without a word from a diagnosis, after which the page says that it may hang."""
MOST_EARLIER = 50
"""Kept answers that are looked through for one of earlier sums."""
State = Literal["waiting", "running", "failed", "cancelled"]
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
    """One question that is being answered, or could not be.

    The times are those of a computation on what was released: they tell of nothing private.
    """

    state: State = "waiting"
    began: float = field(default_factory=time.monotonic)
    heard: float = field(default_factory=time.monotonic)
    """When it last said anything."""
    step: DiagnosisStep | None = None
    """Where it is; None before it said so."""
    why: str = ""
    """What went wrong, in one sentence, or who cancelled it."""
    handle: Handle = field(default_factory=Handle)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def over(self) -> bool:
        """Whether nothing comes of it any more."""
        return self.state in ("failed", "cancelled")

    @property
    def seconds(self) -> int:
        """Since it was asked."""
        return int(time.monotonic() - self.began)

    @property
    def quiet_seconds(self) -> int:
        """Since it last said anything."""
        return int(time.monotonic() - self.heard)

    @property
    def share(self) -> float:
        """How much of it is done, about: 0 to 1."""
        return 0.0 if self.step is None else self.step.share

    def hear(self, line: str) -> None:
        """Take up a line of its output."""
        self.heard = time.monotonic()
        self.step = read_step(line) or self.step

    def begin(self) -> bool:
        """Its turn has come; whether it is still wanted."""
        with self._lock:
            if not self.over:
                self.state, self.heard = "running", time.monotonic()
            return not self.over

    def give_up(self, state: Literal["failed", "cancelled"], why: str) -> None:
        """Nothing comes of it; what was given up first stays so."""
        with self._lock:
            if not self.over:
                self.state, self.why = state, why


class Diagnoses:
    """All questions of this server. Safe to use from several sessions at once."""

    def __init__(self) -> None:
        self._jobs: dict[Question, Job] = {}
        """Whatever the sums: a run that goes on would else ask anew with each round."""
        self._answers: dict[Path, tuple[int, KeptDiagnosis]] = {}
        """By the file that keeps it: when that was written, 0 where it could not be."""
        self._lock = threading.Lock()

    def answer(self, question: Question) -> KeptDiagnosis | None:
        """The answer that is kept, if there is one that can be read."""
        return self._kept(question.kept_at)

    def earlier(self, question: Question) -> KeptDiagnosis | None:
        """The newest answer to the same question about sums that the run had released before."""
        folder = question.run.path / FOLDER
        try:
            files = sorted(folder.glob("*.json"), key=lambda one: -one.stat().st_mtime_ns)
        except OSError:
            return None
        for path in files[:MOST_EARLIER]:
            kept = read_kept(path)
            if kept is not None and kept.reference == question.reference:
                answer = self._kept(path)
                if answer is not None:
                    return answer
        return None

    def _kept(self, path: Path) -> KeptDiagnosis | None:
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
        """The question's job, while it is under way or after it came to nothing."""
        return self._jobs.get(question)

    def ask(self, question: Question, samples: list[dict[str, Any]], classes: int) -> Job:
        """Have it answered, unless that is under way already.

        Args:
            question: what is asked.
            samples: synthetic ones to show faults on, each ``png`` in base64 and its ``label``.
            classes: number of classes.
        """
        with self._lock:
            there = self._jobs.get(question)
            if there is not None and not there.over:
                return there
            going = sum(not one.over for one in self._jobs.values())
            job = self._jobs[question] = Job()
            if going >= MOST_AT_ONCE:
                job.give_up("failed", f"{going} others wait already: try again later.")
                return job
        # A daemon, so that it does not hold up the end of the server.
        arguments = (question, job, samples, classes)
        threading.Thread(target=self._work, args=arguments, daemon=True).start()
        return job

    def cancel(self, question: Question, by: str) -> bool:
        """End a question's job, running or not yet; whether there was one to end.

        Args:
            question: that was asked.
            by: name of the account.
        """
        job = self.job(question)
        if job is None or job.over:
            return False
        job.give_up("cancelled", f"By {by}.")
        job.handle.end()
        return True

    def _work(
        self, question: Question, job: Job, samples: list[dict[str, Any]], classes: int
    ) -> None:
        with _TURN:
            if not job.begin():
                return
            # Of what is released by now, once: more may be meanwhile, and while it waited.
            place = question.kept_at
            try:
                found = _last_object(_said(command_of(question), job))
                read_answer(found)  # what is no answer is not drawn either
                # The command keeps its answer itself, where the run's folder can be written to.
                if self._kept(place) is None:
                    looks = _pictured(found, samples, classes, job)
                    if job.over:  # cancelled meanwhile
                        return
                    self._take(question, place, found, looks)
                with self._lock:
                    if self._jobs.get(question) is job:
                        del self._jobs[question]
            except (CommandFailed, AnswerError, OSError) as error:
                job.give_up("failed", str(error))

    def _take(self, question: Question, place: Path, found: Any, looks: Any) -> None:
        """Keep an answer: on disk, or here alone where that cannot be."""
        answer = read_answer(found, looks)
        if not keep_answer(place, KeptAnswer(question.reference, found, looks)):
            self._answers[place] = (0, answer)


def _said(command: list[str], job: Job, given: str = "") -> str:
    """The last line that a process writes, those before it being its steps.

    Raises:
        CommandFailed: it ended with an error, was ended, or took too long.
    """
    return followed(command, job.hear, most_seconds=MOST_SECONDS, given=given, handle=job.handle)


def _pictured(found: Any, samples: list[dict[str, Any]], classes: int, job: Job) -> Any:
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
        command = [sys.executable, "-m", "fedlens.dashboard.faults.looks"]
        return _last_object(_said(command, job, json.dumps(asked)))
    except CommandFailed:
        return {}


def command_of(question: Question) -> list[str]:
    """The command that answers a question."""
    # An absolute path and a flag with its value: neither can begin as another flag does.
    path = str(question.run.path.absolute())
    command = [sys.executable, "-m", "fedlens.cli", "diagnose", path, "--json", "--steps"]
    return [*command, f"--reference={question.reference}"] if question.reference else command


def _last_object(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        raise CommandFailed("Its last line was no JSON.") from None


def _read(path: Path) -> KeptDiagnosis | None:
    kept = read_kept(path)
    try:
        return None if kept is None else read_answer(kept.diagnosis, kept.looks)
    except AnswerError:
        return None
