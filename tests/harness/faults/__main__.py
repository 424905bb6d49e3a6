"""All faults, and a table of what came of them."""

from __future__ import annotations

import argparse
import itertools
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from fedlens.server.run.directory import RunDirectory
from fedlens.server.training import train
from fedlens.simulations.transports.inprocess import InProcessGrid
from fedlens.store import upgrade
from harness.faults.power import cut_power
from harness.faults.scenarios import (
    PHASES_AND_EDGES,
    Outcomes,
    Places,
    bad_networks,
    befallen,
    databases_killed,
    every_phase,
    full_disks,
    kills,
    settings,
    wrong_clocks,
)
from harness.faults.victim import Mishap, Victim

ENGINES = ("sqlite", "postgres")
STARTS = 300
COLUMNS = ("store", "fault", "faults", "runs", "clean", "releases lost", "problems", "seconds")
SLOTTED = {"rounds__slot": 0.05}
HASTY = {"rounds__deadline": 1.0, "membership__least_nodes": 0.3, "membership__least_users": 0.3}


@contextmanager
def postgres(folder: Path) -> Iterator[tuple[str, Path, Callable[[], None]]]:
    """A PostgreSQL server of its own: its URL, its folder, and what starts it again."""
    from pgserver.postgres_server import get_server

    server = get_server(folder / "data", cleanup_mode="stop")

    def start_again() -> None:
        for _ in range(STARTS):
            # It gives up after 10 s, where recovering takes longer, and asserts that it is ready.
            with suppress(AssertionError, subprocess.SubprocessError):
                server.ensure_postgres_running()
                return
            time.sleep(1.0)
        raise RuntimeError(f"PostgreSQL does not start again in {folder / 'data'}")

    try:
        yield server.get_uri(), folder / "data", start_again
    finally:
        server.cleanup()


def fresh_places(root: Path, server: str) -> Places:
    """Folders one after another, with a database each where there is a server."""
    numbers = itertools.count(1)

    def place() -> tuple[Path, str]:
        number = next(numbers)
        folder = root / f"run{number}"
        folder.mkdir(parents=True)
        if not server:
            return folder, ""
        return folder, new_database(server, f"faults{number}")

    return place


def new_database(server: str, name: str) -> str:
    """A store on a server."""
    from sqlalchemy import create_engine, make_url, text

    engine = create_engine(make_url(server).set(drivername="postgresql+psycopg"))
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(f'CREATE DATABASE "{name}" TEMPLATE template0'))
    engine.dispose()
    url = server.replace("/postgres?", f"/{name}?")
    upgrade(url)
    return url


Kinds = dict[str, Callable[[], Outcomes]]


def all_kinds(places: Places, count: int) -> Kinds:
    """Every kind of fault that needs no server of its own, by its name."""
    source, fewer = np.random.default_rng(3), max(1, count // 5)
    slotted, hasty = settings(**SLOTTED), settings(**HASTY)

    def kind(name: str, mishaps: Iterator[Mishap], number: int, **more: Any) -> Outcomes:
        return befallen(name, mishaps, number, places, **more)

    return {
        "kill -9, every phase": lambda: kind("every phase", every_phase(), PHASES_AND_EDGES),
        "kill -9, at random": lambda: kind("random", kills(source), count),
        "power cut": lambda: kind("power", kills(source), fewer, afterwards=cut_power),
        "disk full": lambda: kind("disk", full_disks(source), fewer),
        "clock wrong": lambda: kind("clock", wrong_clocks(source), fewer, config=slotted),
        "network loses": lambda: kind("network", bad_networks(source), fewer, config=hasty),
    }


def main() -> None:
    """Let all faults happen and print the table."""
    parser = argparse.ArgumentParser(prog="python -m harness.faults")
    parser.add_argument("--kills", type=int, default=200, help="random kills; others a fifth")
    parser.add_argument("--engine", choices=(*ENGINES, "both"), default="both")
    parser.add_argument("--only", default="", help="kinds whose name has this in it")
    args = parser.parse_args()
    warm()
    table, console = Table(*COLUMNS), Console()
    for engine in ENGINES if args.engine == "both" else (args.engine,):
        for row, problems in _rows(engine, args.kills, args.only):
            table.add_row(*row)
            console.print(" ".join(row), highlight=False)
            for problem in problems[:5]:
                console.print(f"  {problem}", markup=False, highlight=False)
    console.print(table)


def warm() -> None:
    """Do once, before any process is forked, what each would else do anew."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        config = settings(tasks__critic__rounds=1)
        victim = Victim(Path(folder), config)
        directory = RunDirectory.create(victim.run, config)
        grid = InProcessGrid(victim.app(), config.data.nodes, config.flat())
        train(config, directory, grid)


def _rows(engine: str, count: int, only: str) -> Iterator[tuple[list[str], list[str]]]:
    root = Path(tempfile.mkdtemp(prefix="faults-"))
    try:
        with ExitStack() as stack:
            server = stack.enter_context(postgres(root)) if engine == "postgres" else None
            places = fresh_places(root, server[0] if server else "")
            kinds = all_kinds(places, count)
            if server is not None:
                more = max(1, count // 10), places, *server[1:]
                kinds["database killed"] = lambda: databases_killed(*more)
            for name in (name for name in kinds if only in name):
                started = time.monotonic()
                done = kinds[name]()
                yield row_of(engine, name, done, time.monotonic() - started), done.problems
    finally:
        shutil.rmtree(root, ignore_errors=True)


def row_of(engine: str, name: str, done: Outcomes, seconds: float) -> list[str]:
    """A row of the table."""
    return [
        engine, name, str(done.faults), str(done.runs), f"{done.clean} of {done.faults}",
        str(done.lost), str(len(done.problems)), f"{seconds:.0f}",
    ]  # fmt: skip


if __name__ == "__main__":
    main()
