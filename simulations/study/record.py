"""What a page of results is made of, kept beside it in a file of its own.

Runs are large, are made on several machines and are thrown away; their figures must not go with
them. So a page shows what a study's folder holds *and* what was measured elsewhere in the same way.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from server.files import write_durably
from simulations.study import rows
from simulations.study.cells import Cell, alike, plan_of
from simulations.study.effort import Effort
from simulations.study.errors import StudyError
from simulations.study.figures import Figure, joined
from simulations.study.guarantees import configuration, parse_guarantee
from simulations.study.table import Line

OF_A_CELL = ("name", "effort", "data")
"""Parts of a plan that say nothing of a whole line, or that its digest says too."""


@dataclass(frozen=True)
class Entry:
    """A line of the table, and the plan by which all of its seeds were trained and measured."""

    line: Line
    plan: dict[str, Any]

    @classmethod
    def of(cls, line: Line, effort: Effort) -> Entry:
        """A line that was measured as this version does it."""
        return cls(line, _plan(line, effort))

    @property
    def key(self) -> tuple[int, float, float]:
        """The table's order: by row, then from the strongest guarantee to none."""
        guarantee = self.line.guarantee
        return list(rows.ROWS).index(self.line.row.name), guarantee.epsilon, guarantee.delta

    def joined(self, other: Entry) -> Entry:
        """This one with the seeds of the other, where they are others; else the one of more."""
        mine, theirs = set(self.line.seeds), set(other.line.seeds)
        if mine & theirs:
            return self if len(mine) >= len(theirs) else other
        first = min(self, other, key=lambda entry: entry.line.seeds[0])
        both = joined(self.line.figures, other.line.figures)
        seeds = tuple(sorted(mine | theirs))
        return replace(self, line=replace(first.line, seeds=seeds, figures=both))

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "row": self.line.row.name,
            "guarantee": str(self.line.guarantee),
            "seeds": list(self.line.seeds),
            "plan": self.plan,
            "figures": {name: asdict(figure) for name, figure in self.line.figures.items()},
        }


def read_record(path: Path, pictures: Path, effort: Effort) -> tuple[list[Entry], list[str]]:
    """The entries of a page's record that this version would measure in the same way.

    Args:
        path: the record.
        pictures: folder of the page's contact sheets.
        effort: how much this version measures.

    Returns:
        The entries, and the names of those left out: their row is gone, or its settings or the way
        it is measured have changed.

    Raises:
        StudyError: the file is there and no such record.
    """
    if not path.exists():
        return [], []
    try:
        entries = _objects(path)
        found = [(f"{one['row']} {one['guarantee']}", _entry(one, pictures)) for one in entries]
        kept = [e for _, e in found if e is not None and alike(e.plan, _plan(e.line, effort))]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise StudyError(
            f"{path}: is no record of a page ({type(error).__name__}); bring back the one that "
            "was written with the page, or move it away to begin anew"
        ) from None
    return kept, [name for name, entry in found if entry not in kept]


def write_record(path: Path, entries: Iterable[Entry]) -> None:
    """Write a record, whole or not at all: a line of text for each line of the table."""
    texts = [json.dumps(entry.to_json(), allow_nan=False) for entry in entries]
    write_durably(path, ("[\n" + ",\n".join(texts) + "\n]\n").encode())


def with_kept(new: Sequence[Entry], kept: Sequence[Entry]) -> list[Entry]:
    """New entries and those kept before, in the table's order; seeds of one line are joined."""
    found = {entry.key: entry for entry in kept}
    for entry in new:
        before = found.get(entry.key)
        found[entry.key] = entry if before is None else entry.joined(before)
    return [found[key] for key in sorted(found)]


def picture_name(line: Line) -> str:
    """The name of a line's contact sheet among the pictures of a page."""
    return f"{line.row.name}-{str(line.guarantee).replace('@', '-at-')}.png"


def _objects(path: Path) -> list[dict[str, Any]]:
    found = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(found, list):
        raise TypeError(f"{type(found).__name__} in place of a list")
    return found


def _entry(found: dict[str, Any], pictures: Path) -> Entry | None:
    """An entry as it was written, or None where there is no such row any more."""
    if found["row"] not in rows.ROWS:
        return None
    line = Line(
        row=rows.ROWS[found["row"]],
        guarantee=parse_guarantee(found["guarantee"]),
        seeds=tuple(found["seeds"]),
        figures={name: Figure(**figure) for name, figure in found["figures"].items()},
        sheet=pictures,
    )
    return Entry(replace(line, sheet=pictures / picture_name(line)), found["plan"])


def _plan(line: Line, effort: Effort) -> dict[str, Any]:
    """How this version trains and measures the seeds of a line."""
    cell = Cell(line.row, line.guarantee, 0, Path())
    plan = plan_of(cell, configuration(line.row, line.guarantee, 0), effort)
    return {key: value for key, value in plan.items() if key not in OF_A_CELL}
