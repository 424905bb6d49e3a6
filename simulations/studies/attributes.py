"""Study ``attributes``: one attribute of an image stays readable, another does not (000, 5.2-5.3).

The information privatizer trains a filter by Algorithm 2: the provider's network for the use is
fixed and goes on reading released images unchanged; an adversary for the secret learns all along.
A point of the curve is a weight α of equation 6, or a budget: at most b nats may leak. Squares let
go of a leak as it gets small; a budget below what an attacker could use keeps pressing.
Where the data of the paper is at hand (CelebA, FaceScrub, UTKFace, CIFAR-100, by path) it runs on
that; digit against thickness on MNIST stands in for it, with another pair of attributes: its
figures are not comparable with the paper's, which are printed beside them for their size alone.

Fresh attackers are fitted on released images that neither the filter nor its adversary has met;
``frozen`` is an attacker fitted on *raw* images, which flatters every filter. ``use`` is the
provider's unchanged network, on raw images and on released ones, both of the test part.

Simulation only. Settings are to be chosen on the attack part cut in two, never on the test part.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from client.privatizers.information import SECRET, InformationPrivatizer, Objective
from client.privatizers.networks import prior_of
from client.privatizers.protocol import FILTER, PrivatizerError
from client.privatizers.training import Stage, train_identity, train_privatizer
from models.classifiers import check_image
from models.filters import DenseFilter, UNet
from models.releasers import ConvReleaser
from simulations.privatizers.attackers import ATTACKERS
from simulations.privatizers.attackers.networks import NetworkAttacker
from simulations.privatizers.attackers.protocol import Attacker, Fitted
from simulations.privatizers.data import PrivateData, Split
from simulations.privatizers.scores import judge
from simulations.privatizers.sources import load_private
from simulations.studies.attacking import (
    accuracy,
    build_attackers,
    columns,
    joint_adversary,
    learn,
    number,
    read_all,
    release,
    small_reader,
)
from simulations.studies.charts import plot_lines, plot_sheet
from simulations.studies.frame import Report, Row, check_names

COLUMNS = (
    "data",
    "alpha",
    "budget",
    "seed",
    "use_raw",
    "use",
    "paper_use",
    "use_loss",
    "attacker_raw",
    "frozen",
    "attacker",
    "paper_attacker",
    "seconds",
)
PAPER_USE, PAPER_ATTACKER = 0.936, 0.57
"""CelebA, gender kept and smile hidden (paper 000, Table 2): means of its two columns, by the
networks of its authors; the raw figures are 0.943 and 0.927."""
SHOWN = 10
NETWORKS = ("unet", "code", "dense")


@dataclass(frozen=True)
class Settings:
    """What ``attributes.toml`` sets.

    Attributes:
        data: sources of images, with their paths where they need one.
        alphas: of the objective (1−α)A² + αB², a point each.
        budgets: of the objective A + weight · max(B − b, 0)², nats, a point each.
        budget_weight: the weight in it.
        network: ``unet``, which starts near the identity; ``code``, where all that is released
            passes a few noisy numbers; or ``dense``, where it passes hidden units of one layer.
        width: channels of the U-Net or before and after the code, or units of the dense filter.
        noise: planes of noise at the U-Net's bottleneck, numbers of the code (each has its own), or
            entries beside the dense filter's units.
        grain: standard deviation of the noise on each pixel that a code's filter releases.
        copying_steps: in which a filter that is no U-Net learns to reproduce, before.
        batch: images of a minibatch.
        reading_steps: of the provider's network.
        meeting_steps: of the adversary alone, before.
        steps: of both.
        adversary_steps: of the adversary in each.
        rate: Adam's, of the filter.
        adversary_rate: of the adversary.
        last_rate: share of them at the end.
        attackers: by name.
        attacker_steps: of the networks among them, at least.
    """

    data: tuple[str, ...]
    alphas: tuple[float, ...]
    budgets: tuple[float, ...]
    budget_weight: float
    network: str
    width: int
    noise: int
    grain: float
    copying_steps: int
    batch: int
    reading_steps: int
    meeting_steps: int
    steps: int
    adversary_steps: int
    rate: float
    adversary_rate: float
    last_rate: float
    attackers: tuple[str, ...]
    attacker_steps: int

    def __post_init__(self) -> None:
        if not self.data or not self.objectives():
            raise PrivatizerError(
                "data must name at least one, and so must alphas and budgets together"
            )
        check_names("network", [self.network], NETWORKS)
        check_names("attackers", self.attackers, ATTACKERS)

    def objectives(self) -> list[Objective]:
        """What is minimised at each point."""
        limited = [Objective(budget=b, weight=self.budget_weight) for b in self.budgets]
        return [*(Objective(alpha) for alpha in self.alphas), *limited]

    def fresh(self) -> dict[str, Attacker]:
        """The attackers, not yet fitted."""
        return build_attackers(self.attackers, self.attacker_steps)


@dataclass(frozen=True, eq=False)
class Provider:
    """What is there before any filter, of one source and seed.

    Attributes:
        reader: the provider's network for the use.
        use: its accuracy on raw test images.
        attacker: balanced accuracy of the strongest attacker of raw images.
        frozen: the networks' attacker as fitted on raw images.
    """

    reader: nn.Module
    use: float
    attacker: float
    frozen: Fitted


def run(
    settings: Settings,
    *,
    seeds: Sequence[int],
    data_dir: Path | None,
    out: Path,
    report: Report,
) -> list[Row]:
    """A row for each source, α and seed."""
    rows: list[Row] = []
    for source in settings.data:
        sheet: dict[str, Tensor] = {}
        for seed in seeds:
            split = load_private(source, data_dir, seed)
            provider = provide(settings, split, seed)
            for objective in settings.objectives():
                began = time.perf_counter()
                method = train_point(settings, split.train, provider.reader, objective, seed)
                row = point_row(settings, method, provider, split, seed)
                head: Row = {"data": source.partition(":")[0], **_place(objective), "seed": seed}
                rows.append({**head, **row, "seconds": time.perf_counter() - began})
                report(
                    f"attributes: {head['data']} {_named(objective)} seed {seed}: use "
                    f"{row['use']:.3f} of {row['use_raw']:.3f}, attacker {row['attacker']:.3f}"
                )
                if seed == seeds[0]:
                    some = split.test.take(slice(0, SHOWN))
                    sheet.setdefault("raw", some.records)
                    sheet[_named(objective)] = release(method, some, seed).records
        plot_sheet(sheet, out / f"attributes-{source.partition(':')[0]}-sheet.png")
    _plot(rows, out)
    return rows


def _place(objective: Objective) -> Row:
    """Where on the curve a point is: either at an α or at a budget."""
    free = objective.budget is None
    return {"alpha": objective.alpha if free else None, "budget": objective.budget}


def _named(objective: Objective) -> str:
    free = objective.budget is None
    return f"α={objective.alpha:g}" if free else f"b={objective.budget:g}"


def provide(settings: Settings, split: Split, seed: int) -> Provider:
    """The provider's network, and attackers of raw images."""
    generator = torch.Generator().manual_seed(seed)
    train = split.train
    reader = small_reader(train.shape, train.utility_classes, generator)
    steps = settings.reading_steps
    learn(reader, train.records, train.utility, steps=steps, rate=2e-3, seed=seed)
    raw = columns(
        read_all(
            settings.fresh(),
            split.attack,
            split.test,
            seed,
        )
    )
    attack = split.attack
    frozen = NetworkAttacker(epochs=1, steps=settings.attacker_steps).fit(
        attack.records, attack.secret, None, seed, classes=attack.secret_classes
    )
    use = accuracy(reader, split.test.records, split.test.utility)
    return Provider(reader, use, number(raw, "attacker"), frozen)


