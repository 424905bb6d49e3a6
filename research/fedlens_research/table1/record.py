"""What a page of results is made of, kept beside it in a file of its own.

Runs are large, are made on several machines and are thrown away; their figures must not go with
them. So a page shows what a study's folder holds *and* what was measured elsewhere in the same way.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from fedlens.foundation.files import write_durably
from fedlens.server.config.tree import ConfigError
from fedlens_research.framework.errors import StudyError
from fedlens_research.framework.figures import SeedFigure
from fedlens_research.table1 import rows
from fedlens_research.table1.evaluation import EvaluationBudget
from fedlens_research.table1.figures import Group, counted
from fedlens_research.table1.guarantees import configuration, parse_guarantee
from fedlens_research.table1.table import HEADLINE, TableLine
from fedlens_research.table1.trials import TableTrial, alike, plan_of

OF_A_CELL = ("name", "effort", "data")
"""Parts of a plan that say nothing of a whole line, or that its digest says too."""
NEEDED = (f"students.{HEADLINE}", "users", "training.delta_dp", "training.delta_bdp")
"""Figures without which nothing can be shown of a line."""


@dataclass(frozen=True)
class KeptLine:
    """A line of the table, the plan that its seeds were trained and measured by, and all seeds."""

    line: TableLine  # what is shown: the groups that are counted
    plan: dict[str, Any]  # how all of it was made
    groups: tuple[Group, ...]  # every group of seeds that is known

    @classmethod
    def of(cls, line: TableLine, effort: EvaluationBudget) -> KeptLine:
        """A line that was measured as this version does it."""
        return cls(line, _plan(line, effort), line.groups)

    @property
    def key(self) -> tuple[int, float, float, str]:
        """The table's order: by row, then from the strongest guarantee to none."""
        guarantee = self.line.guarantee
        place = list(rows.ROWS).index(self.line.row.name)
        return place, guarantee.epsilon, guarantee.delta, str(guarantee)

    def joined(self, before: KeptLine) -> KeptLine:
        """This one, and of the other the groups whose seeds are not those of a group here.

        Nothing is lost: a seed of its own that is part of a larger group is kept, and counts when
        all of that group's are there.
        """
        mine = {group.seeds for group in self.groups}
        groups = (*self.groups, *(g for g in before.groups if g.seeds not in mine))
        both = _entry(self.line, self.plan, groups)
        shown = self if both.line.groups[0].seeds in mine else before  # whose contact sheet it is
        return replace(both, line=replace(both.line, sheet=shown.line.sheet))

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "row": self.line.row.name,
            "guarantee": str(self.line.guarantee),
            "plan": self.plan,
            "groups": [asdict(group) for group in self.groups],
        }


class PageRecord(NamedTuple):
    """What is known from before."""

    entries: list[KeptLine]
    left_out: list[str]
    """Names of those whose row is gone, or whose settings or way to be measured have changed."""


def read_record(path: Path, pictures: Path, effort: EvaluationBudget) -> PageRecord:
    """The entries of a page's record that this version, of this effort, would make in the same way.

    Raises:
        StudyError: the file is there and no such record.
    """
    if not path.exists():
        return PageRecord([], [])
    try:
        found = [(_name(one), _read(one, pictures)) for one in _objects(path)]
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise StudyError(
            f"{path}: is no record of a page ({error}); bring back the one that was written with "
            "the page, or move both away to begin anew"
        ) from None
    known = [(name, e) for name, e in found if e is not None and _is_current(e, effort)]
    held = {name for name, _ in known}
    left = [name for name, _ in found if name not in held]
    return PageRecord(with_kept([], [entry for _, entry in known]), left)


def write_record(path: Path, entries: Iterable[KeptLine]) -> None:
    """Write a record, whole or not at all: a line of text for each line of the table."""
    texts = [json.dumps(entry.to_json(), allow_nan=False) for entry in entries]
    write_durably(path, ("[\n" + ",\n".join(texts) + "\n]\n").encode())


def with_kept(new: Sequence[KeptLine], kept: Sequence[KeptLine]) -> list[KeptLine]:
    """New entries and those kept before, in the table's order; groups of one line are joined."""
    found: dict[tuple[int, float, float, str], KeptLine] = {}
    for entry in (*kept, *new):
        before = found.get(entry.key)
        found[entry.key] = entry if before is None else entry.joined(before)
    return [found[key] for key in sorted(found)]


def picture_name(line: TableLine) -> str:
    """The name of a line's contact sheet among the pictures of a page."""
    return f"{line.row.name}-{str(line.guarantee).replace('@', '-at-')}.png"


def _entry(line: TableLine, plan: dict[str, Any], groups: Sequence[Group]) -> KeptLine:
    shown = tuple(counted(groups))
    seeds = {group.seeds for group in shown}
    whole = {seed for group in shown for seed in group.seeds if len(group.seeds) == 1}
    kept = [g for g in groups if g.seeds in seeds or not whole.issuperset(g.seeds)]
    return KeptLine(replace(line, groups=shown), plan, tuple(kept))


def _objects(path: Path) -> list[dict[str, Any]]:
    found = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(found, list):
        raise TypeError(f"{type(found).__name__} in place of a list")
    return found


def _name(found: dict[str, Any]) -> str:
    return f"{found['row']} {found['guarantee']}"


def _read(found: dict[str, Any], pictures: Path) -> KeptLine | None:
    """An entry as it was written, or None where there is no such row any more."""
    groups = [_group(group) for group in found["groups"]]
    if not groups or not {"config", "fault", "provider", "measures"} <= set(found["plan"]):
        raise ValueError(f"{_name(found)}: no groups, or no whole plan")
    if found["row"] not in rows.ROWS:
        return None
    line = TableLine(rows.ROWS[found["row"]], parse_guarantee(found["guarantee"]), (), pictures)
    return _entry(replace(line, sheet=pictures / picture_name(line)), found["plan"], groups)


def _group(found: dict[str, Any]) -> Group:
    figures = {name: SeedFigure(**figure) for name, figure in found["figures"].items()}
    if missing := [name for name in NEEDED if name not in figures]:
        raise ValueError(f"no {', '.join(missing)}")
    return Group(tuple(int(seed) for seed in found["seeds"]), figures)


def _is_current(entry: KeptLine, effort: EvaluationBudget) -> bool:
    try:
        return alike(entry.plan, _plan(entry.line, effort))
    except (ConfigError, StudyError):  # its preset is gone, or cannot meet the guarantee any more
        return False


def _plan(line: TableLine, effort: EvaluationBudget) -> dict[str, Any]:
    """How this version trains and measures the seeds of a line."""
    trial = TableTrial(line.row, line.guarantee, 0, Path())
    plan = plan_of(trial, configuration(line.row, line.guarantee, 0), effort)
    return {key: value for key, value in plan.items() if key not in OF_A_CELL}
