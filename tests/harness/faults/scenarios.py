"""Faults one kind at a time: each goes on until its runs are done, and says what was wrong."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fedlens.client.messages import TRAIN
from fedlens.server.config.tree import Config
from fedlens.simulations.transports.inprocess import InProcessGrid
from harness.faults.checks import lost_releases, problems_at_end, problems_between
from harness.faults.victim import PHASES, Edge, Mishap, Victim

ROUNDS = 10
TRIES = 40
"""Processes that a run may take after its last fault before it is said to hang."""
SETTINGS: dict[str, object] = {
    "schedule": "critic",
    "data.users": 40,
    "data.nodes": 3,
    "data.samples_per_user": 5,
    "privacy.delta": 1e-3,
    "tasks.critic.kind": "frozen",
    "tasks.critic.rounds": ROUNDS,
    "tasks.critic.sampling_rate": 0.5,
    "tasks.critic.generator_steps": 1,
    "generator.batch": 20,
    "generator.width": 4,
    "release.samples": 10,
    "release.strip": 1,
    "membership.patience": 5.0,
}
EDGES: tuple[Edge, ...] = ("before", "within", "after")
PHASES_AND_EDGES = len(PHASES) * len(EDGES)


@dataclass
class Outcomes:
    """What came of a kind of fault."""

    kind: str
    faults: int = 0
    runs: int = 0
    clean: int = 0
    """Faults after which nothing was wrong, neither at once nor at the run's end."""
    lost: int = 0
    """Releases that were paid for and taken by a fault."""
    problems: list[str] = field(default_factory=list)
    where: Counter[str] = field(default_factory=Counter)


class Places(Protocol):
    """Where runs and their stores go."""

    def __call__(self) -> tuple[Path, str]:
        """A fresh folder, and the URL of a fresh store; empty for the run's own."""


def settings(**changes: object) -> Config:
    """The small run's configuration."""
    named = {key.replace("__", "."): value for key, value in changes.items()}
    return Config().updated({**SETTINGS, **named})


