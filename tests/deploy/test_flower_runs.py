"""A run's end is asked for by its number, and whatever befell it the operator is told the fix."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from fedlens.deploy import submitting
from fedlens.deploy.submitting import FlowerRuns, RunFailed, require_completed

FLOWER = """#!{python}
import json, pathlib, sys
known = json.loads(pathlib.Path(__file__).with_name("runs.json").read_text())
words = sys.argv[1:]
if words[0] == "run":
    print(json.dumps(known["started"]))
elif words[0] == "log":
    print("the log of", words[1])
elif "--run-id" in words and (words[words.index("--run-id") + 1] in known["runs"]):
    number = words[words.index("--run-id") + 1]
    print(json.dumps({{"success": True, "runs": [{{"run-id": number, **known["runs"][number]}}]}}))
else:
    print("Error: Run ID not found", file=sys.stderr)
    sys.exit(1)
"""


@pytest.fixture
def flower(tmp_path, monkeypatch):
    """Flower's command over runs that a file holds."""
    monkeypatch.setattr(submitting, "PAUSE", 0.0)
    program = tmp_path / "flwr"
    program.write_text(FLOWER.format(python=sys.executable))
    program.chmod(0o700)

    def made(started, **runs):
        known = {"started": started, "runs": {number[1:]: run for number, run in runs.items()}}
        (tmp_path / "runs.json").write_text(json.dumps(known))
        return FlowerRuns(str(program), {})

    return made


def test_the_end_is_that_of_the_run_that_was_begun_whatever_came_since(flower, capfd):
    runs = flower(
        {"success": True, "run-id": "7"},
        _7={"status": "finished:failed"},
        _8={"status": "finished:completed"},
    )
    number = runs.begin(Path("app"))
    runs.follow(number)
    assert number == 7 and capfd.readouterr().out == "the log of 7\n"
    with pytest.raises(RunFailed, match=r"run ward ended as finished:failed; .* --name ward goes"):
        require_completed(runs.described(number), "ward", Path("alice"))


def test_a_run_that_ended_well_is_described_with_its_name(flower):
    found = flower({}, _7={"status": "finished:completed"}).described(7)
    assert require_completed(found, "ward", Path("alice")) == {
        "run-id": "7",
        "status": "finished:completed",
        "name": "ward",
    }


def test_a_superlink_that_lost_the_run_is_said_with_the_fix(flower):
    with pytest.raises(RunFailed, match=r"was started again, while run ward ran.*status alice"):
        require_completed(flower({}).described(7), "ward", Path("alice"))


def test_a_log_that_was_cut_off_is_not_taken_for_an_end(flower):
    runs = flower({}, _7={"status": "running"})
    with pytest.raises(RunFailed, match=r"cut off, and it is running: `fedlens deploy status"):
        require_completed(runs.described(7), "ward", Path("alice"))


def test_why_a_run_was_not_started_is_one_line(flower):
    refused = {"success": False, "error-message": "Error: the SuperLink\n refuses"}
    with pytest.raises(RunFailed, match="could not be started: Error: the SuperLink refuses"):
        flower(refused).begin(Path("app"))
