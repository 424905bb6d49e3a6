"""Work that people have asked for: one of a kind at a time, each done by processes of its own.

Processes end with the server. They and the turns are of the whole program: any visitor can make
Streamlit forget the objects that hold its jobs.
"""

from __future__ import annotations

import atexit
import logging
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

PREFIX = "fedlens: "
"""Begins what the command says to people; all else on standard error is for the server's log."""
_LONGEST = 300
_LONGEST_LOGGED = 20_000
_RUNNING: set[subprocess.Popen[str]] = set()
_ENDED = threading.Event()


class CommandFailed(Exception):
    """A command that came to nothing; its text is the reason, for people."""


class Handle:
    """Ends a command from another thread, also one that has not begun yet."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self.ended = False
        """Whether `end` was called."""

    def end(self) -> None:
        """End the command now, or as soon as it begins."""
        with self._lock:
            self.ended = True
            if self._process is not None:
                self._process.kill()

    def _take(self, process: subprocess.Popen[str]) -> None:
        with self._lock:
            self._process = process
            if self.ended:
                process.kill()


def follow_command(
    command: Sequence[str],
    on_line: Callable[[str], None],
    *,
    most_seconds: float,
    given: str = "",
    handle: Handle | None = None,
) -> str:
    """Run a command to its end, line by line; give back its last line.

    Args:
        command: our own interpreter with a module; each part is a single argument, never a shell's.
        on_line: told each line of its output as it comes.
        most_seconds: after which it is ended.
        given: what it reads from standard input.
        handle: ends it before.

    Raises:
        CommandFailed: it ended with an error, was ended, or took too long.
    """
    # Files for what goes in and what goes wrong: neither fills a pipe that is read too late.
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as wrong,
        tempfile.TemporaryFile("w+", encoding="utf-8") as asked,
    ):
        asked.write(given)
        asked.seek(0)
        with (
            subprocess.Popen(  # noqa: S603
                command, stdin=asked, stdout=subprocess.PIPE, stderr=wrong, text=True
            ) as process,
            register_process(process),
        ):
            (handle or Handle())._take(process)
            clock = threading.Timer(most_seconds, process.kill)
            clock.start()
            last = ""
            for line in process.stdout or ():
                last = line
                on_line(line)
            process.wait()
            late = not clock.is_alive()
            clock.cancel()
        if process.returncode:
            if late:
                minutes = f"{most_seconds / 60:.0f}"
                raise CommandFailed(f"It took more than {minutes} minutes and was stopped.")
            wrong.seek(0)
            raise CommandFailed(explain_failure(process.returncode, wrong.read()))
    return last


@contextmanager
def register_process(process: subprocess.Popen[str]) -> Iterator[None]:
    """Meanwhile the process ends with the server; one that began too late ends at once."""
    _RUNNING.add(process)
    if _ENDED.is_set():
        process.kill()
    try:
        yield
    finally:
        _RUNNING.discard(process)


def count_running() -> int:
    """How many are running."""
    return len(_RUNNING)


def stop_all() -> None:
    """End what is running."""
    for process in list(_RUNNING):
        process.kill()


def end_all() -> None:
    """End what is running and begin nothing more: a server that ends leaves none behind."""
    _ENDED.set()
    stop_all()


atexit.register(end_all)


def explain_failure(status: int, wrong: str) -> str:
    """What a command told people; of an error that none foresaw nothing but that there was."""
    lines = [line for line in wrong.splitlines() if line.strip()]
    if lines and lines[-1].startswith(PREFIX):
        return lines[-1].removeprefix(PREFIX)[:_LONGEST]
    logged = wrong[-_LONGEST_LOGGED:]
    logging.getLogger("fedlens.dashboard").error("a command ended with %s: %s", status, logged)
    if status < 0:
        return (
            f"The system ended it ({_signal(-status)}) before it was done, as it does where memory "
            "runs out. Nothing of it was kept."
        )
    return f"It ended with status {status}. The server's log says more."


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


MOST_AT_ONCE = 20
"""Jobs of a kind that may be under way or wait: each page that is opened may ask for one."""
JobState = Literal["waiting", "running", "failed", "cancelled"]


@dataclass
class Job:
    """One piece of work that is under way, or came to nothing.

    The times are those of a computation on what was released: they tell of nothing private.
    """

    state: JobState = "waiting"
    began: float = field(default_factory=time.monotonic)
    heard: float = field(default_factory=time.monotonic)
    """When it last said anything."""
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
        """Since it was asked for."""
        return int(time.monotonic() - self.began)

    @property
    def quiet_seconds(self) -> int:
        """Since it last said anything."""
        return int(time.monotonic() - self.heard)

    def hear(self, line: str) -> None:
        """Take up a line of its output."""
        self.heard = time.monotonic()

    def run_command(self, command: list[str], *, most_seconds: float, given: str = "") -> str:
        """The last line that a command of this job writes, those before it being its progress.

        Raises:
            CommandFailed: it ended with an error, was ended, or took too long.
        """
        return follow_command(
            command, self.hear, most_seconds=most_seconds, given=given, handle=self.handle
        )

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


Key = TypeVar("Key", bound=Hashable)
SomeJob = TypeVar("SomeJob", bound=Job)


class Jobs(Generic[Key, SomeJob]):
    """All jobs of a kind of this server. Safe to use from several sessions at once."""

    def __init__(self, turn: threading.Lock) -> None:
        """Keep no job yet.

        Args:
            turn: held by the job that runs. It is of the whole program: any visitor can make
                Streamlit forget the object that holds the jobs.
        """
        self._jobs: dict[Key, SomeJob] = {}
        self._lock, self._turn = threading.Lock(), turn

    def job(self, key: Key) -> SomeJob | None:
        """The job of this key, while it is under way or after it came to nothing."""
        return self._jobs.get(key)

    def count_open(self) -> int:
        """How many are under way or wait."""
        return sum(not one.over for one in list(self._jobs.values()))

    def cancel(self, key: Key, by: str) -> bool:
        """End a job, running or not yet; whether there was one to end.

        Args:
            key: of the job.
            by: name of the account.
        """
        job = self.job(key)
        if job is None or job.over:
            return False
        job.give_up("cancelled", f"By {by}.")
        job.handle.end()
        return True

    def _start(self, key: Key, job: SomeJob, work: Callable[[SomeJob], bool]) -> SomeJob:
        """Have a job done in its turn, unless one of this key is under way: then that one.

        Args:
            key: of the job.
            job: a new one.
            work: does it; tells whether something came of it, and may raise `CommandFailed`.
        """
        with self._lock:
            there = self._jobs.get(key)
            if there is not None and not there.over:
                return there
            going = sum(not one.over for one in self._jobs.values())
            self._jobs[key] = job
            if going >= MOST_AT_ONCE:
                job.give_up("failed", f"{going} others wait already: try again later.")
                return job
        # A daemon, so that it does not hold up the end of the server.
        threading.Thread(target=self._run, args=(key, job, work), daemon=True).start()
        return job

    def _run(self, key: Key, job: SomeJob, work: Callable[[SomeJob], bool]) -> None:
        with self._turn:
            if not job.begin():
                return
            try:
                done = work(job)
            except (CommandFailed, OSError) as error:
                job.give_up("failed", str(error))
                return
            with self._lock:
                if done and self._jobs.get(key) is job:
                    del self._jobs[key]
