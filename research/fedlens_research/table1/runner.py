"""Carry out what is missing of the table, each step in a process of its own, some at a time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedlens.models.precision import Precision
from fedlens_research.framework.errors import StudyError, TrialFailed
from fedlens_research.framework.store import read_json
from fedlens_research.framework.trials import Processes, Report, run_trials
from fedlens_research.table1.evaluation import EvaluationBudget
from fedlens_research.table1.guarantees import Guarantee, configuration, parse_guarantee
from fedlens_research.table1.rows import GUARANTEES, PRECISION, PRESET, TableRow
from fedlens_research.table1.trials import TRAINED_FILE, Step, TableTrial, plan_of

_WORDS = {"train": "training", "measure": "measuring"}


def trials_of(
    rows: Sequence[TableRow],
    guarantees: Sequence[Guarantee],
    seeds: Sequence[int],
    out: Path,
    *,
    named: bool = True,
    first: bool = False,
) -> list[TableTrial]:
    """The trials of a table: one seed of everything, then the next.

    Without guarantees each row has its own; ``first``: only the first of these. Rows that were not
    named, where they are made for some guarantees only, are left out at the rest.

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
        TableTrial.of(row, guarantee, seed, out)
        for seed in seeds
        for row in rows
        for guarantee in (guarantees or _own(row, first=first))
        if named or row.guarantees == GUARANTEES or str(guarantee) in row.guarantees
    ]


def _own(row: TableRow, *, first: bool) -> list[Guarantee]:
    return [parse_guarantee(text) for text in row.guarantees[: 1 if first else None]]


class TableRun:
    """The table's folder, and what is to be in it."""

    def __init__(
        self,
        trials: Sequence[TableTrial],
        out: Path,
        *,
        data_dir: str = "",
        effort: EvaluationBudget,
        precision: Precision = "float32",
        jobs: int = 1,
        say: Report = lambda _: None,
    ) -> None:
        """Plan all trials; nothing is computed yet.

        Args:
            trials: to plan.
            out: folder of the study.
            data_dir: of the data sets' files; empty means the usual places.
            effort: how much is measured.
            precision: of the generators' training; for ``auto`` what float32 made serves too.
            jobs: trials at a time.
            say: told what is done.

        Raises:
            ConfigError: a row's settings cannot be used, or cannot meet a guarantee.
        """
        self.trials, self._out, self._jobs, self._say = tuple(trials), out.absolute(), jobs, say
        self._plans: dict[Path, dict[str, Any]] = {}
        quiet: dict[tuple[str, Guarantee], Any] = {}
        for trial in self.trials:
            # noise does not depend on the seed, so it is scaled once
            key = trial.row.name, trial.guarantee
            if key not in quiet:
                found = configuration(trial.row, trial.guarantee, 0, data_dir)
                quiet[key] = found.updated({PRECISION: precision})
            config = quiet[key].updated({"seed": trial.seed})
            self._plans[trial.folder] = plan_of(trial, config, effort)
        self._started, self._processes = time.monotonic(), Processes()

    def missing(self) -> list[TableTrial]:
        """The trials that are not there, or not as planned."""
        return [trial for trial in self.trials if trial.missing(self._plans[trial.folder])]

    def run(self) -> list[str]:
        """Train and measure all that is missing.

        Returns:
            For each trial that failed, what went wrong. The others are there.
        """
        todo = self.missing()
        self._say(f"{len(self.trials)} trials, {len(todo)} of them to do, in {self._out}")
        return run_trials(todo, self._work, jobs=self._jobs, stop=self._processes.stop)

    def _work(self, trial: TableTrial) -> None:
        plan = self._plans[trial.folder]
        steps = trial.missing(plan)
        trial.begin(plan)
        for step in steps:
            self._say(f"{self._elapsed()} {trial}: {_WORDS[step]}")
            started = time.monotonic()
            threads = plan["config"]["generator.threads"] if step == "train" else 1
            function = f"fedlens_research.table1.steps:{step}"
            try:
                self._processes.call(function, trial.folder, self._out, threads=threads)
            except TrialFailed as error:
                raise TrialFailed(f"{_WORDS[step]} failed: {error}") from error
            seconds = time.monotonic() - started
            said = f"{trial}: {_WORDS[step]} took {seconds:.0f} s{_result(trial, step)}"
            self._say(f"{self._elapsed()} {said}")

    def _elapsed(self) -> str:
        minutes, seconds = divmod(int(time.monotonic() - self._started), 60)
        return f"[{minutes:3d}:{seconds:02d}]"


def _result(trial: TableTrial, step: Step) -> str:
    if step == "train":
        epsilon = (read_json(trial.folder / TRAINED_FILE) or {}).get("epsilon_dp")
        return f", DP ε = {epsilon:.4g}" if epsilon is not None else ", not private"
    found = trial.measured or {}
    return f", student {found['students']['cnn']:.1%}, recognised {found['recognised']:.1%}"
