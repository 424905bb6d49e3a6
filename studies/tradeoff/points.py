"""Training the points of a curve, each by the recipe of the study that settled its settings.

A point is one filter. The recipes of ``attributes``, ``cloak``, ``alpha-images`` and ``alpha-load``
are taken as they are; for a quick curve with fewer steps and smaller networks, which costs quality.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import torch
from torch import nn

from client.datasets.attributes.data import PrivateData
from models.classifiers import Mlp
from privatizers.classifiers import prior_of
from privatizers.information import (
    ADVERSARY,
    RAW_UTILITY,
    UTILITY,
    InformationPrivatizer,
    Objective,
)
from privatizers.networks.filters import LinearFilter
from privatizers.networks.masks import masked, threshold_of
from privatizers.protocol import FILTER, PrivatizerError
from privatizers.training import Stage, train_privatizer
from studies.attackers.reading_nets import read_images, read_points
from studies.papers import STUDIES
from studies.tradeoff.operating_points import OperatingPoint

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


class Recipe(Protocol):
    """How a method's points are trained on one kind of data."""

    settings: Any  # A frozen dataclass: all numbers of the recipe

    def provide(self, train: PrivateData, seed: int) -> nn.Module | None:
        """The service's network, trained on raw records; None where that is the record."""
        ...

    def train(
        self,
        train: PrivateData,
        provider: nn.Module | None,
        points: Sequence[OperatingPoint],
        seed: int,
    ) -> Iterator[TrainedFilter]:
        """A trained filter for each point, in order."""
        ...


def kind_of(data: PrivateData) -> str:
    """``images``, ``series`` or ``points``, by the record's shape."""
    return {3: IMAGES, 2: SERIES}.get(len(data.shape), POINTS)


def build_recipe(method: str, data: PrivateData, *, quick: bool) -> Recipe:
    """The recipe for a method on this data.

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
    study, recipe = _RECIPES[method, kind]
    settings = STUDIES[study].settings(quick=quick)
    if quick:
        settings = dataclasses.replace(settings, **QUICK[study])
    made: Recipe = recipe(settings)
    return made


@dataclass(frozen=True)
class InformationImages:
    """Algorithm 2 of Bertran et al., with the filter and training of study ``attributes``."""

    settings: Any

    def provide(self, train: PrivateData, seed: int) -> nn.Module:
        """A small convolutional network."""
        return read_images(train, self.settings.reading_steps, seed)

    def train(
        self,
        train: PrivateData,
        provider: nn.Module | None,
        points: Sequence[OperatingPoint],
        seed: int,
    ) -> Iterator[TrainedFilter]:
        """A filter for each α; the provider's network stays as it is."""
        from studies.papers.attributes_training import train_point

        reader = cast(nn.Module, provider)
        for point in points:
            objective = Objective(cast(float, point.alpha))
            method = train_point(self.settings, train, reader, objective, seed)
            yield TrainedFilter(point, method.networks[FILTER].eval(), reader)


@dataclass(frozen=True)
class InformationPoints:
    """Algorithm 1 of Bertran et al. 2019 with the linear filter θx + z (equation 22)."""

    settings: Any

    def provide(self, train: PrivateData, seed: int) -> nn.Module:
        """Two hidden layers."""
        return read_points(train, self.settings.reading_steps, seed)

    def train(
        self,
        train: PrivateData,
        provider: nn.Module | None,
        points: Sequence[OperatingPoint],
        seed: int,
    ) -> Iterator[TrainedFilter]:
        """A linear filter for each α, with the utility network that learned beside it."""
        for point in points:
            method = self._method(train, cast(float, point.alpha), seed)
            readers = dict.fromkeys((RAW_UTILITY, UTILITY, ADVERSARY), POINT_READER_RATE)
            rates = {**readers, FILTER: POINT_FILTER_RATE}
            steps = POINT_STEPS * self.settings.steps
            stage = Stage("linear", rates, steps, last_rate=0.1, together=True)
            train_privatizer(method, train, [stage], batch=POINT_BATCH, seed=seed)
            yield TrainedFilter(
                point, method.networks[FILTER].eval(), method.networks[UTILITY].eval()
            )

    def _method(self, train: PrivateData, alpha: float, seed: int) -> InformationPrivatizer:
        generator = torch.Generator().manual_seed(seed)
        entries = math.prod(train.shape)
        raw, utility, sensitive = (
            Mlp(entries, classes, generator=generator)
            for classes in (train.utility_classes, train.utility_classes, train.sensitive_classes)
        )
        return InformationPrivatizer(
            LinearFilter(entries, generator=generator),
            prior_of(train.sensitive, train.sensitive_classes),
            Objective(alpha),
            raw_utility=raw,
            utility=utility,
            adversary=sensitive,
        )


