"""Commands that the dashboard has running, each in a process of its own: ended with the server.

All of the whole program: any visitor can make Streamlit forget the objects that hold its jobs.
"""

from __future__ import annotations

import atexit
import logging
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

PREFIX = "fedlens: "
"""Begins what the command says to people; all else on standard error is for the server's log."""
_LONGEST = 300
_RUNNING: set[subprocess.Popen[str]] = set()
_ENDED = threading.Event()


@contextmanager
def counted(process: subprocess.Popen[str]) -> Iterator[None]:
    """Meanwhile the process ends with the server; one that began too late ends at once."""
    _RUNNING.add(process)
    if _ENDED.is_set():
        process.kill()
    try:
        yield
    finally:
        _RUNNING.discard(process)


def running() -> int:
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


def reason(status: int, wrong: str) -> str:
    """What a command told people; of an error that none foresaw nothing but that there was."""
    lines = [line for line in wrong.splitlines() if line.strip()]
    if lines and lines[-1].startswith(PREFIX):
        return lines[-1].removeprefix(PREFIX)[:_LONGEST]
    logging.getLogger("dashboard").error("a command ended with %s: %s", status, wrong)
    return f"It ended with status {status}. The server's log says more."
