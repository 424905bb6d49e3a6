"""What the command prints: JSON for programs, words for people, a bar while it works."""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from accountant.wording import shown

if TYPE_CHECKING:
    from accountant.bounds import Bound
    from server.rounds import Observer, Progress


def add_json_flag(parser: argparse.ArgumentParser) -> None:
    """The flag that every computing verb has."""
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object as the last line"
    )


def print_json(value: Any) -> None:
    """One line of JSON on standard output."""
    sys.stdout.write(json.dumps(value, allow_nan=False) + "\n")
    sys.stdout.flush()


def say(text: str = "") -> None:
    """One line for people on standard output."""
    sys.stdout.write(text + "\n")


def figure(value: float | None) -> str:
    """An ε in words, rounded up to three digits."""
    return shown(math.inf if value is None else value)


def bound_record(bound: Bound) -> dict[str, Any]:
    """A bound as JSON values; null where there is no finite ε."""
    epsilon = bound.epsilon if math.isfinite(bound.epsilon) else None
    return {"epsilon": epsilon, "order": bound.order, "method": bound.method}


def program() -> str:
    """How this command is called here: by its name where the shell finds it, else by its path."""
    return "fedlens" if shutil.which("fedlens") else sys.argv[0]


@contextmanager
def progress_bar() -> Iterator[Observer | None]:
    """An observer that draws rounds, both ε and the time left; nothing off a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("round {task.fields[round]}"),
        BarColumn(),
        TextColumn("DP ε {task.fields[dp]}  Bayesian ε {task.fields[bdp]}"),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("train", total=None, round="0", dp="0", bdp="0")

        def show(progress: Progress) -> None:
            bar.update(
                task,
                total=progress.rounds,
                completed=progress.round - 1 + progress.share,
                round=f"{progress.round}/{progress.rounds}",
                dp=figure(progress.spending.dp_epsilon),
                bdp=figure(progress.spending.bdp_corrected),
            )

        yield show
