"""Keep the processes of a deployment's folder running: started again with growing pauses.

A SuperNode that is started again within a minute or two of being killed is refused by Flower
("node activation failed", exit status 305), for its last heartbeat still counts; it comes back with
one of the next tries.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from fedlens.deploy.layout import FLOWER, DeployError
from fedlens.foundation.errors import ExitStatus, FedlensError
from fedlens.foundation.logs import is_json, set_up_logs, shown_line
from fedlens.foundation.offline import stay_offline

PARENT_SECONDS = 1.0
KILL_SECONDS = 20.0


def launch(main: Callable[[list[str]], None], *, supervised: bool = False) -> None:
    """Run a process's ``main`` with the command line's arguments.

    Args:
        main: what runs.
        supervised: whether it is to end when the process that started it does, however that ends.
    """
    if supervised:
        threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    try:
        main(sys.argv[1:])
    except FedlensError as error:
        line = f"fedlens: {error}"
        sys.stderr.write((shown_line("fedlens.deploy", line) if is_json() else line) + "\n")
        sys.exit(error.exit_status)


def prepare_process() -> None:
    """Set this process up for Flower's programs: offline, files for its owner alone, our logs.

    Raises:
        DeployError: another Flower is installed than the one whose extension points are used.
    """
    stay_offline()
    os.umask(0o077)
    import flwr

    if flwr.__version__ != FLOWER:
        raise DeployError(f"Flower {flwr.__version__} is installed: install flwr=={FLOWER}")
    set_up_logs()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(KILL_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


logger = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 15.0
STEADY_SECONDS = 60.0
"""A process that ran this long is started again at once when it ends."""
END_SECONDS = 15.0
LAST_LINES_SECONDS = 5.0


@dataclass(frozen=True)
class Program:
    """One process to be kept running."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(repr=False)
    follows: str = ""
    """Name of another one, with which it is started anew: it cannot outlive what that knew."""
    after: tuple[str, int] | None = None
    """Host and port that must answer before it is started."""


class Supervisor:
    """Runs programs until it is told to stop."""

    def __init__(self, programs: Sequence[Program]) -> None:
        self._programs = programs
        self._stopping = threading.Event()
        self._starts = dict.fromkeys((program.name for program in programs), 0)
        self._wrong_use = False

    def run(self) -> int:
        """Run all programs until `stop`, SIGTERM or SIGINT; ends every process it started.

        Returns:
            0, or 2 where a program said that it was used wrongly: no restart fixes that.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.stop())
        threads = [threading.Thread(target=self._keep, args=(p,)) for p in self._programs]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(timeout=0.5)
        return ExitStatus.WRONG_USE if self._wrong_use else ExitStatus.DONE

    def stop(self) -> None:
        """Have `run` end."""
        self._stopping.set()

    def _keep(self, program: Program) -> None:
        pause = FIRST_PAUSE
        while not self._stopping.is_set():
            self._wait_for(program.after)
            began = time.monotonic()
            process = subprocess.Popen(  # noqa: S603  (our own program and arguments)
                program.command,
                env=dict(program.environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            reader = threading.Thread(target=_relay, args=(program.name, process), daemon=True)
            reader.start()
            self._starts[program.name] += 1
            status = self._wait(process, program.follows)
            end_group(process)
            reader.join(timeout=LAST_LINES_SECONDS)
            if self._stopping.is_set():
                return
            if status is None:
                continue  # what it follows was started anew
            if status == ExitStatus.WRONG_USE:
                self._wrong_use = True
                self.stop()
                return
            pause = FIRST_PAUSE if time.monotonic() - began > STEADY_SECONDS else pause
            logger.warning(
                "%s ended with status %d; starting it again in %.0f s", program.name, status, pause
            )
            self._stopping.wait(pause)
            pause = min(LONGEST_PAUSE, 2 * pause)

    def _wait_for(self, place: tuple[str, int] | None) -> None:
        while place is not None and not self._stopping.is_set():
            with suppress(OSError), socket.create_connection(place, timeout=2.0):
                return
            self._stopping.wait(0.2)

    def _wait(self, process: subprocess.Popen[bytes], follows: str) -> int | None:
        """The exit status; None where what the process follows was started anew."""
        known = self._starts.get(follows)
        while process.poll() is None and not self._stopping.is_set():
            if self._starts.get(follows) != known:
                return None
            time.sleep(0.2)
        return process.poll() or 0


def _relay(name: str, process: subprocess.Popen[bytes]) -> None:
    """Write each line of a process, and of those that it starts, with the time and its name."""
    if process.stdout is None:
        return
    with process.stdout as lines, suppress(OSError, ValueError):
        for line in lines:
            sys.stderr.write(shown_line(name, line.decode("utf-8", "replace")) + "\n")
            sys.stderr.flush()


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except (ProcessLookupError, PermissionError):
            return
        end = time.monotonic() + END_SECONDS
        while time.monotonic() < end and (process.poll() is None or _alive(process.pid)):
            time.sleep(0.1)


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def this_python(module: str, *arguments: str) -> list[str]:
    """The command that runs a module in this Python."""
    return [sys.executable, "-m", module, *arguments]
