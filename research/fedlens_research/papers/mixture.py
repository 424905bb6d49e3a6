"""Study ``mixture``: how near training comes to what is possible (Bertran et al., section 7.2).

Utility and sensitive attribute are the two coordinates of a point, k says how they hang together.
A filter is
trained by Algorithm 1 (networks only, which never see the densities), then its A = I(U;X|Q) and
B = I(S;Q) are computed by quadrature, so that no estimate enters a row. Beside it stand K, the
optimum αK, (1−α)K that the paper claims, and the best linear filter a search on the quadrature
finds.

At k = 0.4 the claimed optimum is out of reach, and so is anything below the best linear filter
for any filter q = f(x) + z whose f sees the point alone: a search over four free means ends at the
linear optimum. What beats it draws noise of its own *inside* f, and so releases one thing or
another of the same person: the second filter here.

No figure was tuned on test points: the quadrature knows the distribution, so there are none.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from fedlens.data.attributes import load_private
from fedlens.foundation.tables import Row
from fedlens.models.classifiers import Mlp
from fedlens.privatizers.information import (
    ADVERSARY,
    RAW_UTILITY,
    UTILITY,
    InformationPrivatizer,
    Objective,
)
from fedlens.privatizers.networks.filters import LinearFilter, MlpFilter
from fedlens.privatizers.protocol import FILTER, PrivatizerError
from fedlens.privatizers.training import Stage, train_privatizer
from fedlens_research.framework.charts import plot_plane
from fedlens_research.framework.pieces import Piece
from fedlens_research.framework.settings import parse_points
from fedlens_research.framework.study import SeedTrial
from fedlens_research.papers.mixture_exact import PlanePoint, best_linear, bound, evaluate

COLUMNS = (
    "k", "alpha", "seed", "A", "paper_A", "B", "paper_B", "sum", "K", "loss", "best_linear_loss",
    "nonlinear_loss", "seconds",
)  # fmt: skip
READERS = (RAW_UTILITY, UTILITY, ADVERSARY)


@dataclass(frozen=True)
class MixtureSettings:
    """What ``mixture.toml`` sets."""

    ks: tuple[float, ...]  # of the mixtures
    alphas: tuple[float, ...]  # of the objectives
    steps: int  # of the linear filter's training
    batch: int  # points of a minibatch
    reader_rate: float  # Adam's rate of the three readers
    filter_rate: float  # of the linear filter
    nonlinear: tuple[str, ...]  # pairs ``k:alpha`` that a non-linear filter is trained for too
    nonlinear_steps: int  # iterations of it
    nonlinear_reader_steps: int  # steps of the readers in each
    nonlinear_rate: float  # Adam's rate of the non-linear filter
    nonlinear_reader_rate: float  # of its readers
    every: int  # iterations between two points of a trajectory

    def __post_init__(self) -> None:
        if not self.ks or not self.alphas:
            raise PrivatizerError("ks and alphas must each name at least one value")
        parse_points(self.nonlinear, "an alpha", "a k")


@dataclass(frozen=True)
class MixtureFilter:
    """A filter after training, where it stands, how it came there and what that took."""

    point: PlanePoint
    path: tuple[tuple[float, float], ...]
    seconds: float


SETTINGS = MixtureSettings


def run_seed(settings: MixtureSettings, trial: SeedTrial) -> list[Row]:
    """A row for each k and α; the trajectories of the first seed as a plot."""
    rows: list[Row] = []
    paths: dict[str, dict[str, tuple[tuple[float, float], ...]]] = {}
    for k, alpha in parse_points(settings.nonlinear):
        if trial.first and (k not in settings.ks or alpha not in settings.alphas):
            trial.report(f"mixture: no non-linear filter for {k:g}:{alpha:g}, not of ks and alphas")
    for k in settings.ks:
        panel = paths.setdefault(_panel(k), {})
        for alpha in settings.alphas:
            trial.report(f"mixture: k={k:g} alpha={alpha:g} seed {trial.seed}")
            free = (k, alpha) in parse_points(settings.nonlinear)
            found = trial.piece(
                {"k": k, "alpha": alpha},
                lambda k=k, alpha=alpha, free=free: _piece(settings, k, alpha, trial.seed, free),  # type: ignore[misc]
            )
            rows += found.rows
            for name, path in found.shown.items():
                panel[f"{name}, α={alpha:g}"] = tuple((a, b) for a, b in path.tolist())
    if trial.first:
        bounds = {_panel(k): bound(k) for k in settings.ks}
        plot_plane(paths, bounds, trial.out / "mixture-plane.png")
    return rows


def _piece(settings: MixtureSettings, k: float, alpha: float, seed: int, free: bool) -> Piece:
    """One row, and the ways that its filters went."""
    least = best_linear(k, alpha)[0]
    trained = {"linear": train_linear(settings, k, alpha, seed)}
    if free:
        trained["non-linear"] = train_nonlinear(settings, k, alpha, seed)
    row = _row(k, alpha, least, trained["linear"], trained.get("non-linear"))
    paths = {name: torch.tensor(one.path, dtype=torch.float64) for name, one in trained.items()}
    return Piece(
        [{"seed": seed, **row}], {name: path.reshape(-1, 2) for name, path in paths.items()}
    )


def draw(rows: Sequence[Row], settings: MixtureSettings, out: Path) -> None:
    """Nothing: the one plot has trajectories, which no row has."""


def train_linear(settings: MixtureSettings, k: float, alpha: float, seed: int) -> MixtureFilter:
    """Bertran et al.'s linear filter θx + z, by Algorithm 1."""
    rates = dict.fromkeys(READERS, settings.reader_rate) | {FILTER: settings.filter_rate}
    stage = Stage("linear", rates, settings.steps, last_rate=0.1, together=True)
    net = LinearFilter(2, generator=torch.Generator().manual_seed(seed))
    return _train(net, [stage], settings, k, Objective(alpha), seed)


