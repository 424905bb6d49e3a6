"""What samples hint at by themselves, through the command and the package."""

from __future__ import annotations

import json

import pytest

import fedlens
from fedlens.cli import main
from fedlens.diagnosis.unreferenced import FAMILIES


def test_a_run_is_asked_without_any_reference(tiny_run, capsys):
    assert main(["diagnose", str(tiny_run.path), "--reference", "none", "--json"]) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert said["findings"] == []
    assert {one["name"] for one in said["hints"]} == set(FAMILIES)
    again = fedlens.hints(tiny_run.path)
    assert said["named"] == again.named and said["says"] == again.says


def test_beside_itself_as_the_sound_run_nothing_stands_out(tiny_run):
    """Levels of the same samples are above their own votes, whatever these are."""
    found = fedlens.hints(tiny_run, sound=tiny_run)
    assert found.named == "" and max(one.excess for one in found.hints) < 1


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--sound", "x"], "--sound is of --reference none alone"),
        (["--steps"], "--steps is for programs: give --json too"),
        (["--reference", "none", "--sound", "no-such-run"], "no-such-run"),
    ],
)
def test_what_cannot_be_asked_is_one_message(tiny_run, flags, said, capsys):
    assert main(["diagnose", str(tiny_run.path), *flags]) != 0
    assert said in capsys.readouterr().err


def test_too_few_samples_are_refused(tiny_run):
    with pytest.raises(fedlens.WrongUse, match="count 0"):
        fedlens.hints(tiny_run, count=0)
    with pytest.raises(fedlens.WrongUse, match="samples: give 20 at least"):
        fedlens.hints(tiny_run, count=30)
