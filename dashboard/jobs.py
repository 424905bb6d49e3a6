"""Work that people have asked for: one of a kind at a time, each done by processes of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

from fedlens.dashboard.processes import CommandFailed, Handle, follow_command

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
