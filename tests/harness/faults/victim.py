"""A run in a process of its own that a fault befalls, and what is written down of it.

The process notes each draw of noise in a file of its own before anything is made of it: the round,
whether the ledger on the disk had the round's entry, and a digest of what was released. So draws
can be compared over all the processes that a run went through.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from flwr.clientapp import ClientApp

import fedlens.client.app
import fedlens.server.round.step
import fedlens.server.training
from fedlens.accountant.ledger.evidence import EvidenceFile
from fedlens.accountant.ledger.ledger import Ledger
from fedlens.client.app import build_client_app
from fedlens.client.node.policy import NodePolicy
from fedlens.foundation import dates
from fedlens.foundation.errors import FedlensError
from fedlens.server.config.tree import Config
from fedlens.server.federation.membership import Membership
from fedlens.server.generation.generator import GeneratorTrainer
from fedlens.server.ledger.run_ledger import RoundCharge
from fedlens.server.round.publication import Publication
from fedlens.server.round.step import PrivateStep
from fedlens.server.run.directory import RunDirectory
from fedlens.server.training import train
from fedlens.simulations.federation.apps import node_users
from fedlens.simulations.transports.inprocess import InProcessGrid
from fedlens.store import Store
from harness.faults.draws import append_line, note_draws

Edge = Literal["before", "within", "after"]

PHASES: dict[str, tuple[Any, str]] = {
    "enrolment": (fedlens.server.training, "enrol"),
    "ledger begins": (Ledger, "create"),
    "folder bound": (fedlens.server.training, "bind"),
    "run entered": (Publication, "enter_run"),
    "quorum": (Membership, "wait_for_quorum"),
    "draw of users": (PrivateStep, "_draw"),
    "question": (fedlens.server.round.step, "exchange"),
    "node computes": (fedlens.client.app, "train"),
    "replies added up": (fedlens.server.round.step, "combine"),
    "round charged": (RoundCharge, "pay"),
    "ledger line": (Ledger, "_write_to"),
    "evidence": (EvidenceFile, "append"),
    "noise": (fedlens.server.round.step, "noised_mean"),
    "release kept": (RunDirectory, "save_release"),
    "release kept for diagnosis": (RunDirectory, "save_beside"),
    "generator learns": (GeneratorTrainer, "train"),
    "state saved": (RunDirectory, "save_state"),
    "round published": (Store, "record_progress"),
    "release dropped": (RunDirectory, "drop_release"),
    "samples drawn": (Publication, "samples"),
    "samples stored": (Store, "add_batch"),
    "run ended": (Publication, "end"),
}
"""What a run goes through, by a name: an owner and its function."""
SYNCED = "synced.jsonl"
"""Where a victim notes what it flushed to the disk."""
DRAWS, SHADOW = "draws.jsonl", "flushed"


@dataclass(frozen=True)
class Mishap:
    """What befalls one process."""

    phase: str = ""
    """Where it kills itself; empty for nowhere."""
    edge: Edge = "before"
    call: int = 1
    """At which call of the phase."""
    delay: float = 0.0
    """Seconds into the phase, where it is killed within."""
    largest_file: int = 0
    """Bytes that no file may grow above, as on a full disk; 0 for no limit."""
    clock: timedelta = timedelta()
    """By how much the clock is wrong from the beginning."""
    jump: timedelta = timedelta()
    """By how much it jumps in the middle of the run."""
    grid: Callable[[InProcessGrid], None] | None = None
    """What becomes of the network."""


@dataclass(frozen=True)
class Victim:
    """A run's place, and how it is to be carried out."""

    folder: Path
    """Holds ``run`` and the notes of its processes."""
    config: Config
    store: str = ""

    @property
    def run(self) -> Path:
        """The run's directory."""
        return self.folder / "run"

    def suffer(self, mishap: Mishap, patience: float = 600.0) -> int:
        """Train in a process of its own; its exit status: 0 done, 1 refused, below 0 killed."""
        context = multiprocessing.get_context("fork")
        process = context.Process(target=self._live, args=(mishap,))
        process.start()
        process.join(patience)
        if process.exitcode is None:
            process.kill()
            process.join()
            return 99
        return process.exitcode

    def app(self) -> ClientApp:
        """Nodes that know the configuration: reading it for each message takes the longest."""
        return build_client_app(
            lambda context: node_users(self.config, int(context.node_config["partition-id"])),
            lambda _: NodePolicy(records_per_user=5),
        )

    def _live(self, mishap: Mishap) -> None:
        sys.stderr = (self.folder / "errors.log").open("a")
        note_draws(fedlens.server.round.step, self.folder / DRAWS, self.run / "ledger.jsonl")
        _note_syncs(self.folder / SYNCED)
        _befall(mishap)
        directory = RunDirectory(self.run)
        try:
            if not directory.exists():
                directory = RunDirectory.create(self.run, self.config)
            grid = InProcessGrid(self.app(), self.config.data.nodes, self.config.flat())
            if mishap.grid is not None:
                mishap.grid(grid)
            train(self.config, directory, grid, store_url=self.store)
        except FedlensError as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            raise SystemExit(1) from None