def train_nonlinear(settings: MixtureSettings, k: float, alpha: float, seed: int) -> MixtureFilter:
    """A filter f(x, w) + z, by Algorithm 1 with several steps of wider readers an iteration."""
    readers = dict.fromkeys(READERS, settings.nonlinear_reader_rate)
    rates = {**readers, FILTER: settings.nonlinear_rate}
    steps, each = settings.nonlinear_steps, settings.nonlinear_reader_steps
    last = Stage("non-linear", rates, steps, each, last_rate=0.1, together=True)
    net = MlpFilter(2, inner=1, generator=torch.Generator().manual_seed(seed))
    stages = [Stage("readers", readers, 200), last]
    return _train(net, stages, settings, k, Objective(alpha), seed, width=64)


def _train(
    net: LinearFilter | MlpFilter,
    stages: Sequence[Stage],
    settings: MixtureSettings,
    k: float,
    objective: Objective,
    seed: int,
    width: int = 32,
) -> MixtureFilter:
    started, path = time.perf_counter(), list[tuple[float, float]]()

    def trace(step: int, _: Tensor) -> None:
        if step % settings.every == 1:
            point = evaluate(net, k, nodes=3)
            path.append((point.lost, point.leaked))

    source = torch.Generator().manual_seed(seed + 1)
    readers = {name: Mlp(2, 2, (width, width), generator=source) for name in READERS}
    method = InformationPrivatizer(net, torch.tensor([0.5, 0.5]), objective, **readers)
    data = load_private(f"mixture:{k:g}", seed=seed).train
    train_privatizer(method, data, stages, batch=settings.batch, seed=seed, on_step=trace)
    point = evaluate(net, k)
    path.append((point.lost, point.leaked))
    return MixtureFilter(point, tuple(path), time.perf_counter() - started)


def _row(
    k: float, alpha: float, least: float, linear: MixtureFilter, free: MixtureFilter | None
) -> Row:
    edge, point = bound(k), linear.point
    return {
        "k": k,
        "alpha": alpha,
        "A": point.lost,
        "paper_A": alpha * edge,
        "B": point.leaked,
        "paper_B": (1 - alpha) * edge,
        "sum": point.lost + point.leaked,
        "K": edge,
        "loss": point.loss(alpha),
        "paper_loss": alpha * (1 - alpha) * edge**2,
        "best_linear_loss": least,
        "nonlinear_A": free.point.lost if free else None,
        "nonlinear_B": free.point.leaked if free else None,
        "nonlinear_loss": free.point.loss(alpha) if free else None,
        "seconds": linear.seconds,
        "nonlinear_seconds": free.seconds if free else None,
    }


def _panel(k: float) -> str:
    return f"k = {k:g}"
