"""Feed every parser with spoiled input and print what came of it."""

from __future__ import annotations

import argparse
import math
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.table import Table

from fedlens.foundation.errors import FedlensError
from harness.fuzzing.mutations import Source
from harness.fuzzing.targets import FuzzTarget, targets

HANG_SECONDS = 20.0
WARM = 0.2
"""Share of the inputs after which memory is first looked at."""
MOST_EXAMPLES = 8


class Hang(BaseException):
    """A parser took too long."""


@dataclass
class Fuzzed:
    """What a parser did with its inputs."""

    name: str
    inputs: int = 0
    accepted: int = 0
    refused: int = 0
    crashes: int = 0
    """How often something else than a FedlensError came out."""
    examples: dict[str, str] = field(default_factory=dict)
    """The first input of each kind of these, by type and message."""
    hangs: int = 0
    slowest: float = 0.0
    """Seconds."""
    seconds: float = 0.0
    """Of computation."""
    grown: float = 0.0
    """MB that the process grew by after the first fifth of the inputs."""


def fuzz(target: FuzzTarget, count: int, seed: int, seconds: float = math.inf) -> Fuzzed:
    """Feed a parser ``count`` spoiled inputs, or as many as ``seconds`` of computation allow."""
    source, found, began = Source(seed), Fuzzed(target.name), time.process_time()
    share, before = 0.0, 0.0
    with _interrupted():
        while share < 1.0:
            _one(target, source, found)
            found.seconds = time.process_time() - began
            share = max(found.inputs / count, found.seconds / seconds)
            if not before and share >= WARM:
                before = resident()
    found.grown = max(0.0, resident() - before)
    return found


def _one(target: FuzzTarget, source: Source, found: Fuzzed) -> None:
    spoiled_input = target.make(source)
    started = time.perf_counter()
    found.inputs += 1
    try:
        signal.setitimer(signal.ITIMER_REAL, HANG_SECONDS)
        target.parse(spoiled_input)
        found.accepted += 1
    except FedlensError:
        found.refused += 1
    except Hang:
        found.hangs += 1
    except Exception as error:  # whatever it is, it is what is looked for
        found.crashes += 1
        if len(found.examples) < MOST_EXAMPLES:
            problem = f"{type(error).__name__}: {error}"
            found.examples.setdefault(f"{problem:.120}", f"{spoiled_input!r:.300}")
    found.slowest = max(found.slowest, time.perf_counter() - started)


@contextmanager
def _interrupted() -> Iterator[None]:
    """Have the timer that `_one` sets raise `Hang`; the timer is off afterwards."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, stop)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def resident() -> float:
    """MB of memory that the process has now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 2**20


def row_of_parser(done: Fuzzed) -> tuple[str, ...]:
    """A row of the table."""
    return (
        done.name, f"{done.inputs:,}", f"{done.accepted:,}", f"{done.refused:,}",
        f"{done.crashes:,}", str(done.hangs), f"{done.slowest:.2f} s", f"{done.grown:.1f} MB",
        f"{done.seconds:.0f} s",
    )  # fmt: skip


def main() -> None:
    """Fuzz the named targets, or all, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m harness.fuzzing")
    parser.add_argument("--count", type=int, default=2000, help="inputs a parser")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="parsers whose name has this in it")
    parser.add_argument("--seconds", type=float, default=math.inf, help="most a parser, of CPU")
    args = parser.parse_args()
    columns = (
        "parser",
        "inputs",
        "read",
        "refused",
        "crashes",
        "hangs",
        "slowest",
        "grown by",
        "CPU",
    )
    table, console = Table(*columns), Console()
    with targets() as known:
        for name, target in known.items():
            if args.only not in name:
                continue
            done = fuzz(target, args.count, args.seed, args.seconds)
            row = row_of_parser(done)
            table.add_row(*row)
            console.print(" | ".join(row), highlight=False)
            for problem, example in done.examples.items():
                console.print(f"{name}: {problem} from {example}", markup=False, highlight=False)
    console.print(table)


if __name__ == "__main__":
    main()
