"""The table: trials of several seeds summed up, as JSON rows and for people."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fedlens.foundation.tables import decimals, percent, print_table, text_table
from fedlens.simulations.students.students import ARCHITECTURES
from fedlens_research.framework.figures import SeedFigure
from fedlens_research.table1 import evaluation
from fedlens_research.table1.figures import BEST, CURVE, Group, joined
from fedlens_research.table1.guarantees import Guarantee
from fedlens_research.table1.rows import TableRow
from fedlens_research.table1.trials import TableTrial

Shown = Callable[["TableLine"], str]
HEADLINE = "cnn"  # The architecture whose accuracy is a row's figure; the others stand beside it

BESIDES = (
    "recognised_unfiltered", "frechet", "coverage", "density", "judged_rotated",
    "judged_rotated_unfiltered",
)  # fmt: skip


@dataclass(frozen=True)
class TableLine:
    """A row of the table at one guarantee, over all seeds that were measured."""

    row: TableRow
    guarantee: Guarantee
    groups: tuple[Group, ...]  # What was measured, by seeds; no seed is in two of them
    sheet: Path  # Contact sheet of the first seed

    @cached_property
    def seeds(self) -> tuple[int, ...]:
        """The seeds, in order."""
        return tuple(sorted(seed for group in self.groups for seed in group.seeds))

    @cached_property
    def figures(self) -> dict[str, SeedFigure]:
        """What was measured, over seeds, as `fedlens_research.table1.figures.Group.of` names it."""
        return joined(self.groups)

    def figure(self, *keys: str) -> SeedFigure | None:
        """A figure by its path of keys in ``trial.json``, or None where a seed lacks it."""
        found = self.figures.get(".".join(keys))
        return found if found is not None and found.count == len(self.seeds) else None

    def mean(self, *keys: str) -> float | None:
        """The mean over seeds, or None where a seed lacks it."""
        found = self.figure(*keys)
        return None if found is None else found.mean

    def most(self, *keys: str) -> float | None:
        """The largest of the seeds; None where one has none."""
        found = self.figure(*keys)
        return None if found is None else found.most

    @cached_property
    def images(self) -> tuple[int, ...]:
        """How many images students learned from; several where seeds differ."""
        whole = SeedFigure.of([evaluation.FULL.on(self.row.data).images])  # older trials do not say
        return tuple(sorted({int(g.figures.get("images", whole).mean) for g in self.groups}))

    @property
    def whole(self) -> bool:
        """Whether students of all seeds learned from as many images as the full table gives."""
        return self.images == (evaluation.FULL.on(self.row.data).images,)

    def to_json(self) -> dict[str, Any]:
        """The row as the command prints it. Accuracies and shares are in [0, 1]."""
        return {
            "data": self.row.data,
            "unit": self.row.unit,
            "users": int(self.most("users") or 0),
            "epsilon_dp": self.most("training", "epsilon_dp"),
            "delta_dp": self.most("training", "delta_dp"),
            "epsilon_bdp": {
                name: self.most("training", f"bdp_{name}")
                for name in ("as_published", "corrected", "sound")
            },
            "delta_bdp": self.most("training", "delta_bdp"),
            "student_accuracy": self._students(),
            "own_label_accuracy": self.mean("own_label"),
            "control_accuracy": self.mean("control"),
            "annotator_accuracy": self.mean("annotator"),
            "recognised": self.mean("recognised"),
            "seconds": self.mean("training", "seconds"),
            "peak_mb": self.most("training", "peak_mb"),
            "contact_sheet": str(self.sheet),
            **self._beyond(),
        }

    def _beyond(self) -> dict[str, Any]:
        """What the row says besides."""
        return {
            "row": self.row.name,
            "guarantee": str(self.guarantee),
            "seeds": list(self.seeds),
            "taught": self.mean("taught") == 1,
            "images": list(self.images),
            **{name: self.mean(name) for name in BESIDES},
            "seconds_measuring": self.mean("seconds"),
            "label_curve": self.curve(),
        }

    def curve(self) -> list[dict[str, float]]:
        """Accuracy against the number of labelled samples, mean over seeds."""
        points: dict[int, dict[str, float]] = {}
        for name in self.figures:
            value = self.mean(name)
            if name.startswith(f"{CURVE}.") and value is not None:
                _, count, key = name.split(".")
                points.setdefault(int(count), {})[key] = value
        return [{"labels": count, **points[count]} for count in sorted(points)]

    def _students(self) -> dict[str, Any]:
        found = {a: self.figure("students", a) for a in ARCHITECTURES}
        each = {name: figure.summary() for name, figure in found.items() if figure is not None}
        return {
            **each[HEADLINE],
            "architecture": HEADLINE,
            "per_architecture": each,
            "best": self.mean(BEST),  # of the three students of each seed, as others report it
        }


def lines_of(trials: Sequence[TableTrial]) -> list[TableLine]:
    """The table's lines, rows and guarantees in order; what was not measured is left out."""
    found: dict[tuple[str, str], list[TableTrial]] = {}
    for trial in trials:
        found.setdefault((trial.row.name, str(trial.guarantee)), []).append(trial)
    lines = []
    for group in found.values():
        known = sorted((t for t in group if t.measured is not None), key=lambda trial: trial.seed)
        if known:
            groups = tuple(Group.of(trial.measured or {}, trial.seed) for trial in known)
            sheet = known[0].folder / "contact-sheet.png"
            lines.append(TableLine(known[0].row, known[0].guarantee, groups, sheet))
    return lines


def accuracy(line: TableLine, name: str = HEADLINE) -> str:
    """A student's accuracy over seeds: mean ± deviation, in percent."""
    found = line.figure("students", name)
    if found is None:
        return percent(None)
    spread = f" ± {percent(found.deviation)}" if found.count > 1 else ""
    return percent(found.mean) + spread


def share(*keys: str) -> Shown:
    """The mean of a share over seeds, in percent."""
    return lambda line: percent(line.mean(*keys))


def figure(digits: int, *keys: str) -> Shown:
    """The mean of a figure over seeds."""
    return lambda line: decimals(line.mean(*keys), digits)


COLUMNS: dict[str, Shown] = {
    "row": lambda line: line.row.name,
    "guarantee": lambda line: str(line.guarantee),
    "seeds": lambda line: str(len(line.seeds)),
    "student": accuracy,
    "best of 3": share(BEST),
    "own labels": share("own_label"),
    "control": share("control"),
    "annotator": share("annotator"),
    "recognised": share("recognised"),
    "Fréchet": figure(1, "frechet"),
    "coverage": figure(2, "coverage"),
    "density": figure(2, "density"),
    "seconds": figure(0, "training", "seconds"),
    "MiB": lambda line: decimals(line.most("training", "peak_mb"), 0),
}
"""What people see of a line."""


def by_data(lines: Iterable[TableLine]) -> dict[str, list[TableLine]]:
    """Lines by their data set, in the table's order."""
    found: dict[str, list[TableLine]] = {}
    for line in lines:
        found.setdefault(line.row.data, []).append(line)
    return found


def counts(numbers: Sequence[int]) -> str:
    """Numbers of images for people to read."""
    return " or ".join(f"{number:,}" for number in numbers)


def print_lines(lines: Sequence[TableLine]) -> None:
    """Print the table, and what of it was not measured whole."""
    rows = [[show(line) for show in COLUMNS.values()] for line in lines]
    print_table(text_table(list(COLUMNS), rows, left=2))
    for line in (line for line in lines if not line.whole):
        images = counts(line.images)
        sys.stdout.write(f"{line.row.name} {line.guarantee}: students of {images} images\n")
