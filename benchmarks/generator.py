"""What a generator step costs: ``python -m benchmarks.generator RUN``.

Steps of a finished run's generator on the losses of its tasks, in CPU milliseconds of one thread:
the least of several turns, so that a busy machine disturbs little. Nothing of the run is changed.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from torch import Tensor

from fedlens.server.federation.enrolment import Federation
from fedlens.server.federation.roster import Roster
from fedlens.server.generation.generator import Loss
from fedlens.server.learning.learner import Learner
from fedlens.server.run.directory import RunDirectory
from fedlens.server.tasks.protocol import ServerTask

TURNS, STEPS, RATE = 5, 3, 1e-5


def restored(run: Path, precision: str) -> Learner:
    """What a finished run has learned, with the generator in a precision."""
    directory = RunDirectory.open(run)
    snapshot = directory.load_state()
    if snapshot is None:
        raise SystemExit(f"{run} has not finished a round")
    config = directory.config().updated({"generator.precision": precision})
    channels, height, width = snapshot.facts["shape"]
    shape = int(channels), int(height), int(width)
    learner = Learner(config, Federation(Roster((), ()), shape, int(snapshot.facts["classes"])))
    learner.restore(snapshot.arrays)
    return learner


def losses(learner: Learner) -> dict[str, Loss]:
    """Of each task beside those before it, and of the generator of faithful samples."""
    last = {name: learner._config.planned[name].rounds for name in learner._tasks}
    teach = [name for name, task in learner._tasks.items() if task.generator_steps(last[name])]
    kinds: dict[str, Loss] = {name: learner._loss_of(name) for name in teach}
    steady = [t for t in learner._tasks.values() if t is not learner._labelling]
    return {**kinds, "faithful": together(steady)}


def together(tasks: list[ServerTask]) -> Loss:
    """The sum of critics' losses, each with weight 1."""

    def loss(images: Tensor, labels: Tensor) -> Tensor:
        return torch.stack([task.loss(images, labels) for task in tasks]).sum()

    return loss


def milliseconds(learner: Learner, loss: Loss) -> float:
    """CPU time of a step, the least of several turns."""
    found = []
    for _ in range(TURNS):
        began = time.process_time()
        learner._trainer.train(loss, steps=STEPS, rate=RATE, done=0, planned=STEPS)
        found.append((time.process_time() - began) / STEPS)
    return 1e3 * min(found)


def main() -> None:
    """Print a line for each precision and loss."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="folder of a finished run")
    run = parser.parse_args().run
    for precision in ("float32", "bfloat16"):
        learner = restored(run, precision)
        for name, loss in losses(learner).items():
            print(f"{precision:<9} {name:<10} {milliseconds(learner, loss):6.1f} ms")  # noqa: T201


if __name__ == "__main__":
    main()
