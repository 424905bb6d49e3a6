"""Methods by which a federation trains a filter: ours, and those of other packages.

Adding one is a file with a `PrivatizerMethod` and a line here; another package gives an instance
behind an entry point in ``fedlens.privatizers``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn

from fedlens.foundation.errors import WrongUse
from fedlens.foundation.registry import Registry
from fedlens.privatizers.protocol import Privatizer, PrivatizerError

Settings = Mapping[str, bool | int | float | str]
"""Public settings of a privatizer, by name: server and nodes have the same."""


@dataclass(frozen=True)
class Scalar:
    """A mean over everybody that an objective depends on.

    Attributes:
        low: least value that a user's may have; what is below counts as it.
        high: greatest such value.
        start: what stands in before the first release.
        hidden: whether it is a mean over records whose owner hides the sensitive attribute.
    """

    low: float
    high: float
    start: float
    hidden: bool


class PrivatizerMethod(Protocol):
    """What a method is to a federation; the rest it has in common with every other."""

    def classifiers(self, classes: int, sensitive_classes: int) -> dict[str, int]:
        """The networks that learn beside the filter, each with its number of classes."""

    def scalars(
        self, settings: Settings, classes: int, sensitive_classes: int
    ) -> tuple[Scalar, ...]:
        """What the objective squares, or takes the logarithm of: a user's update has room for it.

        Raises:
            PrivatizerError: the settings do not fit that many classes.
        """

    def build(
        self, networks: Mapping[str, nn.Module], settings: Settings, shares: Tensor
    ) -> Privatizer:
        """The steps over these networks.

        Args:
            networks: ``filter``, and by name those of :meth:`classifiers`.
            settings: of the run.
            shares: of the sensitive classes as they are known by now, float32; some may be 0.
        """


METHODS: Registry[PrivatizerMethod] = Registry(
    "privatizer",
    "fedlens.privatizers",
    {
        "information": "fedlens.privatizers.federated:INFORMATION",
        "alpha": "fedlens.privatizers.federated:ALPHA",
    },
)


def method_of(settings: Settings) -> PrivatizerMethod:
    """The method that settings name.

    Raises:
        PrivatizerError: there is none of that name.
        PluginError: another package's cannot be loaded.
    """
    try:
        return METHODS[str(settings["method"])]
    except WrongUse as error:
        raise PrivatizerError(str(error)) from None
