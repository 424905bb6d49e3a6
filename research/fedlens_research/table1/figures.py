"""Figures of a line of the table: those of each seed, and of all its seeds together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedlens_research.framework.figures import SeedFigure

CURVE = "curve"
BEST = "students.best"  # The best of the students of one seed


@dataclass(frozen=True)
class Group:
    """Figures of some seeds of a line, most often of one, that are known together only.

    Raises:
        ValueError: there is no seed, one is there twice, or a figure is of more seeds than there
            are.
    """

    seeds: tuple[int, ...]
    figures: Mapping[str, SeedFigure]

    def __post_init__(self) -> None:
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds {self.seeds} must be one or more, each once")
        for name, figure in self.figures.items():
            if figure.count > len(self.seeds):
                raise ValueError(f"{name} is of {figure.count} of {len(self.seeds)} seeds")

    @classmethod
    def of(cls, trial: Mapping[str, Any], seed: int) -> Group:
        """Every number of one seed's ``trial.json``.

        Names are paths with dots: ``students.cnn``, ``training.seconds``; those of the label curve
        say the number of labels: ``curve.100.annotated``. Lists and texts are left out.
        """
        found = dict(_numbers({**trial, CURVE: _by_count(trial)}, ""))
        found[BEST] = max(trial["students"].values())
        return cls((seed,), {name: SeedFigure.of([value]) for name, value in found.items()})


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


def joined(groups: Iterable[Group]) -> dict[str, SeedFigure]:
    """The figures of several groups' seeds together, each over the seeds that have it."""
    found: dict[str, SeedFigure] = {}
    for group in groups:
        for name, figure in group.figures.items():
            found[name] = found[name].joined(figure) if name in found else figure
    return found


def _by_count(trial: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    return {
        f"{point['labels']:.0f}": {k: v for k, v in point.items() if k != "labels"}
        for point in trial.get(CURVE, ())
    }


def _numbers(value: Mapping[str, Any], path: str) -> Iterator[tuple[str, float]]:
    for key, below in value.items():
        if isinstance(below, Mapping):
            yield from _numbers(below, f"{path}{key}.")
        elif isinstance(below, int | float):
            yield f"{path}{key}", float(below)
