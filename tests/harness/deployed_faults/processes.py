"""Kills of a deployment's processes: SuperLink and gate, nodes, the apps that they start, operator.

The server app is killed in `harness.faults.scenarios` at every phase of its own. Here
real processes talk over TLS on loopback, and one of them is killed when the run's folder shows that
it has come to a moment. Then the operator does what the command's last line says, until it is done.
"""

from __future__ import annotations

import itertools
import json
import re
import secrets
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fedlens.deploy.background import running
from fedlens.deploy.layout import DeployError
from fedlens.foundation.errors import FedlensError
from fedlens.server.run.directory import RunDirectory
from harness.deployed_faults.federation import (
    Federation,
    command_of,
    descendants,
    kill_one,
    kill_whole,
    wait_for,
)
from harness.faults.checks import lost_releases, problems_at_end, problems_between
from harness.faults.scenarios import Outcomes
from harness.faults.victim import Victim

ROUNDS = 2
TRIES = 8
COMMAND_SECONDS, MOMENT_SECONDS = 600.0, 420.0
SETTINGS: dict[str, object] = {
    "schedule": "critic",
    "data.users": 40,
    "data.nodes": 2,
    "privacy.delta": 1e-3,
    "tasks.critic.kind": "frozen",
    "tasks.critic.rounds": ROUNDS,
    "tasks.critic.sampling_rate": 0.5,
    "tasks.critic.generator_steps": 1,
    "generator.batch": 20,
    "generator.width": 4,
    "release.samples": 10,
    "release.strip": 1,
    "release.agreement": 0.0,
    "membership.patience": 120.0,
    "rounds.deadline": 90.0,
}
FIX = re.compile(r"fedlens: .*(--name \S+ goes on|is running|could not be started)")
"""What the command's last line must say where it did not end well."""


@dataclass(frozen=True)
class ProcessFault:
    """Which process is killed, and when."""

    victim: str
    moment: str


@dataclass(frozen=True)
class DeployedRun(Victim):
    """A run over a federation, as the checks of a run want it."""

    where: Path = Path()

    @property
    def run(self) -> Path:
        """The run's directory, below the SuperLink's."""
        return self.where


# What is killed


def _program(word: str, folder: Callable[[Federation], Path]) -> Callable[[Federation], list[int]]:
    def find(made: Federation) -> list[int]:
        number = running(folder(made))
        below = [] if number is None else descendants(number)
        return [one for one in below if word in command_of(one)]

    return find


def _whole(folder: Callable[[Federation], Path]) -> Callable[[Federation], list[int]]:
    def find(made: Federation) -> list[int]:
        number = running(folder(made))
        return [] if number is None else [number]

    return find


def _superlink(made: Federation) -> Path:
    return made.superlink


def _node(made: Federation) -> Path:
    return made.nodes[0]


VICTIMS: dict[str, Callable[[Federation], list[int]]] = {
    "SuperLink with its gate": _program("fedlens.deploy.superlink", _superlink),
    "SuperLink's starter of apps": _program("flower_superexec", _superlink),
    "server app": _program("flwr_serverapp", _superlink),
    "SuperLink's machine": _whole(_superlink),
    "SuperNode": _program("fedlens.deploy.supernode", _node),
    "node's starter of apps": _program("flower_superexec", _node),
    "client app": _program("flwr_clientapp", _node),
    "node's machine": _whole(_node),
    "operator's command": lambda _: [],
}
"""What is killed by name: finds its processes. A machine is the supervisor and all below it."""
MACHINES = ("SuperLink's machine", "node's machine")


# When


def _entries(folder: Path) -> int:
    try:
        return (folder / "ledger.jsonl").read_bytes().count(b"\n") - 1
    except OSError:
        return -1


def _round(folder: Path) -> int:
    try:
        return int(json.loads((folder / "status.json").read_bytes())["round"])
    except (OSError, ValueError, KeyError):
        return -1


def _computes(made: Federation, folder: Path) -> bool:
    return _entries(folder) >= 0 and bool(VICTIMS["client app"](made))


MOMENTS: dict[str, Callable[[Federation, Path], bool]] = {
    "the server app starts": lambda made, _: bool(VICTIMS["server app"](made)),
    "enrolment": lambda made, folder: (folder / "config.toml").exists(),
    "nodes compute": _computes,
    "round 1 charged": lambda made, folder: _entries(folder) >= 1,
    "round 1 whole": lambda made, folder: _round(folder) >= 1,
    "last round charged": lambda made, folder: _entries(folder) >= ROUNDS,
    "run done": lambda made, folder: _round(folder) >= ROUNDS,
}
"""When, by a run's folder and processes."""