def befallen(
    kind: str,
    mishaps: Iterator[Mishap],
    count: int,
    places: Places,
    *,
    config: Config | None = None,
    afterwards: Callable[[Victim], object] | None = None,
) -> Outcomes:
    """Let ``count`` faults happen, over as many runs as it takes, and have each run go on.

    Args:
        kind: of the faults, for the table.
        mishaps: one for each process; those that miss are not counted.
        count: faults.
        places: where runs go.
        config: the small run's by default.
        afterwards: what happens to the files after each fault.
    """
    found, per_run = Outcomes(kind), max(1, ROUNDS // 2)
    while found.faults < count:
        folder, url = places()
        victim, here = Victim(folder, config or settings(), url), 0
        found.runs += 1
        before = len(found.problems)
        while here < per_run and found.faults < count:
            mishap = next(mishaps)
            status = victim.suffer(mishap)
            if status == 0:
                break
            here, found.faults = here + 1, found.faults + 1
            found.where[mishap.phase or kind] += 1
            if afterwards is not None:
                afterwards(victim)
            found.problems += [f"{mishap}: {what}" for what in problems_between(victim)]
        _finish(victim, found)
        if len(found.problems) == before:
            found.clean += here
    return found


def _finish(victim: Victim, found: Outcomes) -> None:
    for _ in range(TRIES):
        status = victim.suffer(Mishap())
        if status == 0:
            found.problems += problems_at_end(victim)
            found.lost += lost_releases(victim)
            return
    log = (victim.folder / "errors.log").read_text(errors="replace")
    found.problems.append(f"does not go on (status {status}): {log[-400:]}")


# Kinds


def kills(source: np.random.Generator) -> Iterator[Mishap]:
    """A kill at a random edge of a random phase, at a random call of it."""
    names = list(PHASES)
    while True:
        phase = names[int(source.integers(len(names)))]
        edge = EDGES[int(source.integers(3))]
        call = int(source.integers(1, 5))
        yield Mishap(phase, edge, call, float(source.uniform(0, 0.02)))


def every_phase() -> Iterator[Mishap]:
    """A kill at each edge of each phase, at its first call."""
    for phase, edge in itertools.product(PHASES, EDGES):
        yield Mishap(phase, edge, 1, 0.001)
    while True:
        yield Mishap()


def full_disks(source: np.random.Generator) -> Iterator[Mishap]:
    """A disk that takes no file above a random size: lines are cut in the middle."""
    while True:
        yield Mishap(largest_file=int(source.integers(200, 250_000)))


def wrong_clocks(source: np.random.Generator) -> Iterator[Mishap]:
    """A clock up to two years off that jumps by up to a day, and a kill some time after."""
    kill = kills(source)
    while True:
        off = timedelta(days=int(source.integers(-700, 700)))
        jump = timedelta(seconds=int(source.integers(-86_400, 86_400)))
        one = next(kill)
        yield Mishap(one.phase, one.edge, one.call, one.delay, clock=off, jump=jump)


def bad_networks(source: np.random.Generator) -> Iterator[Mishap]:
    """A network that loses, doubles and delays messages, and a kill some time after."""
    kill = kills(source)
    while True:
        one, seed = next(kill), int(source.integers(2**31))
        yield Mishap(one.phase, one.edge, one.call, one.delay, grid=_spoiler(seed))


def _spoiler(seed: int) -> Callable[[InProcessGrid], None]:
    def spoil(grid: InProcessGrid) -> None:
        source, push, pull = np.random.default_rng(seed), grid.push_messages, grid.pull_messages

        def pushed(messages: Any) -> Any:
            messages = list(messages)
            training = bool(messages) and messages[0].metadata.message_type == TRAIN
            ids = list(push(messages))
            if training and source.random() < 0.5:  # one node's reply is lost
                grid.pull_messages([ids[int(source.integers(len(ids)))]])
            return ids

        def pulled(ids: Any) -> Any:
            if source.random() < 0.2:
                time.sleep(float(source.uniform(0, 0.05)))
            found = list(pull(ids))
            return found + found[:1] if source.random() < 0.2 else found  # doubled

        for name, spoiled in (("push_messages", pushed), ("pull_messages", pulled)):
            setattr(grid, name, spoiled)

    return spoil


# The database


def databases_killed(
    count: int, places: Places, data: Path, restart: Callable[[], None]
) -> Outcomes:
    """Kill PostgreSQL's whole server under runs, start it again, and have them go on.

    Args:
        count: faults.
        places: whose stores lie on that server.
        data: folder of the server, which has its process id.
        restart: starts it on the same folder.
    """
    found, source = Outcomes("database killed"), np.random.default_rng(5)
    while found.faults < count:
        folder, url = places()
        victim, before = Victim(folder, settings(), url), len(found.problems)
        found.runs += 1
        timer = threading.Timer(float(source.uniform(0.2, 3.0)), kill_server, [data])
        timer.start()
        status = victim.suffer(Mishap())
        timer.join()
        restart()
        found.faults += 1
        found.where["finished before" if status == 0 else "while it ran"] += 1
        found.problems += problems_between(victim)
        _finish(victim, found)
        found.clean += len(found.problems) == before
    return found


def kill_server(data: Path) -> None:
    """End a PostgreSQL server and all its processes at once.

    Its notes of its process go too: where no one reaps it, the dead one would pass for alive.
    """
    parent = int((data / "postmaster.pid").read_text(encoding="ascii").split()[0])
    for process in [parent, *_children(parent)]:
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue
    time.sleep(0.5)
    for note in (data / "postmaster.pid", *data.glob(".s.PGSQL.*")):
        note.unlink(missing_ok=True)


def _children(parent: int) -> list[int]:
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.append(int(status.parent.name))
    return found
