"""Diagnoses under way and those stored: one at a time, each in a process of its own.

The store knows runs' samples; what a diagnosis reads, their released sums, lies in their folders.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from fedlens.dashboard.access.workspace import found_below
from fedlens.dashboard.faults.answer import AnswerError, DiagnosisAnswer, read_answer
from fedlens.dashboard.jobs import CommandFailed, Job, Jobs
from fedlens.diagnosis.steps import DiagnosisStep, read_step
from fedlens.diagnosis.stored_answers import (
    FOLDER,
    LEDGER,
    MOST_PICTURED,
    RELEASES,
    KeptAnswer,
    keep_answer,
    kept_at,
    key_of,
    read_kept,
    releases_of,
    run_id_in,
)
from fedlens.store.engine import locate


@dataclass(frozen=True)
class RunPlace:
    """A run's folder on this machine."""

    run_id: str
    path: Path

    @property
    def name(self) -> str:
        """What people call it: its folder."""
        return self.path.name

    def releases(self) -> list[Path]:
        """The released sums that it kept, in the order of its rounds."""
        return list(_releases(self.path, _changed(self.path)))


def _changed(run: Path) -> int:
    """When a file was last added to a run's releases; 0 where it has none."""
    try:
        return (run / RELEASES).stat().st_mtime_ns
    except OSError:
        return 0


@lru_cache(maxsize=4096)
def _releases(run: Path, _changed: int) -> tuple[Path, ...]:
    return tuple(releases_of(run))


@lru_cache(maxsize=4096)
def _kept_at(place: RunPlace, reference: str, *_changed: int) -> Path:
    return kept_at(place.path, place.run_id, reference)


def list_places(store_url: str) -> dict[str, RunPlace]:
    """The runs by id: in the store's folder, in it and beside it, and below the workspace's.

    A folder that cannot be read is passed over: the page then says that the run was not found.
    """
    found: dict[str, RunPlace] = {}
    for folder in _candidates(store_url):
        run_id = _run_id(folder, *_stamp(folder / LEDGER))
        if run_id is not None and run_id not in found:
            found[run_id] = RunPlace(run_id, folder)
    return found


def _stamp(path: Path) -> tuple[int, int]:
    """Tells a file from itself before a change, and from one in its place."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_ino, found.st_ctime_ns


@lru_cache(maxsize=8192)
def _run_id(folder: Path, *_stamp: int) -> str | None:
    return run_id_in(folder)


def _candidates(store_url: str) -> Iterator[Path]:
    own = locate(store_url).path
    here = None if own is None else own.absolute().parent
    if here is not None:
        yield here
    yield from found_below().runs
    for root in (here, here and here.parent):
        if root is not None and root.is_dir():
            try:
                yield from sorted(path for path in root.iterdir() if path.is_dir())
            except OSError:
                continue


MOST_SECONDS = 1800
QUIET_SECONDS = 180
"""Without a word from a diagnosis, after which the page says that it may hang."""
MOST_EARLIER = 50
"""Kept answers that are looked through for one of earlier sums."""
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
        earlier = _changed(Path(self.reference)) if self.reference else 0
        return _kept_at(self.run, self.reference, _changed(self.run.path), earlier)


@dataclass
class DiagnosisJob(Job):
    """One question that is being answered, or could not be."""

    step: DiagnosisStep | None = None
    """Where it is; None before it said so."""
    look: str = ""
    """What stands out at first sight, in the command's words; empty before that."""

    @property
    def share(self) -> float:
        """How much of it is done, about: 0 to 1."""
        return 0.0 if self.step is None else self.step.share

    def hear(self, line: str) -> None:
        """Take up a line of its output."""
        super().hear(line)
        self.step = read_step(line) or self.step
        self.look = (self.step.said if self.step else "") or self.look


class Diagnoses(Jobs[Question, DiagnosisJob]):
    """All questions of this server, whatever the sums: a run would else ask anew at each round."""

    def __init__(self) -> None:
        super().__init__(_TURN)
        self._answers: dict[Path, tuple[int, DiagnosisAnswer]] = {}
        """By the file that keeps it: when that was written, 0 where it could not be."""

    def answer(self, question: Question) -> DiagnosisAnswer | None:
        """The answer that is kept, if there is one that can be read."""
        return self._kept(question.kept_at)

    def earlier(self, question: Question) -> DiagnosisAnswer | None:
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

    def _kept(self, path: Path) -> DiagnosisAnswer | None:
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

    def ask(self, question: Question, samples: list[dict[str, Any]], classes: int) -> DiagnosisJob:
        """Have it answered, unless that is under way already.

        Args:
            question: what is asked.
            samples: synthetic ones to show faults on, each ``png`` in base64 and its ``label``.
            classes: number of classes.
        """
        return self._start(
            question, DiagnosisJob(), lambda job: self._work(question, job, samples, classes)
        )

    def _work(
        self, question: Question, job: DiagnosisJob, samples: list[dict[str, Any]], classes: int
    ) -> bool:
        # Of what is released by now, once: more may be meanwhile, and while it waited.
        place = question.kept_at
        found = _last_object(job.run_command(command_of(question), most_seconds=MOST_SECONDS))
        try:
            read_answer(found)  # what is no answer is not drawn either
            # The command keeps its answer itself, where the run's folder can be written to.
            if self._kept(place) is None:
                looks = _pictured(found, samples, classes, job)
                if job.over:  # cancelled meanwhile
                    return False
                self._take(question, place, found, looks)
        except AnswerError as error:
            raise CommandFailed(str(error)) from None
        return True

    def _take(self, question: Question, place: Path, found: Any, looks: Any) -> None:
        """Keep an answer: on disk, or here alone where that cannot be."""
        answer = read_answer(found, looks)
        if not keep_answer(place, KeptAnswer(question.reference, found, looks)):
            self._answers[place] = (0, answer)


def _pictured(found: Any, samples: list[dict[str, Any]], classes: int, job: DiagnosisJob) -> Any:
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
        said = job.run_command(command, most_seconds=MOST_SECONDS, given=json.dumps(asked))
        return _last_object(said)
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


def _read(path: Path) -> DiagnosisAnswer | None:
    kept = read_kept(path)
    try:
        return None if kept is None else read_answer(kept.diagnosis, kept.looks)
    except AnswerError:
        return None