def process_faults() -> Iterator[ProcessFault]:
    """Every victim at every moment, each victim once before any comes again."""
    victims, moments = list(VICTIMS), list(MOMENTS)
    for turn in range(len(moments)):
        for number, victim in enumerate(victims):
            yield ProcessFault(victim, moments[(2 + number + turn) % len(moments)])


# What comes of it


def processes_killed(made: Federation, count: int, faults: Iterator[ProcessFault]) -> Outcomes:
    """Kill processes of a federation under runs, and have the operator go on as told.

    Args:
        made: the federation, which is up.
        count: faults, a run each.
        faults: which.
    """
    found, config = Outcomes("processes"), made.root / "run.toml"
    lines = (f"{key} = {json.dumps(value)}\n" for key, value in SETTINGS.items())
    config.write_text("".join(lines), encoding="utf-8")
    for fault in itertools.islice(faults, count):
        before, name = len(found.problems), f"run-{secrets.token_hex(4)}"
        found.runs += 1
        try:
            _befall(made, fault, config, name, found)
        except DeployError as error:
            found.problems.append(f"{fault}: {error}")
        found.clean += len(found.problems) == before
    return found


def _befall(
    made: Federation, fault: ProcessFault, config: Path, name: str, found: Outcomes
) -> None:
    folder, statuses = made.run_folder(name), []
    command = made.submit(config, name)
    killed = _kill_when_due(made, fault, folder, command)
    found.faults += killed
    found.where[fault.victim if killed else "it was over before"] += 1
    for _ in range(TRIES):
        statuses.append(wait_for_end(command))
        found.problems += _of_words(made, fault, statuses[-1])
        found.problems += [f"{fault}: {what}" for what in _between(made, folder)]
        made.start()  # the machine's owner, where the supervisor itself was killed
        if statuses[-1] == 0:
            break
        _wait_until_free(folder)
        command = made.submit(config, name)
    else:
        found.problems.append(f"{fault}: does not go on: {statuses}")
        return
    run = as_run(made, folder)
    found.problems += [f"{fault}: {what}" for what in problems_at_end(run)]
    found.lost += lost_releases(run)
    made.notes.unlink(missing_ok=True)


def _kill_when_due(
    made: Federation, fault: ProcessFault, folder: Path, command: subprocess.Popen[bytes]
) -> bool:
    """Kill once the moment has come; False where the run was over before there was a victim."""
    end = time.monotonic() + MOMENT_SECONDS
    while command.poll() is None and time.monotonic() < end:
        if MOMENTS[fault.moment](made, folder):
            if fault.victim == "operator's command":
                command.kill()
                return True
            if victims := VICTIMS[fault.victim](made):
                (kill_whole if fault.victim in MACHINES else kill_one)(victims[0])
                return True
        time.sleep(0.005)
    return False


def wait_for_end(command: subprocess.Popen[bytes]) -> int:
    """The exit status of an operator's command.

    Raises:
        DeployError: it does not end.
    """
    try:
        return command.wait(COMMAND_SECONDS)
    except subprocess.TimeoutExpired:
        command.kill()
        command.wait()
        raise DeployError(f"the command does not end after {COMMAND_SECONDS:g} s") from None


def _of_words(made: Federation, fault: ProcessFault, status: int) -> list[str]:
    """What is wrong with the command's last line: it must say the fix."""
    if status in (0, -9):
        return []
    lines = (made.root / "said.log").read_text(errors="replace").splitlines()
    last = lines[-1] if lines else ""
    return [] if FIX.match(last) else [f"{fault}: no clear line (status {status}): {last!r}"]


def _between(made: Federation, folder: Path) -> list[str]:
    """What is wrong right after a fault."""
    if not (folder / "config.toml").exists():
        return []
    try:
        return problems_between(as_run(made, folder))
    except FedlensError as error:
        return [str(error)]


def as_run(made: Federation, folder: Path) -> DeployedRun:
    """A run of a federation for the checks of a run."""
    return DeployedRun(made.root, RunDirectory.open(folder).config(), "", folder)


def _wait_until_free(folder: Path) -> None:
    """Wait until no process trains in a run's folder: an operator's status tells so."""

    def free() -> bool:
        directory = RunDirectory(folder)
        if not directory.exists():
            return True
        with suppress(FedlensError), directory.locked():
            return True
        return False

    wait_for(free, COMMAND_SECONDS, f"a process keeps {folder}")
