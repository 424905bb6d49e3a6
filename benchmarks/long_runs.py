"""Many rounds with tiny models: memory and time over rounds, and a release for each ledger entry.

``python -m benchmarks.long_runs --rounds 10000``

The server's own work is all that is neither a node's nor the generator's training: draws, messages,
checks, noise, ledger, both accounts, state and store. Times are of the processor, which other work
on the machine moves least.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.rounds import IDLE, clocked
from fedlens.accountant.ledger.ledger import Ledger
from fedlens.server.config.tree import Config
from fedlens.server.generation.generator import GeneratorTrainer
from fedlens.server.round.status import Progress
from fedlens.server.run.directory import RunDirectory
from fedlens.simulations.engine import train_in_process
from fedlens.simulations.transports.inprocess import InProcessGrid
from fedlens.store import open_store
from harness.fuzzing.__main__ import resident

WARM = 0.1
"""Share of the rounds after which memory and time are to stay as they are."""
MARKS = (WARM, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class LookAtRun:
    """A run as it was when a round's generator had trained."""

    megabytes: float
    seconds: float
    """Of the processor, the server's own."""


def main() -> None:
    """Train and print what was measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.long_runs")
    parser.add_argument("--rounds", type=int, default=10_000)
    rounds = parser.parse_args().rounds
    seen: dict[int, LookAtRun] = {}
    places = (InProcessGrid, "answer"), (GeneratorTrainer, "train")
    with (
        tempfile.TemporaryDirectory() as folder,
        clocked(*places, clock=time.process_time) as others,
    ):

        def look(progress: Progress) -> None:
            # inside the generator's training, which `others` counts once it is done
            seen[progress.round] = LookAtRun(resident(), time.process_time() - others[0])

        config = Config().updated(
            {**IDLE, "tasks.critic.rounds": rounds, "release.every": 10 * rounds}
        )
        directory = RunDirectory.create(Path(folder) / "run", config)
        outcome = train_in_process(config, directory, directory.default_store, look)
        entries = len(Ledger.verify(directory.ledger))
        with open_store(outcome.store) as store:
            releases = len(store.releases(outcome.run_id))
        state = (directory.checkpoints / "state.safetensors").stat().st_size / 2**20
    console = Console()
    console.print(_table(seen, rounds))
    grown = seen[rounds].megabytes / seen[max(1, int(WARM * rounds))].megabytes - 1
    console.print(
        f"{rounds:,} rounds: memory {grown:+.1%} after the first tenth; {entries:,} entries, "
        f"{releases:,} releases; state {state:.1f} MB"
    )


def _table(seen: dict[int, LookAtRun], rounds: int) -> Table:
    table = Table("round", "memory", "the server's own work a round")
    for share in MARKS:
        here, before = max(1, int(share * rounds)), max(1, int((share - WARM) * rounds))
        own = (seen[here].seconds - seen[before].seconds) / max(1, here - before)
        table.add_row(f"{here:,}", f"{seen[here].megabytes:.1f} MB", f"{1000 * own:.1f} ms")
    return table


if __name__ == "__main__":
    main()
