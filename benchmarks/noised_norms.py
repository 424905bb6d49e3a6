"""What noised norms cost in tightness: ``python -m benchmarks.noised_norms``.

For norms of several shapes, what Bayesian figures would be of exact, private norms (which fedlens
never shows) beside what they are of the noised histograms that a run releases, with differential
privacy at the same δ. ``--share`` and ``--runs`` change the share of privacy that norms get and how
many times each line is drawn; medians are shown. Everything is synthetic.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from fedlens.accountant.bayesian.accountant import BayesianAccountant
from fedlens.accountant.bayesian.noised_norms import noised_norms, split_noise
from fedlens.accountant.bayesian.norms import NormHistogram
from fedlens.accountant.bayesian.published import PublishedAccountant
from fedlens.accountant.dp.differential import DifferentialAccountant
from fedlens.accountant.events import SubsampledGaussian
from fedlens.accountant.noise import private_source

DELTA = 1e-10
SHARES = (0.005, 0.02, 0.1)
Norms = NDArray[np.float64]


@dataclass(frozen=True)
class SampledRun:
    """A run's rounds."""

    users: int
    rate: float
    noise: float
    rounds: int

    @property
    def event(self) -> SubsampledGaussian:
        """One of them, with C = 1."""
        return SubsampledGaussian("user", "poisson", "add-remove", self.rate, self.noise, 1.0)


SETTINGS = (
    SampledRun(1_000, 0.2, 6.0, 20),
    SampledRun(10_000, 0.1, 4.0, 50),
    SampledRun(100_000, 0.05, 3.0, 100),
    SampledRun(1_000_000, 0.01, 1.0, 100),
    SampledRun(1_000_000, 0.01, 1.0, 1000),
)
SHAPES: dict[str, Callable[[np.random.Generator, int], Norms]] = {
    "a tenth to a third": lambda source, n: source.uniform(0.1, 1 / 3, n),
    "heavy tail, 1 in 90 at C": lambda source, n: np.minimum(
        1.0, 0.05 * np.log(source.random(n)) ** 2
    ),
    "all at C": lambda _, n: np.ones(n),
}


@dataclass(frozen=True)
class FiguresBothWays:
    """ε at δ = 1e-10: exact ones first, noised ones second, differential privacy last."""

    published: tuple[float, float]
    corrected: tuple[float, float]
    dp: float


def drawn(
    setting: SampledRun,
    shape: Callable[[np.random.Generator, int], Norms],
    share: float,
    source: np.random.Generator,
) -> FiguresBothWays:
    """One run's figures both ways."""
    event, noise = setting.event, split_noise(setting.noise, share).norms
    norms = NormHistogram.from_norms(shape(source, setting.users), 1.0)
    exact = BayesianAccountant(setting.rounds, DELTA)
    noised = PublishedAccountant(setting.rounds, DELTA, setting.users)
    for _ in range(setting.rounds):
        counts = source.binomial(norms.counts, setting.rate)
        exact.compose(event, NormHistogram(1.0, tuple(counts.tolist())))
        released = noised_norms(counts, clipping_norm=1.0, noise=noise, source=private_source(-1))
        noised.compose(event, released)
    account = DifferentialAccountant()
    account.compose(event, setting.rounds)
    dp = account.epsilon(DELTA).epsilon
    return FiguresBothWays(
        (exact.as_published().epsilon, noised.as_published().epsilon),
        (min(exact.corrected().epsilon, dp), min(noised.corrected().epsilon, dp)),
        dp,
    )


def table(shares: tuple[float, ...], runs: int) -> str:
    """The table, in Markdown."""
    source = np.random.default_rng(0)
    rows = [
        "| run | norms | published: exact | noised | corrected: exact | noised | DP |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for setting in SETTINGS:
        for name, shape in SHAPES.items():
            for share in shares:
                found = [drawn(setting, shape, share, source) for _ in range(runs)]
                rows.append(_row(setting, name, share, found))
    return "\n".join(rows)


def _row(setting: SampledRun, name: str, share: float, found: list[FiguresBothWays]) -> str:
    figures = np.median([(*one.published, *one.corrected, one.dp) for one in found], axis=0)
    run = f"N = {setting.users:,}, q = {setting.rate:g}, z = {setting.noise:g}, T = "
    cells = [f"{run}{setting.rounds}, s = {share:.1%}", name, *(f"{x:.2f}" for x in figures)]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, nargs="*", default=SHARES, help="of 1/z²")
    parser.add_argument("--runs", type=int, default=3, help="draws of each line")
    args = parser.parse_args()
    Console().print(table(tuple(args.share), args.runs), markup=False, soft_wrap=True)


if __name__ == "__main__":
    main()
