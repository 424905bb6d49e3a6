"""What is turned to go along a curve: one place of it, by the method's own names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from privatizers.alpha import AlphaObjective
from privatizers.information import Objective
from privatizers.protocol import PrivatizerError

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
    "alpha": "give an order and a weight, as in 1:1.5",
    "cloak": "give a suppression ratio in [0, 1), as in 0.4: something has to be sent",
}
