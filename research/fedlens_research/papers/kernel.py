"""Study ``kernel``: one noised kernel mean embedding, and a generator that is trained to it.

DP-Kernel (Jiang, Sun and Yu, NeurIPS 2023): the noise is a path of a Gaussian process whose
covariance is the kernel, added to the embedding of the data as a function. Here in one release:
the kernel, a mean of Gaussian ones of fixed widths, is written in random features (Rahimi and
Recht 2007), in which such a path is white noise and the embedding a vector. A record's row stands
at its class, with a coordinate for the class's mass, and has norm 1; a user's is the mean of the
rows of their records. So one user, or one record, added or removed changes the sum by 1 at most.

The generator, its trainer and the student are those of a run, so that rows can be compared with a
run's *own labels*: a student of as many samples, with the classes that they were asked for.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedlens.accountant.dp.calibration import noise_for
from fedlens.data.registry import Dataset, load
from fedlens.foundation.tables import Row
from fedlens.models.shapes import from_pixels
from fedlens.server.config.tree import Config
from fedlens.server.generation.generator import GeneratorTrainer
from fedlens.server.generation.sampler import Sampler
from fedlens.simulations.run_artifacts import seen_samples
from fedlens.simulations.students.students import train_student
from fedlens_research.framework.errors import StudyError
from fedlens_research.framework.settings import ONE_WAY, check_names
from fedlens_research.framework.study import SeedTrial

COLUMNS = ("data", "unit", "units", "epsilon", "width", "noise", "student", "majority", "seconds")
UNITS = ("user", "record")
MASS = 0.1
"""Share of a row's squared norm that its class's mass has."""
LEAST_MASS = 0.2
"""A class is not divided by a mass below this share of an equal one."""
CHUNK = 500


@dataclass(frozen=True)
class KernelSettings:
    """What ``kernel.toml`` sets."""

    data: tuple[str, ...]  # data sets' names
    units: tuple[str, ...]  # what is protected: user (of the data's own ids), record
    epsilon: float
    delta: float
    widths: tuple[float, ...]  # of Gaussian kernels, over the root of an image's values; each a row
    octaves: int  # kernels of one row: a width, half of it, and so on
    features: int  # random frequencies of all kernels of a row together
    steps: int  # of the generator
    rate: float
    batch: int
    images: int  # samples that the student learns from

    def __post_init__(self) -> None:
        check_names("units", self.units, UNITS)
        if not (self.data and self.widths and self.octaves > 0):
            raise StudyError("data and widths must name at least one each, octaves be 1 or more")


SETTINGS = KernelSettings


class KernelFeatures:
    """Random features of a mean of Gaussian kernels of halving widths."""

    def __init__(self, values: int, settings: KernelSettings, width: float, seed: int) -> None:
        source = torch.Generator().manual_seed(seed)
        frequencies = torch.randn(settings.features, values, generator=source)
        octave = torch.arange(settings.features) % settings.octaves
        self._frequencies = frequencies / (width * math.sqrt(values) / 2.0**octave)[:, None]
        self.dim = 2 * settings.features

    def rows(self, images: Tensor) -> Tensor:
        """Rows float32 [n, dim] of norm 1, of images [n, c, h, w] in [-1, 1]."""
        phases = images.flatten(1) @ self._frequencies.T
        return torch.cat([phases.cos(), phases.sin()], 1) / math.sqrt(self.dim / 2)


def weights_of(dataset: Dataset, unit: str) -> tuple[NDArray[np.float64], int]:
    """What each training record counts in the sum, float64 [n], and how many units there are.

    Raises:
        StudyError: the data set does not say whose records are.
    """
    if unit == "record":
        return np.ones(len(dataset.train_labels)), len(dataset.train_labels)
    if dataset.user_ids is None:
        raise StudyError(f"{dataset.name}: has no user_ids; set units to record")
    _, users, held = np.unique(dataset.user_ids, return_inverse=True, return_counts=True)
    return 1 / held[users], len(held)


@torch.no_grad()
def embed(
    dataset: Dataset, features: KernelFeatures, weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Sum of the weighted records' rows at their classes, with masses, [classes, dim + 1].

    Sensitivity 1 in the L2 norm, if the weights of each unit's records sum to 1.
    """
    total = torch.zeros(dataset.classes, features.dim + 1, dtype=torch.float64)
    for start in range(0, len(weights), CHUNK):
        some = slice(start, start + CHUNK)
        rows = features.rows(from_pixels(dataset.train_images[some])) * math.sqrt(1 - MASS)
        rows = torch.cat([rows, torch.full((len(rows), 1), math.sqrt(MASS))], 1).double()
        labels = torch.from_numpy(dataset.train_labels[some].copy())
        total.index_add_(0, labels, rows * torch.from_numpy(weights[some])[:, None])
    return total.numpy()


