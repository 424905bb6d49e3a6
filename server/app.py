"""The Flower ServerApp: reads its run config and trains.

Besides the settings of `server.config.tree`, the run config holds ``run.out``, the absolute path
of the run's directory (a fresh one under ``$FEDLENS_HOME/runs`` when empty; an existing run is
resumed), ``run.store``, the URL of the store, and ``run.only_copy``, by which an operator says that
a run's folder that was moved or restored is the only one.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from server.agreed import check_run
from server.builds_on import check_earlier
from server.config.reading import read_run_config
from server.config.tree import RUN_KEYS
from server.population import check_room
from server.run_directory import RunDirectory
from server.run_place import bind
from server.schedule import check_affordable
from server.training import train

logger = logging.getLogger(__name__)

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train one run over the nodes behind ``grid``."""
    out, store = (str(context.run_config.get(key, "")) for key in RUN_KEYS[:2])
    path = Path(out) if out else _fresh_path(context.run_id)
    config = read_run_config(context.run_config)
    directory = RunDirectory(path)
    if not directory.exists():
        check_run(config)  # what is refused leaves no run behind
        check_affordable(config)
        check_room(config)
        check_earlier(config)
        directory = RunDirectory.create(path, config)
    elif context.run_config.get(RUN_KEYS[3], False):
        with directory.locked():
            bind(directory)
    outcome = train(config, directory, grid, store_url=store)
    logger.info("fedlens run %s in %s", outcome.run_id, directory.path)


def _fresh_path(run_id: int) -> Path:
    home = Path(os.environ.get("FEDLENS_HOME", "~/.fedlens")).expanduser()
    return home / "runs" / f"{run_id:x}"
