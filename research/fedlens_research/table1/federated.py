"""The provider of most rows: a real run, with nodes, messages, ledger and store."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from fedlens.accountant.account import statement
from fedlens.server.config.sections import ReleaseConfig
from fedlens.server.config.tree import Config
from fedlens.server.ledger.run_ledger import spending_of
from fedlens.server.round.status import Progress
from fedlens.server.run.directory import RunDirectory
from fedlens.simulations.engine import train_in_process
from fedlens.simulations.run_artifacts import kept_sampler
from fedlens.simulations.students.distillation import Source
from fedlens_research.framework.errors import TrialFailed
from fedlens_research.framework.trials import Report
from fedlens_research.table1.providers import TrainedSpending

REPORT_SECONDS = 30.0


def train(config: Config, folder: Path, report: Report) -> TrainedSpending:
    """Train a run in ``folder``, or go on with the one in it.

    Raises:
        TrialFailed: the run's budget stopped it early.
    """
    directory = RunDirectory(folder)
    directory = directory if directory.exists() else RunDirectory.create(folder, config)
    began = directory.config()
    outcome = train_in_process(began, directory, directory.default_store, _Told(report))
    if outcome.stopped:
        raise TrialFailed(f"the run ended early: {outcome.stopped}")
    spending = spending_of(began, directory)
    same = ("delta_dp", "delta_bdp", "bdp_as_published", "bdp_corrected", "bdp_sound", "rounds")
    return TrainedSpending(
        epsilon_dp=spending.dp_epsilon,
        epsilon_dp_at_bdp_delta=spending.dp_epsilon_at_bdp_delta,
        statement=statement(spending, began.data.users),
        **{name: getattr(spending, name) for name in same},
    )


def source(folder: Path, release: ReleaseConfig) -> Source:
    """The run's samples as ``release`` lets them out, with its annotator where it has one."""
    kept = kept_sampler(RunDirectory.open(folder))
    if kept.annotator is None:
        return kept
    return replace(kept, agreement=release.agreement, attempts=release.attempts)


class _Told:
    """An observer that says in words how far a run is, now and then."""

    def __init__(self, report: Report) -> None:
        self._report, self._said = report, time.monotonic()

    def __call__(self, progress: Progress) -> None:
        if time.monotonic() - self._said > REPORT_SECONDS:
            self._said = time.monotonic()
            self._report(f"round {progress.round} of {progress.rounds}")
