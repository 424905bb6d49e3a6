"""A federation of real processes on loopback, with TLS and keys, for faults to befall."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fedlens.deploy.background import running, start_in_background, stop_in_background
from fedlens.deploy.checking import still_lacking
from fedlens.deploy.initialise import FederationPlan, initialise
from fedlens.deploy.layout import SETTINGS, DeployError
from fedlens.deploy.status import Unreachable, federation_status
from fedlens.foundation.unlabelled import NO_CLASS
from harness.deployed_faults.injection import injected

USERS, RECORDS = 20, 3
READY_SECONDS = 300.0


@dataclass
class Federation:
    """A SuperLink and its nodes, and the processes that run for them."""

    root: Path
    notes: Path
    """Draws of noise, by any of its processes."""
    messages: Path
    """Folder of messages, where its server is hostile."""
    environment: Mapping[str, str] = field(repr=False)

    @property
    def superlink(self) -> Path:
        """Folder of the SuperLink."""
        return self.root / "federation" / "superlink"

    @property
    def nodes(self) -> list[Path]:
        """Folders of the nodes."""
        return sorted((self.root / "federation" / "nodes").iterdir())

    @property
    def operator(self) -> Path:
        """Folder of the operator."""
        return self.root / "federation" / "operators" / "operator"

    def start(self) -> None:
        """Start whatever does not run, and wait until it is ready.

        Raises:
            DeployError: it is not ready in time.
        """
        with _environment(self.environment):
            for folder in (self.superlink, *self.nodes):
                if running(folder) is None:
                    start_in_background(folder)
        wait_for(self.ready, READY_SECONDS, "the federation is not ready", reap=True)

    def ready(self) -> bool:
        """Whether the SuperLink answers and sees every node."""
        if any(still_lacking(folder) is not None for folder in (self.superlink, *self.nodes)):
            return False
        with suppress(Unreachable):
            seen = federation_status(self.superlink)["nodes"]
            return len(seen) == len(self.nodes) and all(node["status"] == "online" for node in seen)
        return False

    def stop(self) -> None:
        """End all that runs."""
        for folder in (*self.nodes, self.superlink):
            with suppress(DeployError):
                stop_in_background(folder)

    def submit(self, config: Path, name: str) -> subprocess.Popen[bytes]:
        """Have an operator start a run, or go on with it; what is said goes to ``said.log``."""
        with (self.root / "said.log").open("ab") as said:
            return subprocess.Popen(
                [
                    *(sys.executable, "-m", "fedlens.cli", "deploy", "run", str(self.operator)),
                    *("--config", str(config), "--name", name),
                ],
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
            )

    def run_folder(self, name: str) -> Path:
        """Folder of a run."""
        return self.superlink / "runs" / name


@contextmanager
def federation(
    root: Path,
    names: tuple[str, ...] = ("north", "south"),
    unit: str = "user",
    *,
    hostile: bool = False,
    labelled: int = USERS,
) -> Iterator[Federation]:
    """A federation that is up; all its processes end with the context.

    Args:
        root: an empty folder.
        names: of its nodes.
        unit: that nodes answer for.
        hostile: have its server play messages again (`harness.deployed_faults.hostile_grid`).
        labelled: how many of a node's users have labels.
    """
    initialise(root / "federation", FederationPlan(nodes=names, port=free_port()))
    notes, messages = root / "draws.jsonl", root / "messages"
    messages.mkdir()
    environment = injected(root / "injected", notes, messages if hostile else None)
    made = Federation(root, notes, messages, environment)
    for number, node in enumerate(made.nodes):
        _settle(node, number, unit, labelled)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def _settle(node: Path, number: int, unit: str, labelled: int) -> None:
    """Give a node a port of its own and users."""
    settings = node / SETTINGS
    text = settings.read_text(encoding="utf-8").replace(f"{9501 + number}", str(free_port()))
    settings.write_text(text.replace("[node]\n", f'[node]\nunits = "{unit}"\n'), encoding="utf-8")
    rng, count = np.random.default_rng(number), USERS * RECORDS
    bare = np.arange(count) >= labelled * RECORDS
    descriptor = os.open(node / "data", os.O_WRONLY | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        np.savez(
            file,
            images=rng.integers(0, 256, (count, 1, 28, 28), np.uint8),
            labels=np.where(bare, NO_CLASS, rng.integers(0, 2, count)),
            users=np.repeat(np.arange(USERS), RECORDS),
            classes=np.array(2),
        )


def free_port() -> int:
    """A port of loopback that no one listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(
    what: Callable[[], bool],
    seconds: float,
    problem: str,
    *,
    pause: float = 0.2,
    reap: bool = False,
) -> None:
    """Wait until something holds.

    Raises:
        DeployError: it does not in time.
    """
    end = time.monotonic() + seconds
    while not what():
        if reap:
            reap_children()
        if time.monotonic() > end:
            raise DeployError(f"{problem} after {seconds:g} s")
        time.sleep(pause)


def reap_children() -> None:
    """Take note of children that ended: one that is a zombie would pass for alive."""
    for _ in range(20):
        with suppress(ChildProcessError):
            if os.waitpid(-1, os.WNOHANG) != (0, 0):
                continue
        return


@contextmanager
def _environment(wanted: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(wanted)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


# Processes


def kill_whole(number: int) -> None:
    """Kill a process and all that it started, wherever its children moved."""
    for victim in (number, *descendants(number)):
        kill_one(victim)


def kill_one(number: int) -> None:
    """Kill a process as nothing can prevent."""
    with suppress(ProcessLookupError):
        os.kill(number, signal.SIGKILL)


def descendants(number: int) -> list[int]:
    """Numbers of all processes below one, from the nearest on."""
    parents = process_parents()
    found, at = [number], 0
    while at < len(found):
        found += [child for child, parent in parents.items() if parent == found[at]]
        at += 1
    return found[1:]


def process_parents() -> dict[int, int]:
    """The parent of each process that is not dead."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z":
            found[int(path.parent.name)] = int(fields[1])
    return found


def command_of(number: int) -> str:
    """A process's command line; empty where there is none such."""
    try:
        words = Path(f"/proc/{number}/cmdline").read_bytes()
    except OSError:
        return ""
    return words.replace(b"\0", b" ").decode(errors="replace")
