"""Training the points of a curve, each by the recipe of the study that settled its settings.

A point is one filter. The recipes of ``attributes``, ``cloak``, ``alpha-images`` and ``alpha-load``
are taken as they are; for a quick curve with fewer steps and smaller networks, which costs quality.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import torch
from torch import nn

from fedlens.models.classifiers import Mlp
from fedlens.privatizers.alpha import AlphaObjective
from fedlens.privatizers.attacks.attackers.reading_nets import read_images, read_points
from fedlens.privatizers.classifiers import prior_of
from fedlens.privatizers.information import (
    ADVERSARY,
    RAW_UTILITY,
    UTILITY,
    InformationPrivatizer,
    Objective,
)
from fedlens.privatizers.networks.filters import LinearFilter
from fedlens.privatizers.networks.masks import threshold_of
from fedlens.privatizers.private_data import PrivateData
from fedlens.privatizers.protocol import FILTER, Privatizer, PrivatizerError
from fedlens.privatizers.training import Progress, Stage, train_privatizer
from fedlens_research.papers import STUDIES

CURVE_METHODS = ("information", "cloak", "alpha")
"""Methods that have a curve; a FaderNet is a baseline of one filter."""


@dataclass(frozen=True)
class OperatingPoint:
    """A place on a curve."""

    # information: of (1−α)A² + αB², in [0, 1]; alpha: the order of Arimoto's information
    alpha: float | None = None
    weight: float | None = None  # alpha: λ of the adversary's doubt
    # cloak: share of the entries that are not sent, in [0, 1)
    suppression_ratio: float | None = None

    @property
    def name(self) -> str:
        """As people read it: ``alpha=0.5``, ``alpha=1 lambda=1.5``, ``suppression_ratio=0.4``."""
        return " ".join(f"{name}={value:g}" for name, value in self.row().items())

    def row(self) -> dict[str, float]:
        """What is turned, by name; ``lambda`` is the weight."""
        values = {
            "alpha": self.alpha,
            "lambda": self.weight,
            "suppression_ratio": self.suppression_ratio,
        }
        return {name: value for name, value in values.items() if value is not None}


def parse_operating_points(method: str, points: Sequence[str]) -> list[OperatingPoint]:
    """Places on the method's curve, as they were written, each once, in order.

    Raises:
        PrivatizerError: no method of that name has a curve, none is written, or one is no number
            in its range.
    """
    if method not in CURVE_METHODS:
        raise PrivatizerError(f"method={method!r} has no curve: choose {', '.join(CURVE_METHODS)}")
    if not points:
        raise PrivatizerError("points: give at least one")
    found = dict.fromkeys(_parse(method, text) for text in points)
    return sorted(found, key=lambda point: tuple(point.row().values()))


def _parse(method: str, text: str) -> OperatingPoint:
    first, colon, second = text.partition(":")
    try:
        value, weight = float(first), float(second) if colon else 1.0
    except ValueError:
        raise PrivatizerError(f"point {text!r}: {_HOW[method]}") from None
    if colon and method != "alpha":
        raise PrivatizerError(f"point {text!r}: {_HOW[method]}")
    if method == "information":
        return OperatingPoint(alpha=Objective(value).alpha)
    if method == "alpha":
        objective = AlphaObjective(value, weight)
        return OperatingPoint(alpha=objective.alpha, weight=objective.weight)
    if not 0 <= value < 1:
        raise PrivatizerError(f"point {text!r}: {_HOW[method]}")
    return OperatingPoint(suppression_ratio=value)


_HOW = {
    "information": "give alpha, a number in [0, 1], as in 0.8",
    "alpha": "give an order and a weight, as in 1:20",
    "cloak": "give a suppression ratio in [0, 1), as in 0.4: something has to be sent",
}


IMAGES, SERIES, POINTS = "images", "series", "points"
QUICK: dict[str, dict[str, Any]] = {
    "attributes": {"reading_steps": 200, "steps": 500, "attacker_steps": 200},
    "cloak": {"provider_epochs": 2, "value_steps": 100},
    "alpha-images": {
        "reading_steps": 200,
        "copying_steps": 120,
        "steps": 200,
        "attacker_steps": 200,
    },
    "alpha-load": {"hidden": 24, "steps": 200, "attacker_steps": 150},
}
"""What a quick curve has less of than the study's quick form."""
POINT_BATCH, POINT_READER_RATE, POINT_FILTER_RATE = 512, 3e-3, 1e-2
"""Of the mixture study's linear filter; points need far larger batches than images."""
POINT_STEPS = 2  # Times the steps of images: they are cheap


