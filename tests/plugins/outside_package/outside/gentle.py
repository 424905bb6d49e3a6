"""A privatizer's method: the information method that never gives up much utility."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from fedlens.privatizers.federated import INFORMATION
from fedlens.privatizers.methods import Scalar, Settings
from fedlens.privatizers.protocol import Privatizer

LEAST_CARE = 0.2


class Gentle:
    """Ours, with a weight of its own."""

    def classifiers(self, classes: int, sensitive_classes: int) -> dict[str, int]:
        """As ours."""
        return INFORMATION.classifiers(classes, sensitive_classes)

    def scalars(
        self, settings: Settings, classes: int, sensitive_classes: int
    ) -> tuple[Scalar, ...]:
        """As ours."""
        return INFORMATION.scalars(settings, classes, sensitive_classes)

    def build(
        self, networks: Mapping[str, nn.Module], settings: Settings, shares: Tensor
    ) -> Privatizer:
        """As ours, at one point."""
        return INFORMATION.build(networks, {**settings, "alpha": LEAST_CARE}, shares)


GENTLE = Gentle()