def _befall(mishap: Mishap) -> None:
    if mishap.phase:
        _kill_at(mishap)
    if mishap.largest_file:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (mishap.largest_file, mishap.largest_file))
    if mishap.clock or mishap.jump:
        _Clock(mishap.clock, mishap.jump).set()


def kill() -> None:
    """End this process at once, as nothing can prevent."""
    os.kill(os.getpid(), signal.SIGKILL)


def _kill_at(mishap: Mishap) -> None:
    owner, name = PHASES[mishap.phase]
    original, calls = owner.__dict__[name], [0]
    static = isinstance(original, classmethod | staticmethod)
    function = original.__func__ if static else original

    def doomed(*args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        mine = calls[0] == mishap.call
        if mine and mishap.edge == "before":
            kill()
        if mine and mishap.edge == "within":
            threading.Timer(mishap.delay, kill).start()
        result = function(*args, **kwargs)
        if mine and mishap.edge == "after":
            kill()
        return result

    setattr(owner, name, type(original)(doomed) if static else doomed)


def _note_syncs(notes: Path) -> None:
    """Note what is flushed, files with their size and folders with their names; keep the files.

    A flushed file is kept under a second name, so that it can be put back where it was replaced by
    one whose name was never flushed.
    """
    real, kept = os.fsync, notes.parent / SHADOW
    kept.mkdir(exist_ok=True)

    def noted(fd: Any) -> None:
        number = fd if isinstance(fd, int) else fd.fileno()
        real(number)
        status, path = os.fstat(number), Path(f"/proc/self/fd/{number}").readlink()
        line: dict[str, Any] = {"inode": status.st_ino, "size": status.st_size, "path": str(path)}
        if path.is_dir():
            line["names"] = {item.name: item.inode() for item in os.scandir(path)}
        else:
            with contextlib.suppress(FileExistsError):
                os.link(path, kept / str(status.st_ino))
        append_line(notes, line)

    os.fsync = noted


@dataclass
class _Clock:
    """A clock that is wrong, and jumps once it was looked at some times."""

    offset: timedelta
    jump: timedelta
    looks: int = field(default=0)

    def set(self) -> None:
        real_time, clock = time.time, self

        class Wrong(datetime):
            @classmethod
            def now(cls, tz: Any = None) -> Any:
                return datetime.now(tz) + clock.shift()

        setattr(dates, "datetime", Wrong)  # noqa: B010  (dates export no such name)
        time.time = lambda: real_time() + clock.shift().total_seconds()

    def shift(self) -> timedelta:
        self.looks += 1
        return self.offset + (self.jump if self.looks > 6 else timedelta())
