"""What was aimed at beforehand, so that a page says what was missed as well as what was reached."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from fedlens.foundation.tables import percent
from fedlens_research.table1.guarantees import parse_guarantee
from fedlens_research.table1.rows import OPEN, STRONG, USUAL, WEAK
from fedlens_research.table1.table import HEADLINE, TableLine

MARGIN = 0.15  # By how much students of the four main rows should be above their controls
ROUNDING = 1e-9  # Of differences of shares


@dataclass(frozen=True)
class Goal:
    """A share in [0, 1] that a line of the table should reach, as the mean over seeds."""

    row: str  # name of the row
    guarantee: str  # as `fedlens_research.table1.guarantees` reads it
    figure: str  # what it is of, in words
    least: float  # the share
    of: Callable[[TableLine], float | None]  # reads it off a line; None where it was not measured

    def verdict(self, line: TableLine | None) -> str:
        """What was measured, and whether that is enough."""
        found = None if line is None else self.of(line)
        if line is None or found is None:
            return "not measured"
        seeds = "1 seed" if len(line.seeds) == 1 else f"{len(line.seeds)} seeds"
        if found >= self.least - ROUNDING:
            return f"{percent(found)} ({seeds}): reached"
        close = percent(found) == percent(self.least)
        return f"{percent(found, 2 if close else 1)} ({seeds}): **missed**"


def _named(*keys: str) -> Callable[[TableLine], float | None]:
    return lambda line: line.mean(*keys)


def _margin(line: TableLine) -> float | None:
    student, control = line.mean("students", HEADLINE), line.mean("control")
    return None if student is None or control is None else student - control


def _goals(
    figure: str, of: Callable[[TableLine], float | None], least: Mapping[str, Mapping[str, float]]
) -> list[Goal]:
    return [
        Goal(row, guarantee, figure, share, of)
        for row, each in least.items()
        for guarantee, share in each.items()
    ]


GOALS: tuple[Goal, ...] = (
    *_goals("student", _named("students", HEADLINE), {
        "mnist-record": {STRONG: 0.97, USUAL: 0.975, WEAK: 0.983, OPEN: 0.98},
        "mnist-users": {STRONG: 0.955, USUAL: 0.96, WEAK: 0.975},
        "mnist-users-dirichlet": {STRONG: 0.93, USUAL: 0.94},
        "fashion-record": {STRONG: 0.83, USUAL: 0.845, WEAK: 0.875, OPEN: 0.88},
        "fashion-users": {STRONG: 0.80, USUAL: 0.82, WEAK: 0.85},
        "mnist-record-wgan": {STRONG: 0.90, USUAL: 0.92, WEAK: 0.95},
        "mnist-users-wgan": {STRONG: 0.75, USUAL: 0.80, WEAK: 0.90},
    }),
    *_goals("own labels", _named("own_label"), {
        "mnist-record": {STRONG: 0.93},
        "mnist-users": {STRONG: 0.87},
        "fashion-record": {STRONG: 0.80},
        "fashion-users": {STRONG: 0.77},
    }),
    *_goals("recognised", _named("recognised"), {
        "mnist-record": {STRONG: 0.97},
        "mnist-users": {STRONG: 0.93},
    }),
    *_goals("100 labels in a person's place, and guesses", _named("curve", "100", "extended"), {
        "mnist-record": {STRONG: 0.90},
    }),
    *_goals("student above control", _margin, {
        name: dict.fromkeys((STRONG, USUAL, WEAK), MARGIN)
        for name in ("mnist-record", "mnist-users", "fashion-record", "fashion-users")
    }),
)  # fmt: skip
"""All of them that are shares; the page says by what settings were chosen."""


def goal_rows(lines: Iterable[TableLine]) -> list[Sequence[str]]:
    """A row of text for each goal of the lines' rows: row, figure, guarantee, aim, measured."""
    found = {(line.row.name, str(line.guarantee)): line for line in lines}
    titles = {line.row.name: line.row.title for line in found.values()}
    return [
        (
            titles[goal.row],
            goal.figure,
            parse_guarantee(goal.guarantee).words,
            percent(goal.least),
            goal.verdict(found.get((goal.row, goal.guarantee))),
        )
        for goal in GOALS
        if goal.row in titles
    ]
