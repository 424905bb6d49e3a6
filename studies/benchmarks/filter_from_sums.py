"""A filter from two noised sums over users: ``python -m studies.benchmarks.filter_from_sums``.

Users answer two requests: for the mean of their images' low frequencies, and, centred and scaled by
what came back, for sums of features and of their products by pair of class and attribute
(`privatizers.pair_moments`). Each answer is clipped to a length per user, the sum is noised once,
and both are charged. The filter, what it serves and its adversaries are then fitted on features
drawn from the released Gaussians: post-processing, with as many steps and fresh adversaries as it
takes. Real images are met again only to be measured.

Simulation only: users are dealt from the train part in one process, noise is from a seeded
generator, and nothing of a federation's wire, ledger or failures is in it.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from rich.console import Console
from torch import Tensor

from accountant.dp.differential import DifferentialAccountant
from accountant.events import GaussianRelease
from client.datasets.attributes import load_private
from client.datasets.attributes.data import PrivateData, Split
from models.classifiers import Mlp, check_image
from privatizers.classifiers import prior_of
from privatizers.fitting import FIRST, AdversaryStage, FitConfig, FittedFilter, fit_filter
from privatizers.information import InformationPrivatizer, Objective
from privatizers.networks.adversaries import CodeAdversary
from privatizers.networks.spectral import LowFrequencies, SpectralReleaser
from privatizers.pair_moments import PairGaussians, contribution, looked_at, scaled_by
from privatizers.protocol import FILTER
from privatizers.training import Stage, train_privatizer
from studies.attackers.reading_nets import accuracy, learn, read_images
from studies.metrics.attacks import FilterAttack, attack_filter, told
from studies.metrics.effort import FULL
from studies.metrics.reading import released_parts
from studies.metrics.targets import target_of

FIRST_CLIP = 15.0
"""Of a user's mean frequencies and squares; images have values from -1 to 1."""
SECOND_CLIP = 3.2


@dataclass(frozen=True)
class SumsSettings:
    """How many users there are, and what is done."""

    users: int = 3000
    images: int = 10  # of each user
    highest: int = 10  # frequency that is kept
    first_noise: float = 5.0  # z of the first release
    second_noise: float = 0.64  # z of the second
    delta: float = 1e-5
    samples: int = 30_000  # features that are drawn to fit on
    serving_steps: int = 800
    steps: int = 1000  # of the filter against its first adversary
    budget: float = 0.01
    capacity: float = 8.0
    distortion: float = 0.5
    seed: int = 0


def epsilon(settings: SumsSettings) -> float:
    """DP ε of both releases, for one user, at the settings' δ."""
    account = DifferentialAccountant()
    for clip, noise in (
        (FIRST_CLIP, settings.first_noise),
        (SECOND_CLIP, settings.second_noise),
    ):
        account.compose(GaussianRelease("user", "add-remove", clip, noise))
    return account.epsilon(settings.delta).epsilon


def released_gaussians(
    settings: SumsSettings, train: PrivateData
) -> tuple[LowFrequencies, PairGaussians]:
    """What two noised sums over users tell of images, by pair of class and attribute."""
    source = torch.Generator().manual_seed(settings.seed)
    order = torch.randperm(len(train), generator=source)
    dealt = order[: settings.users * settings.images].view(-1, settings.images)
    features = LowFrequencies(check_image(train.shape), settings.highest)
    plain = features.raw(train.records)
    looked = [looked_at(plain[rows], FIRST_CLIP) for rows in dealt]
    first = _noised(looked, settings.first_noise * FIRST_CLIP, source) / len(dealt)
    centre, scale = scaled_by(first)
    features.centre.copy_(centre)
    features.scale.copy_(scale)
    seen, count = features(train.records), train.utility_classes * train.sensitive_classes
    pairs = train.utility * train.sensitive_classes + train.sensitive
    given = [contribution(seen[rows], pairs[rows], count, SECOND_CLIP) for rows in dealt]
    second = _noised(given, settings.second_noise * SECOND_CLIP, source)
    return features, PairGaussians.of(second)


def _noised(vectors: list[Tensor], deviation: float, source: torch.Generator) -> Tensor:
    total = torch.zeros_like(vectors[0])
    for vector in vectors:
        total += vector
    return total + deviation * torch.randn(total.shape, generator=source)


