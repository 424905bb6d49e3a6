"""Kill the processes of a deployment, and the dashboard, and print what came of it."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from harness.deployed_faults.dashboards import commands_beside, dashboards_killed
from harness.deployed_faults.federation import federation
from harness.deployed_faults.processes import process_faults, processes_killed
from harness.faults.__main__ import COLUMNS, row_of, warm
from harness.faults.scenarios import Outcomes


def main() -> None:
    """Let the faults happen and print the table."""
    parser = argparse.ArgumentParser(prog="python -m harness.deployed_faults")
    parser.add_argument("--processes", type=int, default=63, help="kills of a deployment's")
    parser.add_argument("--after", type=int, default=0, help="leave out as many of these before")
    parser.add_argument("--dashboards", type=int, default=60, help="kills of a dashboard")
    parser.add_argument("--beside", type=int, default=200, help="commands beside a dashboard")
    parser.add_argument("--store", default="", help="URL of an empty store for these; else SQLite")
    args = parser.parse_args()
    warm()
    table, console = Table(*COLUMNS), Console()
    chosen = slice(args.after, args.after + args.processes)
    for name, done, seconds in _done(chosen, args.dashboards, args.beside, args.store):
        row = row_of(args.store.partition(":")[0] or "sqlite", name, done, seconds)
        table.add_row(*row)
        console.print(" ".join(row), highlight=False)
        for problem in done.problems[:5]:
            console.print(f"  {problem}", markup=False, highlight=False)
    console.print(table)


def _done(
    processes: slice, dashboards: int, beside: int, store: str
) -> Iterator[tuple[str, Outcomes, float]]:
    if beside:
        with tempfile.TemporaryDirectory(prefix="faults-") as root:
            began = time.monotonic()
            found = commands_beside(beside, lambda: (Path(root), store))
            yield "commands beside it", found, time.monotonic() - began
    with tempfile.TemporaryDirectory(prefix="faults-") as root:
        if dashboards:
            began = time.monotonic()
            found = dashboards_killed(dashboards, lambda: (Path(root), ""))
            yield "dashboard", found, time.monotonic() - began
    faults = list(process_faults())[processes]
    if not faults:
        return
    with tempfile.TemporaryDirectory(prefix="faults-") as root, federation(Path(root)) as made:
        for fault in faults:
            began = time.monotonic()
            found = processes_killed(made, 1, iter([fault]))
            yield f"{fault.victim}, {fault.moment}", found, time.monotonic() - began


if __name__ == "__main__":
    main()
