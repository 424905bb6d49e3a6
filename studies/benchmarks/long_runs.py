"""Many rounds with tiny models: memory over rounds, and one release for each ledger entry.

``python -m studies.benchmarks.long_runs --rounds 10000``
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from accountant.ledger.ledger import Ledger
from server.config.tree import Config
from server.rounds import Progress
from server.run_directory import RunDirectory
from server.store import open_store
from simulations.engine import train_in_process
from studies.benchmarks.fuzzing.__main__ import resident
from studies.benchmarks.rounds import IDLE

WARM = 0.1
"""Share of the rounds after which memory is to stay as it is."""


def main() -> None:
    """Train and print what was measured."""
    parser = argparse.ArgumentParser(prog="python -m studies.benchmarks.long_runs")
    parser.add_argument("--rounds", type=int, default=10_000)
    rounds = parser.parse_args().rounds
    seen: dict[int, tuple[float, float]] = {}

    def look(progress: Progress) -> None:
        seen[progress.round] = resident(), time.monotonic()

    with tempfile.TemporaryDirectory() as folder:
        config = Config().updated(
            {**IDLE, "tasks.critic.rounds": rounds, "release.every": 10 * rounds}
        )
        directory = RunDirectory.create(Path(folder) / "run", config)
        outcome = train_in_process(config, directory, directory.default_store, look)
        entries = len(Ledger.verify(directory.ledger))
        with open_store(outcome.store) as store:
            releases = len(store.releases(outcome.run_id))
        state = (directory.checkpoints / "state.safetensors").stat().st_size / 2**20
    table = Table("round", "memory", "seconds a round")
    for share in (WARM, 0.25, 0.5, 0.75, 1.0):
        here, before = max(1, int(share * rounds)), max(1, int((share - WARM) * rounds))
        pace = (seen[here][1] - seen[before][1]) / max(1, here - before)
        table.add_row(f"{here:,}", f"{seen[here][0]:.1f} MB", f"{pace:.3f}")
    console = Console()
    console.print(table)
    grown = seen[rounds][0] / seen[max(1, int(WARM * rounds))][0] - 1
    console.print(
        f"{rounds:,} rounds: memory {grown:+.1%} after the first tenth; {entries:,} entries, "
        f"{releases:,} releases; state {state:.1f} MB"
    )


if __name__ == "__main__":
    main()
