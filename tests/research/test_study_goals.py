"""What was aimed at stands beside what was measured, reached or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedlens_research.table1.figures import Group, SeedFigure
from fedlens_research.table1.goals import GOALS, goal_rows
from fedlens_research.table1.guarantees import parse_guarantee
from fedlens_research.table1.rows import ROWS
from fedlens_research.table1.table import TableLine


def line_of(row="mnist-record", guarantee="10@1e-5", seeds=1, **figures):
    found = {
        name.replace("__", "."): SeedFigure.of([share] * seeds) for name, share in figures.items()
    }
    group = Group(tuple(range(seeds)), found)
    return TableLine(ROWS[row], parse_guarantee(guarantee), (group,), Path("none.png"))


def verdict(line, figure="student"):
    (row,) = [
        row for row in goal_rows([line]) if row[1] == figure and row[2] == line.guarantee.words
    ]
    return row[-1]


def test_every_goal_is_of_a_row_at_a_guarantee_of_the_table():
    for goal in GOALS:
        assert goal.guarantee in ROWS[goal.row].guarantees
        assert 0 < goal.least < 1
    assert len({(goal.row, goal.guarantee, goal.figure) for goal in GOALS}) == len(GOALS)


@pytest.mark.parametrize(
    ("share", "seeds", "said"),
    [
        (0.983, 1, "98.3 (1 seed): reached"),
        (0.982, 1, "98.2 (1 seed): **missed**"),
        (0.9826, 3, "98.26 (3 seeds): **missed**"),
        (0.99, 2, "99.0 (2 seeds): reached"),
    ],
)
def test_what_was_measured_is_held_against_the_aim_before_it_is_rounded(share, seeds, said):
    assert verdict(line_of(seeds=seeds, students__cnn=share)) == said


def test_the_margin_needs_both_student_and_control():
    above = "student above control"
    assert verdict(line_of(students__cnn=0.9, control=0.7), above) == "20.0 (1 seed): reached"
    assert verdict(line_of(students__cnn=0.9, control=0.8), above).endswith("**missed**")
    assert verdict(line_of(students__cnn=0.9), above) == "not measured"
    exactly = line_of(students__cnn=0.6506, control=0.5006)
    assert verdict(exactly, above) == "15.0 (1 seed): reached"


def test_rows_of_the_page_show_all_their_goals_and_others_none():
    shown = goal_rows([line_of(students__cnn=0.9)])
    assert {row[0] for row in shown} == {"MNIST, records"}
    assert sum(row[-1] == "not measured" for row in shown) == len(shown) - 1
    assert goal_rows([line_of("mnist-record-paper003", "preset", students__cnn=0.9)]) == []
