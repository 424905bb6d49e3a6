"""Commands that the dashboard has running, each in a process of its own: ended with the server.

All of the whole program: any visitor can make Streamlit forget the objects that hold its jobs.
"""

from __future__ import annotations

import atexit
import logging
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

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
    logging.getLogger("dashboard").error("a command ended with %s: %s", status, logged)
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
