"""Carry out what is missing of a study, each step in a process of its own, some at a time."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from studies.table1.cells import Cell, Step, plan_of, read_json
from studies.table1.effort import Effort
from studies.table1.errors import StudyError
from studies.table1.guarantees import Guarantee, configuration, parse_guarantee
from studies.table1.rows import GUARANTEES, PRESET, Row

Say = Callable[[str], None]
_WORDS = {"train": "training", "measure": "measuring"}


def cells_of(
    rows: Sequence[Row],
    guarantees: Sequence[Guarantee],
    seeds: Sequence[int],
    out: Path,
    *,
    named: bool = True,
    first: bool = False,
) -> list[Cell]:
    """The cells of a table: one seed of everything, then the next.

    Args:
        rows: of the table.
        guarantees: for every row; without any, each row's own.
        seeds: of every row and guarantee.
        out: the study's folder.
        first: without any guarantees, only the first of each row's own.
        named: whether somebody named these rows. Rows that nobody named, and that are made for
            some guarantees only, are left out at others.

    Raises:
        StudyError: a guarantee is asked for of a named row that has its preset's noise and no
            other: no factor on the noise of a recipe as published gives it that guarantee.
    """
    fixed = [row.name for row in rows if row.guarantees == (PRESET,)]
    if named and fixed and (asked := [g for g in guarantees if g.named != PRESET]):
        raise StudyError(
            f"--guarantee {asked[0]}: row {fixed[0]!r} is a recipe as published, with its own "
            f"noise, and cannot be given one: leave --guarantee out, or give {PRESET}"
        )
    return [
        Cell.of(row, guarantee, seed, out)
        for seed in seeds
        for row in rows
        for guarantee in (guarantees or _own(row, first=first))
        if named or row.guarantees == GUARANTEES or str(guarantee) in row.guarantees
    ]


def _own(row: Row, *, first: bool) -> list[Guarantee]:
    return [parse_guarantee(text) for text in row.guarantees[: 1 if first else None]]


class Study:
    """A study's folder, and what is to be in it."""

    def __init__(
        self,
        cells: Sequence[Cell],
        out: Path,
        *,
        data_dir: str = "",
        effort: Effort,
        jobs: int = 1,
        say: Say = lambda _: None,
    ) -> None:
        """Plan a study; nothing is computed yet.

        Args:
            cells: what is wanted.
            out: the study's folder.
            data_dir: folder of the data sets' files; empty for the usual places.
            effort: how much is measured.
            jobs: steps at a time.
            say: told in words how far the study is.

        Raises:
            ConfigError: a row's settings cannot be used, or cannot meet a guarantee.
        """
        self.cells, self._out, self._jobs, self._say = tuple(cells), out.absolute(), jobs, say
        self._plans: dict[Path, dict[str, Any]] = {}
        quiet: dict[tuple[str, Guarantee], Any] = {}
        for cell in self.cells:
            # noise does not depend on the seed, so it is scaled once
            key = cell.row.name, cell.guarantee
            if key not in quiet:
                quiet[key] = configuration(cell.row, cell.guarantee, 0, data_dir)
            config = quiet[key].updated({"seed": cell.seed})
            self._plans[cell.folder] = plan_of(cell, config, effort)
        self._started = time.monotonic()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped, self._changing = False, threading.Lock()

    def missing(self) -> list[Cell]:
        """The cells that are not there, or not as planned."""
        return [cell for cell in self.cells if cell.missing(self._plans[cell.folder])]

    def run(self) -> list[str]:
        """Train and measure all that is missing.

        Returns:
            For each cell that failed, what went wrong. The others are there.
        """
        todo = self.missing()
        self._say(f"{len(self.cells)} cells, {len(todo)} of them to do, in {self._out}")
        with ThreadPoolExecutor(max_workers=self._jobs) as pool:
            try:
                failures = list(pool.map(self._cell, todo))
            except BaseException:
                self._stop()
                raise
        return [failure for failure in failures if failure]

    def _stop(self) -> None:
        with self._changing:
            self._stopped = True
            for process in self._running:
                process.terminate()

    def _cell(self, cell: Cell) -> str | None:
        if self._stopped:
            return f"{cell}: not begun"
        plan = self._plans[cell.folder]
        steps = cell.missing(plan)
        cell.begin(plan)
        for step in steps:
            self._say(f"{self._elapsed()} {cell}: {_WORDS[step]}")
            if reason := self._step(cell, step):
                return f"{cell}: {_WORDS[step]} failed: {reason}"
        return None

    def _step(self, cell: Cell, step: Step) -> str | None:
        """Carry out a step; returns why it failed, or None."""
        failure = cell.folder / "failure.txt"
        failure.unlink(missing_ok=True)
        started = time.monotonic()
        command = [sys.executable, "-m", "studies.table1.worker", step, str(cell.folder)]
        status = self._call([*command, str(self._out)], self._threads(cell, step))
        if status:
            return _reason(failure, status)
        self._say(
            f"{self._elapsed()} {cell}: {_WORDS[step]} took {time.monotonic() - started:.0f} s"
            f"{_result(cell, step)}"
        )
        return None

    def _threads(self, cell: Cell, step: Step) -> int:
        return self._plans[cell.folder]["config"]["generator.threads"] if step == "train" else 1

    def _call(self, command: Sequence[str], threads: int) -> int:
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": str(threads),
            "MKL_NUM_THREADS": str(threads),
        }
        with self._changing:
            if self._stopped:
                return 1
            # our own interpreter and module; what varies are paths
            process = subprocess.Popen(command, env=environment)  # noqa: S603
            self._running.add(process)
        try:
            return process.wait()
        finally:
            with self._changing:
                self._running.discard(process)

    def _elapsed(self) -> str:
        minutes, seconds = divmod(int(time.monotonic() - self._started), 60)
        return f"[{minutes:3d}:{seconds:02d}]"


def _reason(failure: Path, status: int) -> str:
    """Why a step failed: in its own words, or that it was ended from outside."""
    if failure.is_file():
        return failure.read_text(encoding="utf-8")
    return f"it ended with status {status}, before it could say why"


def _result(cell: Cell, step: Step) -> str:
    if step == "train":
        found = read_json(cell.folder / "training.json") or {}
        epsilon = found.get("epsilon_dp")
        return f", DP ε = {epsilon:.4g}" if epsilon is not None else ", not private"
    found = cell.measured or {}
    return f", student {found['students']['cnn']:.1%}, recognised {found['recognised']:.1%}"