@dataclass(frozen=True, eq=False)
class TrainedFilter:
    """A filter, where it is on the curve, and who reads the utility of what it releases."""

    point: OperatingPoint  # the place
    filter: nn.Module  # the network that devices run, in evaluation mode
    # the service's network for released records: its unchanged one, or the one that the method
    # trains beside the filter; None where the record is its own utility
    reader: nn.Module | None


class CurveJob(NamedTuple):
    """What a recipe is carried out on."""

    settings: Any  # a frozen dataclass: all numbers of the recipe
    train: PrivateData
    provider: nn.Module | None
    points: Sequence[OperatingPoint]
    seed: int
    progress: Progress | None = None  # is told of the steps of each filter's training


@dataclass(frozen=True)
class Recipe:
    """How a method's points are trained on one kind of data."""

    study: str  # whose settings it takes
    provider: Callable[[Any, PrivateData, int], nn.Module | None]
    """The service's network, trained on raw records; None where that is the record."""
    filters: Callable[[CurveJob], Iterator[TrainedFilter]]  # one for each point, in order
    points: tuple[str, ...]  # as written, where none are asked for
    quick_points: tuple[str, ...]  # those of a quick curve
    settings: Any = None


def kind_of(data: PrivateData) -> str:
    """``images``, ``series`` or ``points``, by the record's shape."""
    return {3: IMAGES, 2: SERIES}.get(len(data.shape), POINTS)


def build_recipe(
    method: str, data: PrivateData, *, quick: bool, changes: Mapping[str, Any]
) -> Recipe:
    """The recipe for a method on this data, with changes of its settings.

    Raises:
        PrivatizerError: the method has none for records of this kind.
    """
    kind = kind_of(data)
    if (method, kind) not in _RECIPES:
        able = ", ".join(sorted({one for one, known in _RECIPES if known == kind})) or "none"
        raise PrivatizerError(
            f"method={method!r} has no curve for {data.name}, whose records are {kind}; "
            f"methods that have: {able}"
        )
    recipe = _RECIPES[method, kind]
    settings = STUDIES[recipe.study].settings(quick=quick)
    if quick:
        settings = replace(settings, **QUICK[recipe.study])
    return replace(recipe, settings=replace(settings, **changes))


def _information_images(job: CurveJob) -> Iterator[TrainedFilter]:
    """Algorithm 2 of Bertran et al., as ``attributes`` does; the service's network stays as is."""
    from fedlens_research.papers.attributes_training import train_point

    reader = cast(nn.Module, job.provider)
    for point in job.points:
        objective = Objective(cast(float, point.alpha))
        method = train_point(
            job.settings, job.train, reader, objective, job.seed, progress=job.progress
        )
        yield _trained(point, method, reader)


def _information_points(job: CurveJob) -> Iterator[TrainedFilter]:
    """Algorithm 1 of Bertran et al. 2019 with the linear filter θx + z (equation 22)."""
    rates = dict.fromkeys((RAW_UTILITY, UTILITY, ADVERSARY), POINT_READER_RATE)
    rates[FILTER] = POINT_FILTER_RATE
    stage = Stage("linear", rates, POINT_STEPS * job.settings.steps, last_rate=0.1, together=True)
    for point in job.points:
        method = _linear(job.train, cast(float, point.alpha), job.seed)
        train_privatizer(
            method, job.train, [stage], batch=POINT_BATCH, seed=job.seed, progress=job.progress
        )
        yield _trained(point, method, method.networks[UTILITY])


def _linear(train: PrivateData, alpha: float, seed: int) -> InformationPrivatizer:
    generator = torch.Generator().manual_seed(seed)
    entries = math.prod(train.shape)
    raw, utility, sensitive = (
        Mlp(entries, classes, generator=generator)
        for classes in (train.utility_classes, train.utility_classes, train.sensitive_classes)
    )
    net = LinearFilter(entries, generator=generator)
    prior = prior_of(train.sensitive, train.sensitive_classes)
    networks = {"raw_utility": raw, "utility": utility, "adversary": sensitive}
    return InformationPrivatizer(net, prior, Objective(alpha), **networks)


