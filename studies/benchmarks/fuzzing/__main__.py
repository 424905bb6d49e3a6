"""Feed every parser with spoiled input and print what came of it."""

from __future__ import annotations

import argparse
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import numpy as np
from rich.console import Console
from rich.table import Table

from foundation.errors import FedlensError
from studies.benchmarks.fuzzing.targets import FuzzTarget, targets

HANG_SECONDS = 20.0
WARM = 0.2
"""Share of the inputs after which memory is first looked at."""
_SHOWN = 5


class Hang(BaseException):
    """A parser took too long."""


@dataclass
class Fuzzed:
    """What a parser did with its inputs."""

    name: str
    inputs: int = 0
    accepted: int = 0
    refused: int = 0
    crashes: list[str] = field(default_factory=list)
    """What else than a FedlensError came out: type, and the input's beginning."""
    hangs: int = 0
    slowest: float = 0.0
    """Seconds."""
    grown: float = 0.0
    """MB that the process grew by after the first fifth of the inputs."""


def fuzz(target: FuzzTarget, count: int, seed: int) -> Fuzzed:
    """Feed a parser ``count`` spoiled inputs."""
    source, found, before = np.random.default_rng(seed), Fuzzed(target.name), 0.0
    for number in range(count):
        if number == int(WARM * count):
            before = resident()
        _one(target, source, found)
    found.grown = max(0.0, resident() - before)
    return found


def _one(target: FuzzTarget, source: np.random.Generator, found: Fuzzed) -> None:
    spoiled_input = target.make(source)
    started = time.perf_counter()
    found.inputs += 1
    try:
        with _limited():
            target.parse(spoiled_input)
        found.accepted += 1
    except FedlensError:
        found.refused += 1
    except Hang:
        found.hangs += 1
    except Exception as error:  # whatever it is, it is what is looked for
        found.crashes.append(f"{type(error).__name__}: {error} from {spoiled_input!r:.300}")
    found.slowest = max(found.slowest, time.perf_counter() - started)


@contextmanager
def _limited() -> Iterator[None]:
    def stop(_number: int, _frame: FrameType | None) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, HANG_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def resident() -> float:
    """MB of memory that the process has now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 2**20


def main() -> None:
    """Fuzz the named targets, or all, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m studies.benchmarks.fuzzing")
    parser.add_argument("--count", type=int, default=2000, help="inputs a parser")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="parsers whose name has this in it")
    args = parser.parse_args()
    columns = ("parser", "inputs", "read", "refused", "crashes", "hangs", "slowest", "grown by")
    table, console = Table(*columns), Console()
    with targets() as known:
        for name, target in known.items():
            if args.only not in name:
                continue
            done = fuzz(target, args.count, args.seed)
            table.add_row(
                name, f"{done.inputs:,}", f"{done.accepted:,}", f"{done.refused:,}",
                f"{len(done.crashes):,}", str(done.hangs), f"{done.slowest:.2f} s",
                f"{done.grown:.1f} MB",
            )  # fmt: skip
            for crash in done.crashes[:_SHOWN]:
                console.print(f"{name}: {crash}", markup=False, highlight=False)
    console.print(table)


if __name__ == "__main__":
    main()
