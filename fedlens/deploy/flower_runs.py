"""Flower's own command as an operator uses it: begin a run, follow its log, ask how it ended.

A run is asked for by its number: whatever others start meanwhile, its end is that of no other run.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedlens.foundation.errors import FedlensError

CONNECTION = "fedlens"
COMPLETED, FINISHED = "finished:completed", "finished"
ASKED, PAUSE = 15, 2.0
"""How often, and how many seconds apart, a run is asked for whose log has ended."""


class RunFailed(FedlensError, RuntimeError):
    """A run that did not end as a run ends; the message says how to go on."""


class FlowerRuns:
    """Runs of one SuperLink, through Flower's command.

    Args:
        program: path of the command.
        environment: in which it finds the connection and the token.
    """

    def __init__(self, program: str, environment: Mapping[str, str]) -> None:
        self._program, self._environment = program, dict(environment)

    def begin(self, app: Path) -> int:
        """Have a run started; its number.

        Raises:
            RunFailed: the SuperLink does not start it, and why.
        """
        said = self._asked("run", str(app), CONNECTION, "--format", "json")
        try:
            return int(said["run-id"])
        except (KeyError, TypeError, ValueError):
            why = " ".join(str(said.get("error-message", "it gave no reason")).split())
            raise RunFailed(f"the run could not be started: {why}") from None

    def follow(self, number: int) -> None:
        """Show a run's log until it ends, or is cut off."""
        command = [self._program, "log", str(number), CONNECTION, "--stream"]
        subprocess.run(  # noqa: S603  (Flower's own program)
            command, env=self._environment, stdin=subprocess.DEVNULL, check=False
        )

    def described(self, number: int) -> dict[str, Any] | None:
        """What the SuperLink says of a run whose log ended; None where it does not know it.

        The log ends a moment before the run does, so it is asked until it ended.
        """
        found = None
        for _ in range(ASKED):
            said = self._asked("ls", CONNECTION, "--run-id", str(number), "--format", "json")
            runs = said.get("runs") or [None]
            found = runs[0] if isinstance(runs, list) and isinstance(runs[0], dict) else None
            if found is None or str(found.get("status", "")).startswith(FINISHED):
                break
            time.sleep(PAUSE)
        return found

    def _asked(self, *words: str) -> dict[str, Any]:
        done = subprocess.run(  # noqa: S603  (Flower's own program)
            [self._program, *words],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        try:
            said = json.loads(done.stdout)
        except ValueError:
            return {"error-message": done.stderr.decode(errors="replace")[-500:]}
        return said if isinstance(said, dict) else {}


def say_begun(name: str) -> None:
    """Tell the operator the run's name, by which it goes on after whatever befalls it."""
    sys.stderr.write(f"run {name} has begun\n")
    sys.stderr.flush()


def require_completed(found: dict[str, Any] | None, name: str, folder: Path) -> dict[str, Any]:
    """What the SuperLink says of a run that ended well.

    Raises:
        RunFailed: it did not, or no one can say; the message says how to go on.
    """
    again = f"the same command with --name {name} goes on from its last whole round"
    if found is None:
        raise RunFailed(
            f"the SuperLink ended, or was started again, while run {name} ran: once `fedlens "
            f"deploy status {folder}` says that it is up, {again}; nothing that was spent is lost"
        )
    status = str(found.get("status", ""))
    if not status.startswith(FINISHED):
        raise RunFailed(
            f"the log of run {name} was cut off, and it is {status}: `fedlens deploy status "
            f"{folder}` says how it goes; if it has stopped, {again}"
        )
    if status != COMPLETED:
        raise RunFailed(
            f"run {name} ended as {status}; its log above says why. Once that is mended, {again}"
        )
    return {**found, "name": name}