def train_point(
    settings: Settings,
    train: PrivateData,
    reader: nn.Module,
    objective: Objective,
    seed: int,
) -> InformationPrivatizer:
    """A filter by Algorithm 2, against an adversary of its own."""
    generator = torch.Generator().manual_seed(seed)
    method = InformationPrivatizer(
        starting_filter(settings, train, generator, seed),
        prior_of(train.secret, train.secret_classes),
        objective,
        secret=joint_adversary(train, generator),
        fixed_use=reader,
    )
    adversary = {SECRET: settings.adversary_rate}
    stages = [
        Stage("meeting", adversary, settings.meeting_steps),
        Stage(
            "releasing",
            {FILTER: settings.rate, **adversary},
            settings.steps,
            settings.adversary_steps,
            last_rate=settings.last_rate,
            together=True,
        ),
    ]
    train_privatizer(method, train, stages, batch=settings.batch, seed=seed)
    return method


def starting_filter(
    settings: Settings, train: PrivateData, generator: torch.Generator, seed: int
) -> nn.Module:
    """A filter that gives back about what it is given."""
    limits, shape = (train.low, train.high), check_image(train.shape)
    width, noise = settings.width, settings.noise
    if settings.network == "unet":
        return UNet(shape, width, noise=noise, limits=limits, generator=generator)
    net: nn.Module
    if settings.network == "code":
        low, high = limits
        grain = settings.grain
        net = ConvReleaser(
            shape, width, code=noise, grain=grain, low=low, high=high, generator=generator
        )
    else:
        net = DenseFilter(
            shape, width, noise=noise, residual=False, limits=limits, generator=generator
        )
    train_identity(
        net, train, steps=settings.copying_steps, rate=3e-3, batch=settings.batch, seed=seed
    )
    return net


def point_row(
    settings: Settings,
    method: InformationPrivatizer,
    provider: Provider,
    split: Split,
    seed: int,
) -> Row:
    """What the provider and fresh attackers read of released test images."""
    attack, test = (
        release(method, part, seed + place) for place, part in enumerate((split.attack, split.test))
    )
    use = accuracy(provider.reader, test.records, test.utility)
    return {
        "use_raw": provider.use,
        "use": use,
        "paper_use": PAPER_USE,
        "use_loss": provider.use - use,
        "attacker_raw": provider.attacker,
        "frozen": judge(provider.frozen, test, seed, resamples=2).balanced_accuracy,
        "paper_attacker": PAPER_ATTACKER,
        "squared_error": float((test.records - split.test.records).square().mean()),
        **columns(read_all(settings.fresh(), attack, test, seed)),
    }


def _plot(rows: Sequence[Row], out: Path) -> None:
    """Attackers, fresh and frozen, against what the use loses."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        for kind in ("attacker", "frozen"):
            point = (100 * number(row, "use_loss"), number(row, kind))
            lines.setdefault(f"{row['data']}: {kind}", []).append(point)
    plot_lines(
        {name: sorted(points) for name, points in lines.items()},
        xlabel="use that is lost (points)",
        ylabel="balanced accuracy on the secret",
        level=("raw images", number(rows[0], "attacker_raw")),
        path=out / "attributes-curve.png",
    )
