"""The information and the alpha method as federations train them."""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch import Tensor, nn

from fedlens.privatizers.alpha import AlphaObjective, AlphaPrivatizer
from fedlens.privatizers.information import (
    ADVERSARY,
    RAW_UTILITY,
    UTILITY,
    InformationPrivatizer,
    Objective,
)
from fedlens.privatizers.methods import Scalar, Settings
from fedlens.privatizers.protocol import FILTER

LEAST_SHARE = 1e-3
"""A sensitive class counts as at least so frequent: no value may be impossible."""


class InformationMethod:
    """Algorithm 1 of Bertran et al. 2019."""

    def classifiers(self, classes: int, sensitive_classes: int) -> dict[str, int]:
        """Three: of raw records, of released ones, and the adversary."""
        return {RAW_UTILITY: classes, UTILITY: classes, ADVERSARY: sensitive_classes}

    def scalars(
        self, settings: Settings, classes: int, sensitive_classes: int
    ) -> tuple[Scalar, ...]:
        """A, the utility lost, and B, what leaks, in nats."""
        utility, sensitive = math.log(max(classes, 2)), math.log(sensitive_classes)
        return (
            Scalar(0.0, 2 * utility, utility, hidden=False),
            Scalar(-sensitive, sensitive, sensitive, hidden=True),
        )

    def build(
        self, networks: Mapping[str, nn.Module], settings: Settings, shares: Tensor
    ) -> InformationPrivatizer:
        """The steps, with the shares as prior."""
        beside = dict(networks)
        prior, objective = shares.clamp_min(LEAST_SHARE), Objective(float(settings["alpha"]))
        return InformationPrivatizer(beside.pop(FILTER), prior / prior.sum(), objective, **beside)


class AlphaMethod:
    """Algorithm 1 of Jafarzadeh Asl et al. 2023, with a utility classifier."""

    def classifiers(self, classes: int, sensitive_classes: int) -> dict[str, int]:
        """Two: of released records, and the adversary."""
        return {UTILITY: classes, ADVERSARY: sensitive_classes}

    def scalars(
        self, settings: Settings, classes: int, sensitive_classes: int
    ) -> tuple[Scalar, ...]:
        """The mean of (Σ p^α)^(1/α), between those of a sure and of a uniform answer.

        None at order 1: Shannon's entropy is a plain mean.
        """
        objective = AlphaObjective(float(settings["alpha"]))
        objective.check_classes(sensitive_classes)
        if objective.shannon:
            return ()
        uniform = float(sensitive_classes) ** (1 / objective.alpha - 1)
        return (Scalar(min(1.0, uniform), max(1.0, uniform), uniform, hidden=True),)

    def build(
        self, networks: Mapping[str, nn.Module], settings: Settings, shares: Tensor
    ) -> AlphaPrivatizer:
        """The steps; the shares are not looked at."""
        order, weight = float(settings["alpha"]), float(settings["weight"])
        return AlphaPrivatizer(
            networks[FILTER],
            networks[ADVERSARY],
            AlphaObjective(order, weight, beta=1.0),
            utility=networks[UTILITY],
        )


INFORMATION, ALPHA = InformationMethod(), AlphaMethod()
