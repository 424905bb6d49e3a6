"""How much of a planted fault do samples keep?

    python -m fedlens_research.bugs.faithful --clean runs/sound runs/turned

For each run with one planted fault, a judge of real images (simulation only) says which curated and
which faithful samples look faulty. Its errors are measured on a sound run: how many of its samples
it calls faulty, and how many of them once the fault is put on them. The share is then

    (called faulty - falsely called) / (rightly called - falsely called)

(Rogan and Gladen, "Estimating prevalence from the results of a screening test", 1978). Runs are
made with, for instance:

    fedlens simulate --preset demo --no-student --out runs/sound
    fedlens simulate --preset demo --no-student --fault rotate90:0.3 --out runs/turned
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from torch import Tensor

from fedlens.foundation.errors import WrongUse
from fedlens.models.faults.planting import PlantedFault, parse_faults
from fedlens.models.shapes import from_pixels
from fedlens.server.config.tree import Config
from fedlens.server.run.directory import RunDirectory
from fedlens.simulations.federation.apps import simulated_federation
from fedlens.simulations.run_artifacts import last_batch, stored_samples
from fedlens.store import Purpose, SampleFilter, open_store
from fedlens_research.bugs.judge import Judge, train_judge

PURPOSES: tuple[Purpose, ...] = ("curated", "faithful")
ROW = "{:16}  {:13}  {:9}  {:>8}  {:>8}  {:>8}  {:>10}  {:>14}"


@dataclass(frozen=True)
class JudgedRun:
    """A run on disk whose samples are judged."""

    path: str

    @property
    def config(self) -> Config:
        """Its configuration."""
        return RunDirectory.open(Path(self.path)).config()

    def samples(self, purpose: Purpose) -> tuple[Tensor, Tensor]:
        """Stored images float32 [n, c, h, w] in [-1, 1] and requested classes int64 [n]."""
        directory = RunDirectory.open(Path(self.path))
        with open_store(directory.store_url()) as store:
            batch = last_batch(store, directory.run_id, purpose)
            images, labels = stored_samples(store, SampleFilter(batch_id=batch.batch_id))
        return from_pixels(images), torch.from_numpy(labels)


@dataclass(frozen=True)
class Judged:
    """What a judge says of one batch, as shares of its samples."""

    called: float
    falsely: float
    """Of a sound run's samples."""
    rightly: float
    """Of a sound run's samples with the fault put on."""
    count: int

    @property
    def share(self) -> float:
        """Estimated share of faulty samples; may lie outside [0, 1] by chance."""
        return (self.called - self.falsely) / (self.rightly - self.falsely)

    @property
    def error(self) -> float:
        """Standard error of ``share`` from the number of samples, with its other shares exact."""
        spread = self.called * (1 - self.called) + self.falsely * (1 - self.falsely)
        return float(np.sqrt(spread / self.count) / (self.rightly - self.falsely))


def main() -> None:
    """Read the arguments, judge, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clean", required=True, help="directory of a run without a fault")
    parser.add_argument("runs", nargs="+", help="directories of runs with one planted fault each")
    given = parser.parse_args()
    clean = JudgedRun(given.clean)
    head = (
        "fault",
        "knows classes",
        "batch",
        "called",
        "falsely",
        "rightly",
        "less false",
        "share",
    )
    console = Console(width=110, highlight=False)
    console.print(ROW.format(*head))
    for path in given.runs:
        run = JudgedRun(path)
        fault = _planted(run)
        for judge, purpose in product(judges_of(run, fault), PURPOSES):
            found = judged(judge, run, clean, fault, purpose)
            shares = (f"{x:.3f}" for x in (found.called, found.falsely, found.rightly))
            less, knows = (
                f"{found.called - found.falsely:.3f}",
                "yes" if judge.classes > 1 else "no",
            )
            row = (run.config.data.fault, knows, purpose, *shares, less)
            console.print(ROW.format(*row, f"{found.share:.3f} ± {found.error:.3f}"))


def judged(
    judge: Judge, run: JudgedRun, clean: JudgedRun, fault: PlantedFault, purpose: Purpose
) -> Judged:
    """What the judge says of a run's batch, with its errors on the clean run's."""
    images, labels = run.samples(purpose)
    sound, classes = clean.samples(purpose)
    turned = _changed(sound, fault, run)
    called, falsely, rightly = (
        float(judge.faulty(some, known).float().mean())
        for some, known in ((images, labels), (sound, classes), (turned, classes))
    )
    return Judged(called, falsely, rightly, len(labels))


def _planted(run: JudgedRun) -> PlantedFault:
    faults = parse_faults(run.config.data.fault)
    if len(faults) != 1 or faults[0].fault.image is None:
        given = run.config.data.fault
        raise WrongUse(f"{run.path} has the faults {given!r}: give a run with one fault of images")
    return faults[0]


def judges_of(run: JudgedRun, fault: PlantedFault) -> list[Judge]:
    """One that is told of no class, and one that knows which class was asked for."""
    dataset, _ = simulated_federation(run.config.data, run.config.seed)
    real = from_pixels(dataset.test_images)
    labels = torch.from_numpy(dataset.test_labels.copy())
    faulty, seed = _changed(real, fault, run), run.config.seed
    return [train_judge(real, faulty, labels, classes, seed) for classes in (1, dataset.classes)]


def _changed(images: Tensor, fault: PlantedFault, run: JudgedRun) -> Tensor:
    change = fault.fault.image
    if change is None:
        raise WrongUse(f"fault {fault.fault.name!r} is not one of images")
    return change(images, fault.setting(10, run.config.seed)).clamp(-1, 1)


if __name__ == "__main__":
    main()
