"""Inputs as people bring them come out as ``cases.tsv`` says, at a node and in a simulation."""

from __future__ import annotations

import pytest
from looking import at_node, in_simulation, read_cases
from making import make_cases

CASES = read_cases()


@pytest.fixture(scope="session")
def field(tmp_path_factory):
    """Every case, in a folder of its name."""
    folder = tmp_path_factory.mktemp("field")
    make_cases(folder)
    return folder


def judge(case, side, problem):
    """A case that is open has to be listed as such, and one that is not has to come out right."""
    if side in case.open.split():
        assert problem, f"{case.name}: comes out as expected now; take {side} out of its line"
    else:
        assert not problem, f"{case.name} ({case.expected}): {problem}"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_a_node_makes_of_it(case, field, tmp_path):
    found = at_node(case, field / case.folder, tmp_path / "store")
    judge(case, "node", found.meets(case.node))


@pytest.mark.parametrize("case", [one for one in CASES if one.reader], ids=lambda case: case.name)
def test_what_a_simulation_reads_of_it(case, field):
    found = in_simulation(case, field / case.folder)
    judge(case, "simulation", found.meets(case.simulation))


def test_a_picture_that_was_turned_mirrored_or_inverted_is_seen():
    from looking import DRAWN, shown

    for name, drawn in DRAWN.items():
        assert shown(drawn) == name
        others = (drawn[::-1], drawn[:, ::-1], drawn.T, 255 - drawn, drawn * 0)
        assert name not in [shown(one.astype(float)) for one in others]
