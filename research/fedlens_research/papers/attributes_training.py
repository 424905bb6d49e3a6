"""How study ``attributes`` trains its filters, and the settings of both."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import nn

from fedlens.foundation.tables import Row
from fedlens.models.classifiers import Mlp, check_image
from fedlens.privatizers.attacks.attack_runs import build_attackers
from fedlens.privatizers.attacks.attackers import ATTACKERS
from fedlens.privatizers.attacks.attackers.protocol import Attacker
from fedlens.privatizers.classifiers import prior_of
from fedlens.privatizers.information import ADVERSARY, InformationPrivatizer, Objective
from fedlens.privatizers.networks.fader import Chained, FaderNet
from fedlens.privatizers.networks.filters import DenseFilter, UNet
from fedlens.privatizers.networks.releasers import ConvReleaser
from fedlens.privatizers.private_data import PrivateData
from fedlens.privatizers.protocol import FILTER, Privatizer, PrivatizerError, shows_code
from fedlens.privatizers.training import (
    Change,
    Progress,
    Stage,
    train_identity,
    train_privatizer,
)
from fedlens_research.filters.fader import CODE, FaderPrivatizer
from fedlens_research.framework.settings import check_names
from fedlens_research.papers.adversarial import adversary_of, moved, train_against

ALONE, CHAINED = "fader", "fader+unet"
BASELINES = (ALONE, CHAINED)
HIDDEN = 64  # Units of the discriminator of codes
PLANES = 4  # Planes of noise of the U-Net behind


NETWORKS = ("unet", "code", "dense")


@dataclass(frozen=True)
class AttributesSettings:
    """What ``attributes.toml`` sets."""

    data: tuple[str, ...]  # sources of images, with their paths where they need one
    alphas: tuple[float, ...]  # of the objective (1−α)A² + αB², a point each
    budgets: tuple[float, ...]  # of the objective A + weight · max(B − b, 0)², nats, a point each
    budget_weight: float  # the weight in it
    # ``unet``, which starts near the identity; ``code``, where all that is released passes a few
    # noisy numbers; or ``dense``, where it passes hidden units of one layer
    network: str
    width: int  # channels of the U-Net or before and after the code, or units of the dense filter
    # planes of noise at the U-Net's bottleneck, numbers of the code (each has its own), or entries
    # beside the dense filter's units
    noise: int
    capacity: float  # nats that the code can tell at most
    # standard deviation of the noise on each pixel that a code's filter releases
    output_noise_std: float
    distortion: float  # weight of the mean squared change of a pixel
    shift: int  # pixels by which training images are moved at most, each batch its own way
    # in which a dense filter learns to reproduce, or one with a code to serve the utility, before
    copying_steps: int
    batch: int  # images of a minibatch
    reading_steps: int  # of the provider's network
    meeting_steps: int  # of the adversary alone, before
    steps: int  # of both
    adversary_steps: int  # of the adversary in each
    rate: float  # Adam's, of the filter
    adversary_rate: float  # of the adversary
    last_rate: float  # share of them at the end
    # filters to measure beside it: ``fader``, a FaderNet; ``fader+unet``, one with a U-Net behind
    # it that learns by each objective
    baselines: tuple[str, ...]
    fader_width: int  # channels of its first layer, and of the U-Net's
    fader_weight: float  # of the FaderNet's discriminator against the squared error of pixels
    fader_steps: int  # of a FaderNet's training
    attackers: tuple[str, ...]  # by name
    attacker_steps: int  # of the networks among them, at least
    code_steps: int  # batches of the network that reads the code

    def __post_init__(self) -> None:
        if not self.data or not self.objectives():
            raise PrivatizerError(
                "data must name at least one, and so must alphas and budgets together"
            )
        check_names("network", [self.network], NETWORKS)
        if self.baselines:
            check_names("baselines", self.baselines, BASELINES)
        check_names("attackers", self.attackers, ATTACKERS)

    def objectives(self) -> list[Objective]:
        """What is minimised at each point."""
        limited = [
            Objective(budget=b, weight=self.budget_weight, distortion=self.distortion)
            for b in self.budgets
        ]
        squares = [Objective(alpha, distortion=self.distortion) for alpha in self.alphas]
        return [*squares, *limited]

    def fresh(self) -> dict[str, Attacker]:
        """The attackers, not yet fitted."""
        return build_attackers(self.attackers, self.attacker_steps)


def trainings(
    settings: AttributesSettings,
    train: PrivateData,
    reader: Callable[[], nn.Module],
    seed: int,
) -> Iterator[tuple[Row, Callable[[], Privatizer]]]:
    """Where every filter of a seed stands in the table, and what trains it when it is asked for.

    ``reader`` gives the provider's network; it is asked for when a filter is trained.
    """
    fader = cache(lambda: train_fader(settings, train, seed))

    def point(objective: Objective, *, chained: bool) -> Callable[[], Privatizer]:
        return lambda: train_point(
            settings, train, reader(), objective, seed, fader() if chained else None
        )

    for objective in settings.objectives():
        yield {"filter": settings.network, **_place(objective)}, point(objective, chained=False)
    if ALONE in settings.baselines:
        yield {"filter": ALONE, "alpha": None, "budget": None}, fader
    if CHAINED in settings.baselines:
        for objective in settings.objectives():
            yield {"filter": CHAINED, **_place(objective)}, point(objective, chained=True)


def _place(objective: Objective) -> Row:
    """Where on the curve a point is: either at an α or at a budget."""
    free = objective.budget is None
    return {"alpha": objective.alpha if free else None, "budget": objective.budget}


def train_point(
    settings: AttributesSettings,
    train: PrivateData,
    reader: nn.Module,
    objective: Objective,
    seed: int,
    fader: FaderPrivatizer | None = None,
    progress: Progress | None = None,
) -> InformationPrivatizer:
    """A filter by Algorithm 2, against an adversary of its own; behind a FaderNet if one is given.

    With one, the provider's network and the adversary see what leaves the whole chain.
    """
    generator = torch.Generator().manual_seed(seed)
    net = (
        behind(fader.networks[FILTER], settings, train, generator)
        if fader is not None
        else starting_filter(settings, train, generator, seed)
    )
    method = InformationPrivatizer(
        net,
        prior_of(train.sensitive, train.sensitive_classes),
        objective,
        adversary=adversary_of(net, train, generator),
        fixed_utility=reader,
    )
    change, meeting = moved(settings.shift), settings.meeting_steps
    if shows_code(net):
        _serve(method, settings, train, seed, change)
    rates = {FILTER: settings.rate, ADVERSARY: settings.adversary_rate}
    train_against(
        method, train, settings, rates, meeting=meeting, seed=seed, change=change,
        progress=progress,
    )  # fmt: skip
    return method


def _serve(
    method: InformationPrivatizer,
    settings: AttributesSettings,
    train: PrivateData,
    seed: int,
    change: Change | None,
) -> None:
    """Bring a filter with a short code to serve the utility, before anything is hidden."""
    wanted = method.objective
    method.objective = replace(wanted, budget=math.inf)
    stage = Stage("serving", {FILTER: settings.rate}, settings.copying_steps)
    train_privatizer(method, train, [stage], batch=settings.batch, seed=seed, change=change)
    method.objective = wanted


def starting_filter(
    settings: AttributesSettings, train: PrivateData, generator: torch.Generator, seed: int
) -> nn.Module:
    """A filter that gives back about what it is given; of a short code, as it is initialised."""
    limits, shape = (train.low, train.high), check_image(train.shape)
    width, noise = settings.width, settings.noise
    if settings.network == "unet":
        return UNet(shape, width, noise=noise, limits=limits, generator=generator)
    if settings.network == "code":
        return ConvReleaser(
            shape, width, code=noise, capacity=settings.capacity,
            output_noise_std=settings.output_noise_std,
            low=train.low, high=train.high, generator=generator,
        )  # fmt: skip
    net = DenseFilter(shape, width, noise=noise, residual=False, limits=limits, generator=generator)
    train_identity(
        net, train, steps=settings.copying_steps, rate=3e-3, batch=settings.batch, seed=seed
    )
    return net


def train_fader(settings: AttributesSettings, train: PrivateData, seed: int) -> FaderPrivatizer:
    """A FaderNet (Lample et al. 2017) whose images show an attribute drawn from the prior.

    The baseline of Bertran et al. 2019, section 5.3: alone, or with a U-Net behind it that learns
    by the same objective as the study's own filter.
    """
    generator = torch.Generator().manual_seed(seed)
    shape, classes = check_image(train.shape), train.sensitive_classes
    prior, limits = prior_of(train.sensitive, classes), (train.low, train.high)
    net = FaderNet(
        shape, prior, settings.fader_width, drawn=True, limits=limits, generator=generator
    )
    code = Mlp(math.prod(net.code_shape), classes, (HIDDEN, HIDDEN), generator=generator)
    method = FaderPrivatizer(net, code, weight=settings.fader_weight)
    rates = {FILTER: settings.rate, CODE: settings.rate}
    steps, each = settings.fader_steps, settings.adversary_steps
    stage = Stage("fading", rates, steps, each, last_rate=0.1, together=True)
    train_privatizer(method, train, [stage], batch=settings.batch, seed=seed)
    return method


def behind(
    fader: nn.Module, settings: AttributesSettings, train: PrivateData, generator: torch.Generator
) -> nn.Module:
    """A fresh U-Net, near the identity, behind a FaderNet that learns no more."""
    shape, limits, width = check_image(train.shape), (train.low, train.high), settings.fader_width
    return Chained(fader, UNet(shape, width, noise=PLANES, limits=limits, generator=generator))