def _lenet(settings: Any, train: PrivateData, seed: int) -> nn.Module:
    from fedlens_research.papers.cloak_training import CloakTraining, train_provider

    return train_provider(CloakTraining(settings, train, seed))


def _cloak_images(job: CurveJob) -> Iterator[TrainedFilter]:
    """Mireshghallah et al. with trained constants, every map trained on from the one before."""
    from fedlens_research.papers.cloak_training import CloakTraining, train_path, train_values

    network = cast(nn.Module, job.provider)
    wanted = {cast(float, point.suppression_ratio): point for point in job.points}
    training = CloakTraining(_path(job.settings, list(wanted)), job.train, job.seed)
    for ratio, noise in train_path(training, network):
        if ratio in wanted:
            mask = training.mask(noise, threshold_of(noise.sigma(), ratio))
            train_values(training, mask, network)
            yield TrainedFilter(wanted[ratio], mask.eval(), network)


def _path(settings: Any, wanted: Sequence[float]) -> Any:
    """The study's path as far as is needed, through the wanted ratios."""
    steps = dict(zip(settings.ratios, settings.steps, strict=True))
    path = {ratio: count for ratio, count in steps.items() if ratio <= max(wanted)}
    path |= {one: steps[min(steps, key=lambda known: abs(known - one))] for one in wanted}
    ratios = tuple(sorted(path))
    counts = tuple(path[ratio] for ratio in ratios)
    return replace(settings, ratios=ratios, steps=counts, reported=tuple(wanted))


def _alpha_images(job: CurveJob) -> Iterator[TrainedFilter]:
    """Jafarzadeh Asl et al.'s releaser of images, as study ``alpha-images`` trains it."""
    from fedlens_research.papers.alpha_images import serving_start, train_point

    start, mode = serving_start(job.settings, job.train, job.seed), job.settings.modes[0]
    for point in job.points:
        turned = cast(float, point.alpha), cast(float, point.weight)
        method = train_point(job.settings, job.train, start, mode, *turned, job.seed, job.progress)
        yield _trained(point, method, method.networks[UTILITY])


def _alpha_series(job: CurveJob) -> Iterator[TrainedFilter]:
    """The causal LSTM of study ``alpha-load``, without its error budget."""
    from fedlens_research.papers.alpha_load import objective_of, train_point

    for point in job.points:
        alpha, weight = cast(float, point.alpha), cast(float, point.weight)
        plain = objective_of(job.settings, job.train, job.settings.modes[0], alpha)
        objective = replace(plain, weight=weight)
        method = train_point(job.settings, job.train, objective, job.seed, job.progress)
        yield _trained(point, method, None)


def _trained(point: OperatingPoint, method: Privatizer, reader: nn.Module | None) -> TrainedFilter:
    return TrainedFilter(point, method.networks[FILTER].eval(), reader and reader.eval())


def _images(settings: Any, train: PrivateData, seed: int) -> nn.Module:
    return read_images(train, settings.reading_steps, seed)


def _points(settings: Any, train: PrivateData, seed: int) -> nn.Module:
    return read_points(train, settings.reading_steps, seed)


_RECIPES = {
    ("information", IMAGES): Recipe(
        "attributes", _images, _information_images, ("0.3", "0.5", "0.8", "0.95"), ("0.8", "0.95")
    ),
    ("information", POINTS): Recipe(
        "attributes", _points, _information_points, ("0.1", "0.5", "0.8"), ("0.5",)
    ),
    ("cloak", IMAGES): Recipe(
        "cloak", _lenet, _cloak_images, ("0.4", "0.72", "0.9", "0.95"), ("0.4", "0.8")
    ),
    ("alpha", IMAGES): Recipe(
        "alpha-images", _images, _alpha_images, ("1:1.5", "1:5", "1:20"), ("1:20",)
    ),
    ("alpha", SERIES): Recipe(
        "alpha-load", lambda *_: None, _alpha_series, ("1:1", "1:2", "1:3", "1:4"), ("1:2",)
    ),
}
"""By method and kind of record."""