@dataclass(frozen=True)
class Embedding:
    """A released embedding."""

    means: Tensor  # of each class, float32 [classes, dim]
    shares: Tensor  # of the classes, float32 [classes], mean 1

    @classmethod
    def of(cls, release: NDArray[np.float64], units: int) -> Embedding:
        """Divide by the number of units and by the noised masses."""
        mean, classes = release / units, len(release)
        mass = np.maximum(mean[:, -1] / math.sqrt(MASS), LEAST_MASS / classes)
        means = mean[:, :-1] / mass[:, None] / math.sqrt(1 - MASS)
        shares = mass / mass.mean()
        return cls(torch.from_numpy(means).float(), torch.from_numpy(shares).float())

    def distance(self, rows: Tensor) -> Tensor:
        """Squared distance of embeddings of pairs with classes, without what chance adds.

        Args:
            rows: float32 [classes x each, dim], class by class.
        """
        groups = rows.view(len(self.means), -1, rows.shape[1])
        means, each = groups.mean(1), groups.shape[1]
        spread = (groups - means[:, None]).square().sum((1, 2)) / (each * (each - 1))
        apart = (means - self.means).square().sum(1)
        return ((apart - spread) * self.shares.square()).sum()


def run_seed(settings: KernelSettings, trial: SeedTrial) -> list[Row]:
    """A row for each data set, unit and width."""
    rows: list[Row] = []
    for name in settings.data:
        dataset = load(name, trial.data_dir)
        for unit in settings.units:
            for width in settings.widths:
                trial.report(f"kernel: {name} by {unit}, width {width:g}, seed {trial.seed}")
                key = {"data": name, "unit": unit, "width": width}
                rows += trial.rows(
                    key,
                    lambda d=dataset, u=unit, w=width: [_row(settings, d, u, w, trial.seed)],  # type: ignore[misc]
                )
    return rows


def _row(settings: KernelSettings, dataset: Dataset, unit: str, width: float, seed: int) -> Row:
    started = time.perf_counter()
    weights, units = weights_of(dataset, unit)
    noise = noise_for(epsilon=settings.epsilon, delta=settings.delta, rounds=1, sampling_rate=1.0)
    features = KernelFeatures(math.prod(dataset.shape), settings, width, seed)
    total = embed(dataset, features, weights)
    total += noise * np.random.default_rng(seed).standard_normal(total.shape)
    sampler = train_generator(settings, dataset, features, Embedding.of(total, units), seed)
    images, labels = seen_samples(sampler, settings.images, seed)
    truth = torch.from_numpy(dataset.test_labels.copy())
    tests = from_pixels(dataset.test_images)
    student = train_student(images, labels, tests, truth, classes=dataset.classes, seed=seed)
    counts = np.bincount(dataset.test_labels)
    return {
        "data": dataset.name,
        "unit": unit,
        "units": units,
        "epsilon": settings.epsilon,
        "width": width,
        "noise": noise,
        "student": student.accuracy,
        "majority": float(counts.max() / counts.sum()),
        "seconds": time.perf_counter() - started,
        "seed": seed,
    }


def train_generator(
    settings: KernelSettings,
    dataset: Dataset,
    features: KernelFeatures,
    target: Embedding,
    seed: int,
) -> Sampler:
    """A run's generator, trained to a released embedding: post-processing."""
    config = Config().updated({**ONE_WAY, "seed": seed, "generator.batch": settings.batch})
    trainer = GeneratorTrainer(config, dataset.shape, dataset.classes)

    def loss(images: Tensor, labels: Tensor) -> Tensor:
        return target.distance(features.rows(images))

    steps = settings.steps
    trainer.train(loss, steps=steps, rate=settings.rate, done=0, planned=steps)
    return Sampler(trainer.average)


def draw(rows: Sequence[Row], settings: KernelSettings, out: Path) -> None:
    """Nothing: the table says all."""
