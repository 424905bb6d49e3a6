"""The Flower ServerApp: reads its run config and trains.

Besides the settings of `fedlens.server.config.tree`, the run config holds ``run.out``, the
absolute path of the run's directory (a fresh one under ``$FEDLENS_HOME/runs`` when empty; an
existing run is resumed), ``run.name``, the name of that fresh directory, ``run.store``, the URL of
the store where it has no password (`fedlens.server.run.store`), and ``run.only_copy``, by which an
operator says that a run's folder that was moved or restored is the only one.
`fedlens.server.paths` limits which files they may name.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedlens.accountant.ledger.terms import fedlens_home
from fedlens.foundation.errors import FedlensError
from fedlens.foundation.logs import logged_to, set_up_logs
from fedlens.foundation.traces import traced, traces
from fedlens.server.config.loading import read_run_config
from fedlens.server.config.schedule import check_affordable, total_rounds
from fedlens.server.config.tree import Config, ConfigError
from fedlens.server.federation.contract_check import check_run
from fedlens.server.learning.builds_on import check_earlier
from fedlens.server.ledger.population import check_room
from fedlens.server.paths import check_paths
from fedlens.server.round.status import RunStatusFile
from fedlens.server.run.directory import RunDirectory, RunDirectoryError
from fedlens.server.run.place import bind
from fedlens.server.run.store import store_url
from fedlens.server.training import train

logger = logging.getLogger(__name__)

NameClasses = Callable[[Config], Sequence[str]]

app = ServerApp()
RUN_LOG = "run.log"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train one run over the nodes behind ``grid``."""
    carry_out(grid, context)


def _unnamed(_: Config) -> Sequence[str]:
    return ()


def carry_out(grid: Grid, context: Context, name_classes: NameClasses = _unnamed) -> None:
    """Train one run over the nodes behind ``grid``.

    Args:
        grid: what carries messages.
        context: with the run config.
        name_classes: what people call the classes of a simulation's data, public; nodes' own data
            have the names that a contract gives them.
    """
    set_up_logs()
    try:
        with traces():
            _run(grid, context, name_classes)
    except FedlensError as error:
        logger.error("the run ends: %s", error)  # noqa: TRY400  (its message is all there is to say)
        raise


def _run(grid: Grid, context: Context, name_classes: NameClasses) -> None:
    config_of = context.run_config
    check_paths(config_of, os.environ)
    out = str(config_of.get("run.out", ""))
    path = Path(out) if out else _fresh_path(context.run_id, str(config_of.get("run.name", "")))
    store = store_url(str(config_of.get("run.store", "")), os.environ)
    config = read_run_config(config_of)
    directory = RunDirectory(path)
    if not directory.exists():
        check_run(config)  # what is refused leaves no run behind
        check_affordable(config)
        check_room(config)
        check_earlier(config)
        directory = RunDirectory.create(path, config)
    elif config_of.get("run.only_copy", False):
        with directory.locked():
            bind(directory)
    with logged_to(directory.path / RUN_LOG):
        logger.info("Flower's run %x carries out %s", context.run_id, directory.path.name)
        _train(config, directory, grid, store, name_classes)


def _train(
    config: Config, directory: RunDirectory, grid: Grid, store: str, name_classes: NameClasses
) -> None:
    try:
        with traced("run", run=directory.path.name):
            names = name_classes(config)
            outcome = train(config, directory, grid, store_url=store, class_names=names)
    except FedlensError as error:
        with suppress(RunDirectoryError), directory.locked():  # another process's run says its own
            RunStatusFile(directory, total_rounds(config)).end("failed", str(error))
        raise
    logger.info("fedlens run %s in %s", outcome.run_id, directory.path)


def _fresh_path(run_id: int, name: str) -> Path:
    if name and not NAME.fullmatch(name):
        raise ConfigError(f"run.name = {name!r}: give letters, digits, '.', '_' and '-'")
    return fedlens_home() / "runs" / (name or f"{run_id:x}")
