"""Starting and ending what a folder is for in the background, with its number and log beside it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from fedlens.deploy.layout import DeployError
from fedlens.deploy.supervise import this_python
from fedlens.foundation.files import write_durably

NUMBER, LOG = "service.pid", "service.log"
END_SECONDS = 60.0


def start_in_background(folder: Path) -> subprocess.Popen[bytes]:
    """Start a folder's processes; their log is beside its settings.

    Raises:
        DeployError: it runs already.
    """
    if running(folder):
        raise DeployError(f"{folder} is running already: `fedlens deploy stop {folder}` ends it")
    descriptor = os.open(folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(descriptor, "ab") as file:
        process = subprocess.Popen(  # noqa: S603  (our own program and arguments)
            this_python("fedlens.cli", "deploy", "start", str(folder)),
            stdout=file,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    number = f"{process.pid} {_began(process.pid)}\n"
    write_durably(folder / NUMBER, number.encode(), private=True)
    return process


def wait_until_ready(
    folder: Path,
    process: subprocess.Popen[bytes],
    lacking: Callable[[Path], str | None],
    seconds: float,
) -> Path:
    """Wait until a folder that was started is ready; returns the path of its log.

    Args:
        folder: the deployment's.
        process: what was started for it.
        lacking: None once the folder is ready, else what it still lacks.
        seconds: how long to wait.

    Raises:
        DeployError: it ended, or is not ready in time; it is left running then.
    """
    log, end = folder / LOG, time.monotonic() + seconds
    while (still := lacking(folder)) is not None:
        if process.poll() is not None:
            raise DeployError(f"{folder} ended at once; the end of {log}:\n{_tail(log)}")
        if time.monotonic() > end:
            raise DeployError(f"{folder} is not ready after {seconds:g} s ({still}); see {log}")
        time.sleep(0.5)
    return log


def stop_in_background(folder: Path) -> bool:
    """End what runs for a folder; False where nothing does."""
    number = running(folder)
    if number is None:
        return False
    os.kill(number, signal.SIGTERM)
    end = time.monotonic() + END_SECONDS
    while running(folder) is not None and time.monotonic() < end:
        time.sleep(0.2)
        _reap(number)
    if running(folder) is not None:
        raise DeployError(f"process {number} of {folder} does not end: end it by hand")
    (folder / NUMBER).unlink(missing_ok=True)
    return True


def running(folder: Path) -> int | None:
    """The number of the process that runs for a folder; None where none does."""
    try:
        number, began = (folder / NUMBER).read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return None
    return int(number) if _began(int(number)) == began else None


def _began(number: int) -> str:
    """When a process began, in ticks since the system did; "" where there is none such."""
    try:
        fields = Path(f"/proc/{number}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]


def _reap(number: int) -> None:
    try:
        os.waitpid(number, os.WNOHANG)
    except ChildProcessError:
        return


def _tail(path: Path, lines: int = 5) -> str:
    return "\n".join(path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])
