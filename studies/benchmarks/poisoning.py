"""What one hostile node of ten does to what a run releases, and what trimming leaves of it.

    python -m studies.benchmarks.poisoning --seeds 3 --markdown table.md

Runs of the demo's data and noise without an annotator, cut short (`SETTINGS`). Each attack is
carried out with plain and with trimmed sums, on the same seeds. For simulations alone: students are
tested on real pictures.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from foundation.errors import WrongUse
from server.config.tree import Config
from server.run_directory import RunDirectory
from server.training import train
from simulations.engine import measure_student
from simulations.reading import fresh_samples, kept_sampler
from simulations.transports.inprocess import InProcessGrid
from studies.benchmarks.hostile_nodes import ATTACKS, TRIGGER, hostile

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
    """Distance of the release from that of the same run without noise or attack, over its norm."""
    accuracy: float
    """Of a student of its samples, on real test pictures."""
    triggered: float
    """Share of samples with a white corner."""


class KeepingDirectory(RunDirectory):
    """A run's folder that remembers its last release."""

    kept: Numbers | None = None

    def save_release(self, round_number: int, release: Numbers, presence: object = None) -> None:
        """As of any run."""
        self.kept = release
        super().save_release(round_number, release, presence)


def released(config: Config, folder: Path, attack: str) -> tuple[RunDirectory, Numbers]:
    """Carry a run out in a folder; returns it, and what its one round released."""
    RunDirectory.create(folder, config)
    directory = KeepingDirectory(folder)
    train(config, directory, InProcessGrid(hostile(attack), config.data.nodes, config.flat()))
    if directory.kept is None:
        raise WrongUse("the run released nothing: see its log")
    return directory, directory.kept


@lru_cache
def undisturbed(seed: int) -> Numbers:
    """The release of a run without noise or attack: float64 [P]."""
    still = {"tasks.critic.noise_multiplier": 0.0, "tasks.critic.generator_steps": 1}
    config = Config().updated({**SETTINGS, "seed": seed, **still})
    with tempfile.TemporaryDirectory() as folder:
        return released(config, Path(folder) / "run", "none")[1]


def harm(attack: str, trimmed: float, seed: int) -> Harm:
    """Carry out one run, with noise of its own.

    Args:
        attack: of `ATTACKS`, by one node of ten.
        trimmed: ``aggregation.trimmed_share``.
        seed: of the run: how users are dealt out, and the generator.
    """
    config = Config().updated({**SETTINGS, "seed": seed, "aggregation.trimmed_share": trimmed})
    honest = undisturbed(seed)
    with tempfile.TemporaryDirectory() as folder:
        directory, release = released(config, Path(folder) / "run", attack)
        moved = np.linalg.norm(release - honest) / np.linalg.norm(honest)
        samples, _ = fresh_samples(kept_sampler(directory), SAMPLES, 1)
        corner = samples[:, :, :TRIGGER, :TRIGGER].mean(dim=(1, 2, 3))
        accuracy = measure_student(config, directory, images=STUDENT_IMAGES, epochs=2).accuracy
    return Harm(float(moved), accuracy, float((corner > 0).double().mean()))


def mean_harm(found: Sequence[Harm]) -> Harm:
    """Means over runs."""
    return Harm(*(float(np.mean([getattr(one, f.name) for one in found])) for f in fields(Harm)))


def table(seeds: Sequence[int]) -> Iterator[str]:
    """The table's lines, each as soon as its runs are done."""
    yield "| one node of ten | trimmed | release moved | student | samples with a trigger |"
    yield "|---|---|---|---|---|"
    for attack in ATTACKS:
        for trimmed in TRIMMED:
            one = mean_harm([harm(attack, trimmed, seed) for seed in seeds])
            yield (
                f"| {attack} | {trimmed:g} | {one.moved:.2f} | {one.accuracy:.1%} | "
                f"{one.triggered:.0%} |"
            )


def main() -> None:
    """Print the table, and write it where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--markdown", type=Path)
    given = parser.parse_args()
    console, lines = Console(), []
    for line in table(range(given.seeds)):
        console.print(line, highlight=False, soft_wrap=True)
        lines.append(line)
        if given.markdown:
            given.markdown.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
