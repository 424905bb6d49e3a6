"""A run's end is asked for by its number, and whatever befell it the operator is told the fix."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from fedlens.cli import main
from fedlens.deploy import submitting
from fedlens.deploy.status import Address
from fedlens.deploy.submitting import FlowerRuns, RunFailed, require_completed
from fedlens.foundation.errors import ExitStatus

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


def test_a_run_that_its_budget_stopped_ends_with_its_own_exit_status(tmp_path, monkeypatch, capsys):
    """Flower calls it completed; the SuperLink's status says how it ended."""
    runs = [
        {"name": "first", "status": "stopped-by-budget", "reason": "wards has 0.1 left"},
        {"name": "second", "status": "finished"},
    ]
    monkeypatch.setattr(submitting, "ask", lambda *_: {"runs": runs})
    address = Address("x:1", tmp_path)

    def submitted(*_, name, **__):
        return {"status": "finished:completed", **submitting.stopped_by_budget(address, name)}

    monkeypatch.setattr(submitting, "submit", submitted)
    run = ["deploy", "run", str(tmp_path), "--name"]
    assert main([*run, "first"]) == ExitStatus.OUT_OF_BUDGET
    assert "stopped by the budget: wards has 0.1 left" in capsys.readouterr().out
    assert main([*run, "second"]) == ExitStatus.DONE


def test_the_status_of_a_superlink_that_is_down_is_a_failure(federation, free_port, capsys):
    settings = federation / "superlink" / "deploy.toml"
    settings.write_text(settings.read_text().replace("19555", str(free_port())))
    assert main(["deploy", "status", str(federation / "superlink")]) == ExitStatus.FAILED
    assert "does not answer" in capsys.readouterr().out


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