@dataclass(frozen=True)
class CloakImages:
    """Mireshghallah et al. with trained constants, along a path of ratios, as ``cloak`` does."""

    settings: Any

    def provide(self, train: PrivateData, seed: int) -> nn.Module:
        """A LeNet."""
        from studies.papers.cloak_training import CloakTraining, train_provider

        return train_provider(CloakTraining(self.settings, train, seed))

    def train(
        self,
        train: PrivateData,
        provider: nn.Module | None,
        points: Sequence[OperatingPoint],
        seed: int,
    ) -> Iterator[TrainedFilter]:
        """A mask for each ratio; every map is trained on from the one before."""
        from studies.papers.cloak_training import CloakTraining, train_path, train_values

        network = cast(nn.Module, provider)
        wanted = {cast(float, point.suppression_ratio): point for point in points}
        training = CloakTraining(self._path(list(wanted)), train, seed)
        for ratio, noise in train_path(training, network):
            if ratio in wanted:
                threshold = threshold_of(noise.sigma(), ratio)
                mask = masked(noise, threshold, "trained", mean=training.mean, shifted=True)
                train_values(training, mask, network)
                yield TrainedFilter(wanted[ratio], mask.eval(), network)

    def _path(self, wanted: Sequence[float]) -> Any:
        """The study's path as far as is needed, through the wanted ratios."""
        steps = dict(zip(self.settings.ratios, self.settings.steps, strict=True))
        near = {one: min(steps, key=lambda known: abs(known - one)) for one in wanted}
        path = {ratio: count for ratio, count in steps.items() if ratio <= max(wanted)}
        path |= {one: steps[near[one]] for one in wanted}
        ratios = tuple(sorted(path))
        return dataclasses.replace(
            self.settings,
            ratios=ratios,
            steps=tuple(path[ratio] for ratio in ratios),
            reported=tuple(wanted),
        )


@dataclass(frozen=True)
class AlphaImages:
    """Jafarzadeh Asl et al.'s releaser of images, as study ``alpha-images`` trains it."""

    settings: Any

    def provide(self, train: PrivateData, seed: int) -> nn.Module:
        """A small convolutional network."""
        return read_images(train, self.settings.reading_steps, seed)

    def train(
        self,
        train: PrivateData,
        provider: nn.Module | None,
        points: Sequence[OperatingPoint],
        seed: int,
    ) -> Iterator[TrainedFilter]:
        """A releaser for each order and weight, with the utility network that learned beside it."""
        from studies.papers.alpha_images import reproducing, train_point

        start = reproducing(self.settings, train, seed)
        for point in points:
            alpha, weight = cast(float, point.alpha), cast(float, point.weight)
            mode = self.settings.modes[0]
            method = train_point(self.settings, train, start, mode, alpha, weight, seed)
            yield TrainedFilter(
                point, method.networks[FILTER].eval(), method.networks["utility"].eval()
            )


@dataclass(frozen=True)
class AlphaSeries:
    """Jafarzadeh Asl et al.'s releaser of series, as study ``alpha-load`` trains it."""

    settings: Any

    def provide(self, train: PrivateData, seed: int) -> None:
        """None: the series is its own utility."""

    def train(
        self,
        train: PrivateData,
        provider: nn.Module | None,
        points: Sequence[OperatingPoint],
        seed: int,
    ) -> Iterator[TrainedFilter]:
        """A causal LSTM for each order and weight, without the study's error budget."""
        from studies.papers.alpha_load import objective_of, train_point

        for point in points:
            alpha, weight = cast(float, point.alpha), cast(float, point.weight)
            plain = objective_of(self.settings, train, self.settings.modes[0], alpha)
            method = train_point(self.settings, train, replace(plain, weight=weight), seed)
            yield TrainedFilter(point, method.networks[FILTER].eval(), None)


_RECIPES: dict[tuple[str, str], tuple[str, type[Any]]] = {
    ("information", IMAGES): ("attributes", InformationImages),
    ("information", POINTS): ("attributes", InformationPoints),
    ("cloak", IMAGES): ("cloak", CloakImages),
    ("alpha", IMAGES): ("alpha-images", AlphaImages),
    ("alpha", SERIES): ("alpha-load", AlphaSeries),
}
