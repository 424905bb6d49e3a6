"""Speed and memory of the parts that are ours, as a table: ``make bench-rounds``.

Times are wall-clock on this machine, one thread; run it while nothing else does. Nothing here is a
test: figures move with the machine, shares and counts less so.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import fedlens.client.app
from fedlens.server.config.tree import Config
from fedlens.server.generation.generator import GeneratorTrainer
from fedlens.server.round.loop import TrainingRun
from fedlens.server.run.directory import RunDirectory
from fedlens.simulations.engine import train_in_process

ROUNDS = 100
HUNDRED_USERS = {
    "data.users": 100,
    "privacy.delta": 1e-3,
    "tasks.critic.kind": "wgan",
    "tasks.critic.rounds": 5,
    "tasks.critic.generator_steps": 3,
    "generator.batch": 100,
    "release.every": 1000,
    "release.samples": 10,
}
IDLE = {
    **HUNDRED_USERS,
    "tasks.critic.sampling_rate": 1e-9,
    "tasks.critic.rounds": ROUNDS,
    "tasks.critic.generator_steps": 1,
    "generator.batch": 20,
    "generator.width": 4,
}
Row = tuple[str, str, str]


@contextmanager
def clocked(
    *places: tuple[Any, str], clock: Callable[[], float] = time.perf_counter
) -> Iterator[list[float]]:
    """Seconds spent inside the named functions while the context lasts, as a one-item list."""
    spent, originals = [0.0], [(owner, name, getattr(owner, name)) for owner, name in places]

    def timed(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            started = clock()
            try:
                return original(*args, **kwargs)
            finally:
                spent[0] += clock() - started

        return call

    for owner, name, original in originals:
        setattr(owner, name, timed(original))
    try:
        yield spent
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)


def trained(settings: dict[str, Any]) -> None:
    """A whole run in a fresh directory."""
    config = Config().updated(settings)
    with tempfile.TemporaryDirectory() as folder:
        directory = RunDirectory.create(Path(folder) / "run", config)
        train_in_process(config, directory, directory.default_store, None)


def outside_training(family: str) -> Row:
    """Share of the rounds, 100 users each, that is not the clients' or the generator's training.

    What remains is transport, checks, noise, ledger, state and store.
    """
    settings = {**HUNDRED_USERS, "tasks.critic.kind": family, "tasks.critic.rounds": 20}
    parts = (fedlens.client.app, "train"), (GeneratorTrainer, "train")
    with clocked((TrainingRun, "run")) as rounds, clocked(*parts) as training:
        trained(settings)
    share = 1 - training[0] / rounds[0]
    return f"outside training, 100 users a round, {family}", f"{share:.1%}", "≤ 5 %"


def idle_rounds() -> Row:
    """Overhead of rounds in which no user is drawn: ledger, noise, state, store."""
    with clocked((TrainingRun, "run")) as rounds, clocked((GeneratorTrainer, "train")) as training:
        trained(IDLE)
    return f"{ROUNDS} idle rounds, overhead", f"{rounds[0] - training[0]:.2f} s", "< 2 s"


def demo_memory() -> list[Row]:
    """Peak memory and seconds of the demo in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "fedlens.cli", "simulate", "--preset", "demo"]
        started = time.perf_counter()
        subprocess.run(  # noqa: S603  (our own command)
            [*command, "--out", f"{folder}/demo"], check=True, stdout=subprocess.DEVNULL
        )
        seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024**2
    return [
        ("demo, peak memory", f"{peak:.2f} GB", "< 1.5 GB"),
        ("demo, whole command", f"{seconds:.0f} s", "≤ 300 s on two cores"),
    ]


def main() -> None:
    """Measure everything and print the table."""
    table = Table("what", "measured", "goal", title="fedlens benchmarks")
    for row in (
        outside_training("wgan"),
        outside_training("frozen"),
        idle_rounds(),
        *demo_memory(),
    ):
        table.add_row(*row)
    Console().print(table)


if __name__ == "__main__":
    main()
