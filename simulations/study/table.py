"""The table: cells of several seeds summed up, as JSON rows and for people."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from simulations.students import ARCHITECTURES
from simulations.study.cells import Cell
from simulations.study.guarantees import Guarantee
from simulations.study.rows import Row

HEADLINE = "cnn"
"""The architecture whose accuracy is a row's figure; the others stand beside it."""


@dataclass(frozen=True)
class Line:
    """A row of the table at one guarantee, over all seeds that were measured."""

    row: Row
    guarantee: Guarantee
    seeds: tuple[int, ...]
    cells: tuple[dict[str, Any], ...]
    """``cell.json`` of each seed."""
    sheet: Path
    """Contact sheet of the first seed."""

    def values(self, *keys: str) -> list[float]:
        """A figure of every seed that has it, by its path of keys in ``cell.json``."""
        found = []
        for cell in self.cells:
            value: Any = cell
            for key in keys:
                value = None if value is None else value.get(key)
            if value is not None:
                found.append(float(value))
        return found

    def mean(self, *keys: str) -> float | None:
        """The mean over seeds, or None where no seed has it."""
        found = self.values(*keys)
        return statistics.fmean(found) if found else None

    def best(self) -> float:
        """The best of the three students of each seed, as others report it; mean over seeds."""
        return statistics.fmean(max(cell["students"].values()) for cell in self.cells)

    def to_json(self) -> dict[str, Any]:
        """The row as the command prints it. Accuracies and shares are in [0, 1]."""
        return {
            "data": self.row.data,
            "unit": self.row.unit,
            "users": self.cells[0]["users"],
            "epsilon_dp": self._most("epsilon_dp"),
            "delta_dp": self.cells[0]["training"]["delta_dp"],
            "epsilon_bdp": {
                name: self._most(f"bdp_{name}") for name in ("as_published", "corrected", "sound")
            },
            "delta_bdp": self.cells[0]["training"]["delta_bdp"],
            "student_accuracy": self._students(),
            "own_label_accuracy": self.mean("own_label"),
            "control_accuracy": self.mean("control"),
            "annotator_accuracy": self.mean("annotator"),
            "recognised": self.mean("recognised"),
            "seconds": self.mean("training", "seconds"),
            "peak_mb": max(self.values("training", "peak_mb")),
            "contact_sheet": str(self.sheet),
            **self._beyond(),
        }

    def _beyond(self) -> dict[str, Any]:
        """What the row says besides."""
        return {
            "row": self.row.name,
            "guarantee": str(self.guarantee),
            "seeds": list(self.seeds),
            "taught": all(cell["taught"] for cell in self.cells),
            "recognised_unfiltered": self.mean("recognised_unfiltered"),
            "frechet": self.mean("frechet"),
            "coverage": self.mean("coverage"),
            "density": self.mean("density"),
            "judged_rotated": self.mean("judged_rotated"),
            "judged_rotated_unfiltered": self.mean("judged_rotated_unfiltered"),
            "seconds_measuring": self.mean("seconds"),
            "label_curve": self.curve(),
        }

    def curve(self) -> list[dict[str, float]]:
        """Accuracy against the number of labelled samples, mean over seeds."""
        points = [point for cell in self.cells for point in cell.get("curve", ())]
        by_count = groupby(sorted(points, key=_labels), key=_labels)
        return [{"labels": count, **_means(group)} for count, group in by_count]

    def _students(self) -> dict[str, Any]:
        each = {a: summary(self.values("students", a)) for a in ARCHITECTURES}
        return {
            **each[HEADLINE],
            "architecture": HEADLINE,
            "per_architecture": each,
            "best": self.best(),
        }

    def _most(self, key: str) -> float | None:
        """The largest ε of the seeds; None where one has none."""
        found = self.values("training", key)
        return max(found) if len(found) == len(self.cells) else None


def _labels(point: dict[str, float]) -> int:
    return int(point["labels"])


def _means(points: Iterable[dict[str, float]]) -> dict[str, float]:
    found = list(points)
    return {key: statistics.fmean(p[key] for p in found) for key in found[0] if key != "labels"}


def summary(values: Sequence[float]) -> dict[str, float | None]:
    """Mean and standard deviation over seeds (n - 1); of a single seed there is no deviation."""
    return {
        "mean": statistics.fmean(values),
        "std": statistics.stdev(values) if len(values) > 1 else None,
    }


def lines_of(cells: Sequence[Cell]) -> list[Line]:
    """The table's lines, rows and guarantees in order; what was not measured is left out."""
    found: dict[tuple[str, str], list[tuple[Cell, dict[str, Any]]]] = {}
    for cell in cells:
        measured = cell.measured
        if measured is not None:
            found.setdefault((cell.row.name, str(cell.guarantee)), []).append((cell, measured))
    return [
        Line(
            row=group[0][0].row,
            guarantee=group[0][0].guarantee,
            seeds=tuple(cell.seed for cell, _ in group),
            cells=tuple(measured for _, measured in group),
            sheet=group[0][0].folder / "contact-sheet.png",
        )
        for group in found.values()
    ]


def percent(value: float | None, digits: int = 1) -> str:
    """A share in percent, or a dash."""
    return "–" if value is None else f"{100 * value:.{digits}f}"


def accuracy(line: Line, name: str = HEADLINE) -> str:
    """A student's accuracy over seeds: mean ± deviation, in percent."""
    told = summary(line.values("students", name))
    spread = "" if told["std"] is None else f" ± {percent(told['std'])}"
    return percent(told["mean"]) + spread


COLUMNS: tuple[tuple[str, Callable[[Line], str]], ...] = (
    ("row", lambda line: line.row.name),
    ("guarantee", lambda line: str(line.guarantee)),
    ("seeds", lambda line: str(len(line.seeds))),
    ("student", accuracy),
    ("best of 3", lambda line: percent(line.best())),
    ("own labels", lambda line: percent(line.mean("own_label"))),
    ("control", lambda line: percent(line.mean("control"))),
    ("annotator", lambda line: percent(line.mean("annotator"))),
    ("recognised", lambda line: percent(line.mean("recognised"))),
    ("Fréchet", lambda line: f"{line.mean('frechet') or 0:.1f}"),
    ("coverage", lambda line: f"{line.mean('coverage') or 0:.2f}"),
    ("density", lambda line: f"{line.mean('density') or 0:.2f}"),
    ("seconds", lambda line: f"{line.mean('training', 'seconds') or 0:.0f}"),
    ("MiB", lambda line: f"{max(line.values('training', 'peak_mb')):.0f}"),
)
"""What people see of a line."""


def render(lines: Sequence[Line]) -> str:
    """The table in columns of text."""
    rows = [[name for name, _ in COLUMNS], *([show(li) for _, show in COLUMNS] for li in lines)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
