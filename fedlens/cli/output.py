"""What the command prints: JSON for programs, words and tables for people, a bar while it works."""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fedlens.accountant.wording import shown
from fedlens.foundation.errors import ExitStatus

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from fedlens.server.round.status import OnProgress, Progress


_BY_VERDICT = {
    "falls": ExitStatus.ALARM,
    "cannot tell": ExitStatus.UNDECIDED,
    "holds": ExitStatus.DONE,
}


def status_of(verdicts: Iterable[str]) -> ExitStatus:
    """The exit status of the worst of verdicts: falls, cannot tell, holds; done for none."""
    found = set(verdicts)
    return next((status for one, status in _BY_VERDICT.items() if one in found), ExitStatus.DONE)


def print_json(value: dict[str, Any]) -> None:
    """One line of JSON on standard output."""
    sys.stdout.write(json.dumps(value, allow_nan=False) + "\n")
    sys.stdout.flush()


def say(text: str = "", *, at_once: bool = False) -> None:
    """One line on standard output; at once for a program that reads along."""
    sys.stdout.write(text + "\n")
    if at_once:
        sys.stdout.flush()


def tell(text: str) -> None:
    """One line for people on standard error, at once: how far a long computation is."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str = "") -> None:
    """A table on standard output, as wide as it needs where that is no terminal."""
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    table = Table(*columns, title=title or None, title_justify="left", box=SIMPLE)
    for row in rows:
        table.add_row(*row)
    width = None if sys.stdout.isatty() else 200
    Console(width=width, soft_wrap=True).print(table)


def figure(value: float | None) -> str:
    """An ε in words, rounded up to three digits."""
    return shown(math.inf if value is None else value)


def program() -> str:
    """How this command is called here: by its name where the shell finds it, else by its path."""
    return "fedlens" if shutil.which("fedlens") else sys.argv[0]


@contextmanager
def _bar(*texts: str) -> Iterator[Bar | None]:
    """A bar on standard error after ``texts``, with the time left; nothing off a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    before, *after = (TextColumn(text) for text in texts)
    columns = (before, BarColumn(), *after, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        yield bar


@contextmanager
def round_bar() -> Iterator[OnProgress | None]:
    """An observer of training that draws rounds, both ε and the time left."""
    figures = "DP ε {task.fields[dp]}  Bayesian ε {task.fields[bdp]}"
    with _bar("round {task.fields[round]}", figures) as bar:
        if bar is None:
            yield None
            return
        task = bar.add_task("train", total=None, round="0", dp="0", bdp="0")

        def show(progress: Progress) -> None:
            bar.update(
                task,
                total=1.0,
                completed=progress.whole,
                round=f"{progress.round}/{progress.rounds}",
                dp=figure(progress.spending.dp_epsilon),
                bdp=figure(progress.spending.bdp_corrected),
            )

        yield show


@contextmanager
def step_bars() -> Iterator[Callable[[str, int, int], None] | None]:
    """An observer that draws one bar for each thing that is measured: its name, done, in all."""
    with _bar("{task.description}") as bar:
        if bar is None:
            yield None
            return
        tasks = {}

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done)

        yield show
