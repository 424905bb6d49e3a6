"""What one hostile node of ten does to what a run releases, and what trimming leaves of it.

    python -m benchmarks.poisoning --seeds 3 --markdown table.md

Runs of the demo's data and noise without an annotator, cut short (`SETTINGS`). Each attack is
carried out with plain and with trimmed sums, on the same seeds. For simulations alone: students are
tested on real pictures.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from fedlens.server.config.mechanism import denominator, release_deviation
from fedlens.server.config.schedule import scheduled
from fedlens.server.config.tree import Config
from fedlens.server.federation.enrolment import enrol
from fedlens.server.learning.learner import Learner
from fedlens.server.round.step import PrivateStep, StepPlan
from fedlens.server.run.directory import RunDirectory
from fedlens.server.training import train
from fedlens.simulations.engine import measure_student
from fedlens.simulations.run_artifacts import fresh_samples, kept_sampler
from fedlens.simulations.transports.inprocess import InProcessGrid
from harness.hostile_nodes import ATTACKS, TRIGGER, hostile

SETTINGS: dict[str, Any] = {
    "schedule": "critic",
    "data.users": 1000,
    "data.nodes": 10,
    "tasks.critic.kind": "frozen",
    "tasks.critic.rounds": 1,
    "tasks.critic.noise_multiplier": 5.2,
    "tasks.critic.clipping_norm": 0.3,
    "tasks.critic.generator_steps": 60,
    "tasks.critic.faithful_steps": 1,
    "tasks.critic.generator_rate": 0.008,
    "release.samples": 10,
    "release.strip": 1,
}
STUDENT_IMAGES, SAMPLES = 4000, 500
TRIMMED = (0.0, 0.1)
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Harm:
    """What an attack did to one run."""

    moved: float
    """Distance of the sum before the noise from that without attack or trimming, over its norm."""
    noise: float
    """Norm of the noise that is added to it, over the same norm."""
    seen: float
    """The distance in standard deviations of the noise: how far it stands out along itself."""
    accuracy: float
    """Of a student of its samples, on real test pictures."""
    triggered: float
    """Share of samples with a white corner."""


def config_of(trimmed: float, seed: int) -> Config:
    """A run that trims this share at either end."""
    return Config().updated({**SETTINGS, "seed": seed, "aggregation.trimmed_share": trimmed})


@lru_cache
def mean_update(attack: str, trimmed: float, seed: int) -> Numbers:
    """A round's sum before the noise over its weight, float64 [P]."""
    config = config_of(trimmed, seed)
    grid = InProcessGrid(hostile(attack), config.data.nodes, config.flat())
    federation, task = enrol(grid, config), scheduled(config)[0]
    learner = Learner(config, federation)
    learner.prepare(task)
    state = learner.task(task)
    step = PrivateStep(StepPlan(config, task, grid, federation, state.size, state.largest_reply))
    total: Numbers = step.gather(1, learner.asked(task)).total.values
    return total / denominator(config, task.settings)


def harm(attack: str, trimmed: float, seed: int) -> Harm:
    """Carry out one run, with noise of its own.

    Args:
        attack: of `ATTACKS`, by one node of ten.
        trimmed: ``aggregation.trimmed_share``.
        seed: of the run: how users are dealt out, and the generator.
    """
    config, honest = config_of(trimmed, seed), mean_update("none", 0.0, seed)
    length = float(np.linalg.norm(honest))
    moved = float(np.linalg.norm(mean_update(attack, trimmed, seed) - honest)) / length
    deviation = release_deviation(config, scheduled(config)[0].settings)
    with tempfile.TemporaryDirectory() as folder:
        directory = RunDirectory.create(Path(folder) / "run", config)
        train(config, directory, InProcessGrid(hostile(attack), config.data.nodes, config.flat()))
        samples, _ = fresh_samples(kept_sampler(directory), SAMPLES, 1)
        corner = samples[:, :, :TRIGGER, :TRIGGER].mean(dim=(1, 2, 3))
        accuracy = measure_student(config, directory, images=STUDENT_IMAGES, epochs=2).accuracy
    noise = deviation * len(honest) ** 0.5 / length
    seen = moved * length / deviation
    return Harm(moved, noise, seen, accuracy, float((corner > 0).double().mean()))


def mean_harm(found: Sequence[Harm]) -> Harm:
    """Means over runs."""
    return Harm(*(float(np.mean([getattr(one, f.name) for one in found])) for f in fields(Harm)))


HEAD = (
    "| one node of ten | trimmed | sum moved | noise | stands out by | student | with a trigger | "
    "runs |\n|---|---|---|---|---|---|---|---|"
)


def table(found: dict[tuple[str, float], list[Harm]]) -> str:
    """The table of what is measured so far."""
    rows = []
    for (attack, trimmed), runs in found.items():
        one = mean_harm(runs)
        rows.append(
            f"| {attack} | {trimmed:g} | {one.moved:.0%} | {one.noise:.0%} | {one.seen:.1f} | "
            f"{one.accuracy:.1%} | {one.triggered:.0%} | {len(runs)} |"
        )
    return "\n".join([HEAD, *rows])


def main() -> None:
    """Print the table, and write it after each run where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--markdown", type=Path)
    given = parser.parse_args()
    found: dict[tuple[str, float], list[Harm]] = {
        (attack, trimmed): [] for attack in ATTACKS for trimmed in TRIMMED
    }
    for seed in range(given.seeds):
        for (attack, trimmed), runs in found.items():
            runs.append(harm(attack, trimmed, seed))
            if given.markdown:
                done = {key: value for key, value in found.items() if value}
                given.markdown.write_text(table(done) + "\n", encoding="utf-8")
    Console().print(table(found), highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
