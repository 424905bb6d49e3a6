"""What plain noise costs: ``python -m benchmarks.noise_on_records --data-dir DATA``.

The yardstick of every trained filter. A release is the record's first principal components (fitted
on the train part; 784 of an MNIST image are the image itself, turned) with Gaussian noise of one
deviation. At each deviation a strong reader of the release reads the utility, another the sensitive
attribute, and the Gaussian log-det bound says how much is told at most, for records with the train
part's covariance. Where the utility is read as well as behind a trained filter, the attribute is to
be compared.

Fano's inequality gives the least that a release must tell if the utility is read with so many
errors: H(U) − h(e) − e log(classes − 1) nats. No filter of that use is certified below it.

Simulation only.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from rich.console import Console
from torch import Tensor

from fedlens.data.attributes import load_private
from fedlens.privatizers.attacks.attack_runs import reweighted, shares_of
from fedlens.privatizers.attacks.attackers.vectors import VectorReader
from fedlens.privatizers.attacks.balanced import balanced_accuracy
from fedlens.privatizers.networks.information import gaussian_information_bound
from fedlens.privatizers.private_data import PrivateData, Split


@dataclass(frozen=True)
class NoiseRow:
    """What one release of noised components tells."""

    components: int
    deviation: float  # of the noise, in the records' units
    utility: float  # share read right
    sensitive: float  # balanced accuracy
    bound: float  # nats, Gaussian log-det
    least: float  # nats that this utility needs, by Fano


def principal(train: PrivateData, components: int) -> tuple[Tensor, Tensor]:
    """The mean record [d] and the first principal directions [d, components]."""
    flat = train.records.flatten(1)
    mean = flat.mean(0)
    _, vectors = torch.linalg.eigh(torch.cov((flat - mean).T.double()))
    return mean, vectors.flip(1)[:, :components].float()


def fano(error: float, labels: Tensor) -> float:
    """Nats that a release must tell of labels int64 [n] that are read with this share of errors."""
    shares = torch.bincount(labels).double() / len(labels)
    shares = shares[shares > 0]
    entropy = float(-(shares * shares.log()).sum())
    doubt = -sum(p * math.log(p) for p in (error, 1 - error) if p > 0)
    return max(0.0, entropy - doubt - error * math.log(max(1, len(shares) - 1)))


def measure(
    split: Split, components: int, deviations: Sequence[float], *, steps: int, seed: int
) -> Iterator[NoiseRow]:
    """A row for each deviation of the noise."""
    mean, directions = principal(split.train, components)
    plain = {
        name: (part.records.flatten(1) - mean) @ directions
        for name, part in (("train", split.train), ("attack", split.attack), ("test", split.test))
    }
    covariance = torch.cov(plain["train"].T.double()).reshape(components, components)
    for deviation in deviations:
        source = torch.Generator().manual_seed(seed)
        known, test = (
            replace(
                part,
                records=code + deviation * torch.randn(code.shape, generator=source),
                side=None,
            )
            for part, code in ((split.attack, plain["attack"]), (split.test, plain["test"]))
        )
        utility = read_utility(known, test, steps, seed)
        sensitive = _read(known, test, steps, seed)
        noise = torch.full((components,), deviation)
        bound = float(gaussian_information_bound(covariance, noise))
        yield NoiseRow(
            components, deviation, utility, sensitive, bound, fano(1 - utility, test.utility)
        )


def read_utility(known: PrivateData, test: PrivateData, steps: int, seed: int) -> float:
    """Share of the utility that the same kind of reader reads right."""
    own = replace(known, sensitive=known.utility, sensitive_classes=known.utility_classes)
    fitted = VectorReader(steps=steps, tree_rounds=20).fit(own, seed)
    answers = fitted.log_probabilities(test.records, None).argmax(-1)
    return float((answers == test.utility).double().mean())


def _read(known: PrivateData, test: PrivateData, steps: int, seed: int) -> float:
    fitted = VectorReader(steps=steps, tree_rounds=60).fit(known, seed)
    guesses = fitted.log_probabilities(test.records, None)
    answers = reweighted(guesses, shares_of(known)).argmax(-1)
    return balanced_accuracy(answers, test, seed)[0]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", default="amnist", help="source of private records")
    parser.add_argument("--data-dir", type=Path, default=None, help="folder of the data")
    parser.add_argument("--components", type=int, nargs="+", default=[20, 784])
    parser.add_argument("--deviations", type=float, nargs="+", default=[1.0, 2.0, 3.0])
    parser.add_argument("--steps", type=int, default=2000, help="batches of each reader")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    split = load_private(given.data, given.data_dir, given.seed)
    out = Console(width=100)
    out.print("components  deviation  utility  sensitive  log-det nats  least nats (Fano)")
    for components in given.components:
        rows = measure(split, components, given.deviations, steps=given.steps, seed=given.seed)
        for row in rows:
            out.print(
                f"{row.components:10d}  {row.deviation:9.2f}  {row.utility:7.3f}  "
                f"{row.sensitive:9.3f}  {row.bound:12.2f}  {row.least:17.2f}",
            )


if __name__ == "__main__":
    main()
