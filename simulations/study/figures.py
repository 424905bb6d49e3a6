"""Figures over seeds, kept so that more seeds can join them without those before at hand."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

CURVE = "curve"
BEST = "students.best"
"""The best of the students of one seed."""


@dataclass(frozen=True)
class Figure:
    """One figure of a line of the table, over seeds.

    Attributes:
        count: how many seeds have it.
        mean: over them.
        deviation: standard deviation over them (n - 1); 0 for one seed.
        most: the largest.
    """

    count: int
    mean: float
    deviation: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Figure:
        """The figure of these seeds' values, of which there is at least one."""
        deviation = statistics.stdev(values) if len(values) > 1 else 0.0
        return cls(len(values), statistics.fmean(values), deviation, max(values))

    def joined(self, other: Figure) -> Figure:
        """The figure of both sets of seeds together, exactly as if of all values."""
        count = self.count + other.count
        mean = (self.count * self.mean + other.count * other.mean) / count
        squares = sum(
            (f.count - 1) * f.deviation**2 + f.count * (f.mean - mean) ** 2 for f in (self, other)
        )
        return Figure(count, mean, math.sqrt(squares / (count - 1)), max(self.most, other.most))

    def summary(self) -> dict[str, float | None]:
        """Mean and standard deviation over seeds; of a single seed there is no deviation."""
        return {"mean": self.mean, "std": self.deviation if self.count > 1 else None}


def figures_of(cells: Sequence[Mapping[str, Any]]) -> dict[str, Figure]:
    """Every number of some seeds' ``cell.json`` as a figure over those that have it.

    Names are paths with dots: ``students.cnn``, ``training.seconds``; those of the label curve
    say the number of labels: ``curve.100.annotated``. Lists and texts are left out.
    """
    found: dict[str, list[float]] = {}
    for cell in cells:
        for name, value in _numbers({**cell, CURVE: _by_count(cell)}, ""):
            found.setdefault(name, []).append(value)
        found.setdefault(BEST, []).append(max(cell["students"].values()))
    return {name: Figure.of(values) for name, values in found.items()}


def joined(one: Mapping[str, Figure], other: Mapping[str, Figure]) -> dict[str, Figure]:
    """The figures of two sets of seeds together."""
    both = {name: one[name].joined(other[name]) for name in one if name in other}
    return {**one, **other, **both}


def _by_count(cell: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    return {
        f"{point['labels']:.0f}": {k: v for k, v in point.items() if k != "labels"}
        for point in cell.get(CURVE, ())
    }


def _numbers(value: Mapping[str, Any], path: str) -> Iterator[tuple[str, float]]:
    for key, below in value.items():
        if isinstance(below, Mapping):
            yield from _numbers(below, f"{path}{key}.")
        elif isinstance(below, int | float):
            yield f"{path}{key}", float(below)
