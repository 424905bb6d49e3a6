"""A figure over seeds, kept so that more seeds can join without the earlier ones at hand."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class SeedFigure:
    """One figure, over seeds.

    Raises:
        ValueError: a number is missing or not finite.
    """

    count: int  # how many seeds have it
    mean: float  # over them
    # standard deviation over them (n - 1); 0 for one seed, None where it is unknown
    deviation: float | None
    most: float | None  # the largest, None where it is unknown

    def __post_init__(self) -> None:
        numbers = (self.mean, self.deviation or 0.0, self.most or 0.0)
        if not isinstance(self.count, int) or self.count < 1:
            raise ValueError(f"count={self.count!r} must be a whole number of at least 1")
        if not all(isinstance(n, int | float) and math.isfinite(n) for n in numbers):
            raise ValueError(f"mean, deviation and most are {numbers}; each must be a number")

    @classmethod
    def of(cls, values: Sequence[float]) -> SeedFigure:
        """The figure of these seeds' values, of which there is at least one."""
        deviation = statistics.stdev(values) if len(values) > 1 else 0.0
        return cls(len(values), statistics.fmean(values), deviation, max(values))

    def joined(self, other: SeedFigure) -> SeedFigure:
        """The figure of both sets of seeds together, exactly as if of all values."""
        count = self.count + other.count
        mean = (self.count * self.mean + other.count * other.mean) / count
        mine, theirs = self._squares(mean), other._squares(mean)
        unknown = mine is None or theirs is None
        deviation = None if unknown else math.sqrt(((mine or 0) + (theirs or 0)) / (count - 1))
        both = [most for most in (self.most, other.most) if most is not None]
        return SeedFigure(count, mean, deviation, max(both) if len(both) == 2 else None)

    def summary(self) -> dict[str, float | None]:
        """Mean and standard deviation over seeds; of a single seed there is no deviation."""
        return {"mean": self.mean, "std": self.deviation if self.count > 1 else None}

    def _squares(self, centre: float) -> float | None:
        """Sum of squared distances of the values from a centre."""
        if self.deviation is None:
            return None
        return (self.count - 1) * self.deviation**2 + self.count * (self.mean - centre) ** 2
