"""Ways to do the same work, taken in turn, and what each cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import psutil
import torch

Round = Callable[[], object]


@dataclass
class TurnCosts:
    """Of a way's rounds, a figure a turn."""

    cpu: list[float] = field(default_factory=list)
    """Processor milliseconds a user."""
    wall: list[float] = field(default_factory=list)
    """Milliseconds a user."""

    @property
    def users_a_second(self) -> float:
        """Of one busy core, by the median."""
        return 1000.0 / float(np.median(self.cpu))


def tree_seconds() -> float:
    """Processor seconds of this process and of all it started that still run."""
    total = 0.0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            spent = process.cpu_times()
        except psutil.Error:  # it ended
            continue
        total += spent.user + spent.system
    return total


def children_megabytes() -> float:
    """Memory of all that this process started, each process's own part."""
    total = 0
    for process in psutil.Process().children(recursive=True):
        try:
            total += process.memory_full_info().uss
        except psutil.Error:
            continue
    return total / 1e6


def take_turns(
    ways: Mapping[str, Round],
    trees: frozenset[str],
    cohort: int,
    turns: int,
    tell: Callable[[str], None],
) -> dict[str, TurnCosts]:
    """Each way once to warm up and then in turn.

    A way is timed by its thread (on a GPU by the wall), or where it is in ``trees`` by all
    processes. Another's turn is not in it, so a busy machine slows all alike.
    """
    costs = {name: TurnCosts() for name in ways}
    for turn in range(turns + 1):
        for name, one in ways.items():
            tell(f"turn {turn} of {turns}: {name}, {cohort} users")
            clock = tree_seconds if name in trees else own_clock()
            spent, wall = clock(), time.perf_counter()
            one()
            if turn:
                costs[name].cpu.append(1e3 * (clock() - spent) / cohort)
                costs[name].wall.append(1e3 * (time.perf_counter() - wall) / cohort)
    return costs


def own_clock() -> Callable[[], float]:
    """Of this thread's work; a GPU's shows on the wall's clock alone."""
    return time.perf_counter if torch.cuda.is_available() else time.thread_time


def ratios(costs: Mapping[str, TurnCosts], name: str, than: str) -> tuple[float, float, float]:
    """How many times the time of ``than`` a way takes, turn by turn: least, median, most."""
    each = np.array(costs[name].cpu) / np.array(costs[than].cpu)
    return float(each.min()), float(np.median(each)), float(each.max())
