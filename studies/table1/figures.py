"""Figures over seeds, kept so that more seeds can join them without those before at hand."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
        deviation: standard deviation over them (n - 1); 0 for one seed, None where nobody knows.
        most: the largest, None where nobody knows.

    Raises:
        ValueError: it is no such figure.
    """

    count: int
    mean: float
    deviation: float | None
    most: float | None

    def __post_init__(self) -> None:
        numbers = (self.mean, self.deviation or 0.0, self.most or 0.0)
        if not isinstance(self.count, int) or self.count < 1:
            raise ValueError(f"count={self.count!r} must be a whole number of at least 1")
        if not all(isinstance(n, int | float) and math.isfinite(n) for n in numbers):
            raise ValueError(f"mean, deviation and most are {numbers}; each must be a number")

    @classmethod
    def of(cls, values: Sequence[float]) -> Figure:
        """The figure of these seeds' values, of which there is at least one."""
        deviation = statistics.stdev(values) if len(values) > 1 else 0.0
        return cls(len(values), statistics.fmean(values), deviation, max(values))

    def joined(self, other: Figure) -> Figure:
        """The figure of both sets of seeds together, exactly as if of all values."""
        count = self.count + other.count
        mean = (self.count * self.mean + other.count * other.mean) / count
        mine, theirs = self._squares(mean), other._squares(mean)
        unknown = mine is None or theirs is None
        deviation = None if unknown else math.sqrt(((mine or 0) + (theirs or 0)) / (count - 1))
        both = [most for most in (self.most, other.most) if most is not None]
        return Figure(count, mean, deviation, max(both) if len(both) == 2 else None)

    def summary(self) -> dict[str, float | None]:
        """Mean and standard deviation over seeds; of a single seed there is no deviation."""
        return {"mean": self.mean, "std": self.deviation if self.count > 1 else None}

    def _squares(self, centre: float) -> float | None:
        """Sum of squared distances of the values from a centre."""
        if self.deviation is None:
            return None
        return (self.count - 1) * self.deviation**2 + self.count * (self.mean - centre) ** 2


@dataclass(frozen=True)
class Group:
    """Figures of some seeds of a line, most often of one, that are known together only.

    Raises:
        ValueError: there is no seed, one is there twice, or a figure is of more seeds than there
            are.
    """

    seeds: tuple[int, ...]
    figures: Mapping[str, Figure]

    def __post_init__(self) -> None:
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds {self.seeds} must be one or more, each once")
        for name, figure in self.figures.items():
            if figure.count > len(self.seeds):
                raise ValueError(f"{name} is of {figure.count} of {len(self.seeds)} seeds")

    @classmethod
    def of(cls, cell: Mapping[str, Any], seed: int) -> Group:
        """Every number of one seed's ``cell.json``.

        Names are paths with dots: ``students.cnn``, ``training.seconds``; those of the label curve
        say the number of labels: ``curve.100.annotated``. Lists and texts are left out.
        """
        found = dict(_numbers({**cell, CURVE: _by_count(cell)}, ""))
        found[BEST] = max(cell["students"].values())
        return cls((seed,), {name: Figure.of([value]) for name, value in found.items()})


def counted(groups: Sequence[Group]) -> list[Group]:
    """Those of some groups that are counted, so that no seed is counted twice.

    A seed of its own gives way to a group that it is in, until every seed of that group is there of
    its own: then they take its place.
    """
    alone = {group.seeds[0] for group in groups if len(group.seeds) == 1}
    shown: list[Group] = []
    taken: set[int] = set()
    for group in sorted(groups, key=lambda group: -len(group.seeds)):
        replaced = len(group.seeds) > 1 and alone.issuperset(group.seeds)
        if not replaced and taken.isdisjoint(group.seeds):
            shown.append(group)
            taken.update(group.seeds)
    return sorted(shown, key=lambda group: min(group.seeds))


def joined(groups: Iterable[Group]) -> dict[str, Figure]:
    """The figures of several groups' seeds together, each over the seeds that have it."""
    found: dict[str, Figure] = {}
    for group in groups:
        for name, figure in group.figures.items():
            found[name] = found[name].joined(figure) if name in found else figure
    return found


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
