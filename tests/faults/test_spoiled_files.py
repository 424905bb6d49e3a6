"""Files of a run, its population, home and nodes, spoiled alone and in pairs, in short.

Whole with ``python -m harness.spoiled_files``.
"""

from __future__ import annotations

import random

import pytest

from harness.spoiled_files import NOT_PROTECTED, Harm, pairs_of, small_world

PAIRS = 8


@pytest.fixture(scope="module")
def world():
    with small_world() as made:
        yield made


@pytest.fixture(scope="module")
def spoiled(world):
    """Each file in one way, and some pairs, by chance but always the same."""
    source, harms = random.Random(4), world.harms()
    files = sorted({harm.file for harm in harms})
    alone = [(source.choice([h for h in harms if h.file == file]),) for file in files]
    return [world.outcome(*some) for some in alone + source.sample(pairs_of(harms), PAIRS)]


@pytest.mark.law("2: a copy draws no noise")
@pytest.mark.slow
@pytest.mark.law("2: tampering shows")
def test_whatever_befalls_files_nothing_is_released_unbooked_but_where_it_is_said(spoiled):
    assert len(spoiled) > 30
    assert {str(one.harms): one.unexplained for one in spoiled if one.unexplained} == {}
    assert len([one for one in spoiled if one.verdict.startswith("refused")]) > 8


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("run/checkpoint/release-000004.safetensors", "cut short"),
        ("run/checkpoint/rounds.jsonl", "a byte changed"),
        ("run/checkpoint/state.safetensors", "deleted"),
        ("run/releases/round-000001.safetensors", "cut short"),
        ("home/node-names.json", "a byte changed"),
        ("home/node-places.json", "cut short"),
        ("home/heads/{run}", "cut short"),
        ("run/ledger.jsonl", "put back"),
    ],
)
def test_a_file_that_says_nothing_any_more_is_named(world, file, kind):
    head = next(name for name in world.now if world.called(name) == "home/heads/<run>")
    found = world.outcome(Harm(file.replace("home/heads/{run}", head), kind))
    assert found.broken == [] and found.verdict == "refused by name"


def test_a_run_and_its_mark_put_back_together_are_found_out_by_the_population(world):
    found = world.outcome(Harm("run/", "put back"), Harm("home/heads/", "deleted"))
    assert found.verdict == "refused by name" and "older copy" in found.said


@pytest.mark.parametrize(
    ("file", "kind"),
    [("home/populations/clinic/members.db", "put back"), ("node0/rounds", "deleted")],
)
def test_what_is_not_protected_would_be_found(world, file, kind):
    (law,) = world.outcome(Harm(file, kind)).broken
    assert law in NOT_PROTECTED
