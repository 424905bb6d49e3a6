"""Trials: units of work, carried out some at a time, here or in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from fedlens_research.framework.errors import TrialFailed

Report = Callable[[str], None]  # Tells people what is under way, one line at a time
Trial = TypeVar("Trial")
FAILURE = "failure.txt"  # File of a trial's folder that says why it failed


class Processes:
    """Runs functions in processes of their own, so that memory and threads are theirs alone."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped, self._changing = False, threading.Lock()

    def call(self, function: str, folder: Path, out: Path, *, threads: int = 1) -> None:
        """Run ``package.module:name`` with the trial's folder and the study's, and wait for it.

        Raises:
            TrialFailed: it failed, or this was stopped.
        """
        failure = folder / FAILURE
        failure.unlink(missing_ok=True)
        status = self._run([function, str(folder), str(out)], threads)
        if status and failure.is_file():
            raise TrialFailed(failure.read_text(encoding="utf-8"))
        if status:
            raise TrialFailed(f"it ended with status {status}, before it could say why")

    def stop(self) -> None:
        """End what is running and begin nothing more."""
        with self._changing:
            self._stopped = True
            for process in self._running:
                process.terminate()

    def _run(self, arguments: Sequence[str], threads: int) -> int:
        count = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        command = [sys.executable, "-m", "fedlens_research.framework.worker", *arguments]
        with self._changing:
            if self._stopped:
                return 1
            # our own interpreter and module; what varies are paths
            process = subprocess.Popen(command, env={**os.environ, **count})  # noqa: S603
            self._running.add(process)
        try:
            return process.wait()
        finally:
            with self._changing:
                self._running.discard(process)


def run_trials(
    trials: Sequence[Trial],
    work: Callable[[Trial], None],
    *,
    jobs: int = 1,
    stop: Callable[[], None] = lambda: None,
) -> list[str]:
    """Carry out trials, ``jobs`` at a time; one that fails leaves the others alone.

    ``work`` raises `TrialFailed` where it cannot; ``stop`` ends what runs when this is interrupted.

    Returns:
        What went wrong, a text for each trial that failed.
    """

    def attempt(trial: Trial) -> str | None:
        try:
            work(trial)
        except TrialFailed as error:
            return f"{trial}: {error}"
        return None

    with ThreadPoolExecutor(max_workers=jobs) as pool:
        try:
            failures = list(pool.map(attempt, trials))
        except BaseException:
            stop()
            pool.shutdown(cancel_futures=True)
            raise
    return [failure for failure in failures if failure]