def fitted(
    settings: SumsSettings, train: PrivateData, features: LowFrequencies, known: PairGaussians
) -> tuple[FittedFilter, Mlp]:
    """The filter, and the network for the utility that it serves, both of drawn features alone."""
    source = torch.Generator().manual_seed(settings.seed + 1)
    samples, held = (
        _drawn(train, features, known, size, source) for size in (settings.samples, 4000)
    )
    reader = Mlp(math.prod(train.shape), train.utility_classes, (128, 64), generator=source)
    learn(reader, samples.records, samples.utility, steps=1000, rate=2e-3, seed=settings.seed)
    network = SpectralReleaser(
        features, capacity=settings.capacity, low=train.low, high=train.high, generator=source
    )
    prior = prior_of(samples.sensitive, train.sensitive_classes)

    def build(stage: AdversaryStage) -> InformationPrivatizer:
        size = network.coded
        return InformationPrivatizer(
            network,
            prior,
            Objective(budget=settings.budget, weight=stage.weight, distortion=settings.distortion),
            adversary=CodeAdversary(size, train.sensitive_classes, generator=source),
            fixed_utility=reader,
        )

    start = build(FIRST)
    start.objective = replace(start.objective, budget=math.inf)
    serving = Stage("serving", {FILTER: 2e-3}, settings.serving_steps)
    train_privatizer(start, samples, [serving], batch=128, seed=settings.seed)
    config = FitConfig(settings.budget, settings.steps, 2e-3, 2e-3, 128, settings.seed)
    return fit_filter(build, samples, held, config), reader


def _drawn(
    train: PrivateData,
    features: LowFrequencies,
    known: PairGaussians,
    count: int,
    source: torch.Generator,
) -> PrivateData:
    """Smooth images of drawn features with the labels they were drawn for."""
    drawn, pairs = known.draw(count, source)
    values = train.sensitive_classes
    return replace(
        train, records=features.images(drawn), utility=pairs // values, sensitive=pairs % values,
        side=None, owners=None,
    )  # fmt: skip


@dataclass(frozen=True)
class SumsFigures:
    """What a filter from noised sums comes to on real images."""

    epsilon: float
    raw: float  # utility read of raw images, by a network fitted on such
    served: float  # of filtered ones, by the network that was fitted on drawn features
    fresh: float  # of filtered ones, by a network fitted on filtered ones
    code: FilterAttack  # what the code's reader reads of the attribute


def measure(settings: SumsSettings, split: Split) -> SumsFigures:
    """Release, fit and measure."""
    features, known = released_gaussians(settings, split.train)
    found, reader = fitted(settings, split.train, features, known)
    attack, test = released_parts(found.network, split, settings.seed)
    fresh = read_images(attack, 600, settings.seed)
    raw = read_images(split.attack, 600, settings.seed)
    effort = replace(FULL, draws=1, reader_steps=2000, tree_rounds=80)
    target = target_of(found.network, split, settings.seed)
    (code,) = attack_filter(target, ["code"], effort=effort, formula=False)
    return SumsFigures(
        epsilon(settings),
        accuracy(raw, split.test.records, split.test.utility),
        accuracy(reader, test.records, test.utility),
        accuracy(fresh, test.records, test.utility),
        code,
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data-dir", type=Path, default=None, help="folder of MNIST")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--noise", type=float, default=SumsSettings.second_noise)
    parser.add_argument("--capacity", type=float, default=SumsSettings.capacity)
    parser.add_argument("--budget", type=float, default=SumsSettings.budget)
    given, out = parser.parse_args(), Console(width=120)
    for seed in given.seeds:
        settings = SumsSettings(
            seed=seed, second_noise=given.noise, capacity=given.capacity, budget=given.budget
        )
        found = measure(settings, load_private("mnist-thickness", given.data_dir, seed))
        out.print(
            f"seed {seed}: DP ε = {found.epsilon:.3g} at δ = {settings.delta:g}; digits: raw "
            f"{found.raw:.3f}, filtered {found.served:.3f}, by a fresh network {found.fresh:.3f}; "
            f"thickness: {told(found.code)}",
            soft_wrap=True,
        )


if __name__ == "__main__":
    main()
