"""``fedlens audit`` as a person types it."""

from __future__ import annotations

import itertools
import json
import stat
import sys
from pathlib import Path

import numpy as np
import pytest

from fedlens.cli import main
from fedlens.cli.output import step_bars
from fedlens.foundation.errors import ExitStatus
from fedlens.server.config.tree import Config
from fedlens.server.run.directory import RunDirectory
from fedlens.simulations.audits import members
from fedlens.simulations.audits.schedule import Schedule
from fedlens.simulations.engine import simulate
from fedlens.store import open_store
from harness.mutate_noise import changed

SETTINGS = {
    "data.users": 60,
    "data.nodes": 2,
    "data.samples_per_user": 4,
    "tasks.critic.noise_multiplier": 4.0,
    "privacy.delta": 1e-5,
    "tasks.critic.rounds": 2,
    "tasks.critic.generator_steps": 2,
    "generator.batch": 20,
    "generator.width": 8,
    "release.samples": 60,
    "release.strip": 1,
}
FEW = ("--canaries", "200")


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A run to audit."""
    path = tmp_path_factory.mktemp("audited") / "run"
    config = Config().updated(SETTINGS)
    simulate(config, RunDirectory.create(path, config), student=False)
    return path


def run(capsys, *arguments: object) -> tuple[int, str, str]:
    try:
        status = main(["audit", *(str(a) for a in arguments)])
    except SystemExit as stop:
        status = int(stop.code or 0)
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def last(printed: str) -> dict:
    return json.loads(printed.splitlines()[-1])


def stored(path: Path) -> list:
    with open_store(path / "store.db") as store:
        return store.audits(store.runs()[0].run_id)


def test_all_audits_of_a_run(capsys, trained):
    kept = {
        name: (trained / name).read_bytes()
        for name in ("ledger.jsonl", "evidence.jsonl", "checkpoint/state.safetensors")
    }
    status, printed, errors = run(capsys, trained, *FEW, "--json")
    assert (status, errors) == (ExitStatus.DONE, "")
    found = last(printed)
    kinds = [finding["kind"] for finding in found["findings"]]
    assert kinds == ["clipping", "noise", "sampling", "one-run", "one-shot", "membership"]
    assert [finding["task"] for finding in found["findings"]] == ["critic"] * 5 + [""]
    assert not found["alarm"] and "nothing found" in printed and "Simulation only" in printed
    assert found["tasks"][0]["rounds"] == 2 and found["tasks"][0]["noise_multiplier"] == 4.0

    report = trained / "audit.json"
    assert stat.S_IMODE(report.stat().st_mode) == 0o600
    assert json.loads(report.read_text())["audits"][-1] == found
    rows = stored(trained)
    assert [row.kind for row in rows[-5:]] == kinds[:5]
    assert all(row.kind != "membership" for row in rows)
    assert "z=4, 2 rounds" in rows[-1].words

    assert {name: (trained / name).read_bytes() for name in kept} == kept
    assert main(["ledger", "verify", str(trained)]) == ExitStatus.DONE


def test_an_alarm_is_status_4_and_in_the_store(capsys, trained):
    before = len(json.loads((trained / "audit.json").read_text())["audits"])
    with changed(lambda noise, at: 0 * noise):
        status, printed, _ = run(capsys, trained, *FEW, "--kind", "one-run")
    assert status == ExitStatus.ALARM == 4
    assert "ALARM" in printed and "Do not release anything more" in printed
    assert stored(trained)[-1].verdict == "alarm"
    assert len(json.loads((trained / "audit.json").read_text())["audits"]) == before + 1


@pytest.mark.law("3: the store has no place for a real record")
def test_a_membership_alarm_stays_in_the_folder_of_its_operator(capsys, trained, monkeypatch):
    sides = itertools.cycle([1.0, 0.0])  # members are always scored before their twins
    monkeypatch.setattr(
        members, "scores", lambda units, *_: next(sides) + np.linspace(0, 0.5, len(units))
    )
    monkeypatch.setattr(
        Schedule, "whole_claim", property(lambda self: self.claim(1e-5, noise_ratio=40.0))
    )
    before = stored(trained)
    status, printed, _ = run(capsys, trained, "--kind", "membership", "--json")
    assert status == ExitStatus.ALARM
    figures = last(printed)["findings"][0]
    assert figures["lower_bound"] > figures["claimed_epsilon"] > 0
    assert stored(trained) == before
    assert json.loads((trained / "audit.json").read_text())["audits"][-1]["alarm"]


def test_other_settings_audit_the_same_code_elsewhere(capsys, trained):
    status, printed, _ = run(
        capsys,
        trained,
        *FEW,
        "--rounds",
        3,
        "--noise-multiplier",
        6,
        "--kind",
        "one-shot",
        "--json",
    )
    assert status == ExitStatus.DONE
    assert last(printed)["tasks"][0]["rounds"] == 3
    assert last(printed)["tasks"][0]["noise_multiplier"] == 6.0


def test_a_preset_is_audited_without_a_run_and_nothing_is_kept(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, printed, _ = run(capsys, "--preset", "wgan", *FEW, "--rounds", 20, "--kind", "one-run")
    assert status == ExitStatus.DONE and "cannot detect" in printed
    assert "--noise-multiplier" in printed  # where it could detect
    assert list(tmp_path.iterdir()) == []


@pytest.mark.thorough
def test_record_mode_is_audited_with_records(capsys):
    status, printed, _ = run(capsys, "--preset", "record", "--rounds", 2, "--json")
    assert status == ExitStatus.DONE
    found = last(printed)
    kinds = [finding["kind"] for finding in found["findings"]]
    assert kinds == ["clipping", "noise", "sampling", "one-run"]
    assert found["tasks"][0]["unit"] == "record"


def test_all_tasks_are_audited_by_default_and_one_where_it_is_named(capsys):
    every = ("--kind", "clipping", "--json")
    status, printed, _ = run(capsys, "--preset", "demo", *every)
    found = last(printed)
    tasks = ["card", "warmup", "critic", "annotator"]
    assert status == ExitStatus.DONE and [task["task"] for task in found["tasks"]] == tasks
    assert [finding["task"] for finding in found["findings"]] == tasks
    assert all(f"audited: the {task} task alone" in printed for task in tasks)
    printed = run(capsys, "--preset", "demo", "--task", "annotator", *every)[1]
    assert [finding["task"] for finding in last(printed)["findings"]] == ["annotator"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "RUN_DIR or a --preset"),
        (("--preset", "nothing"), "choose one of"),
        (("--preset", "open"), "claims no privacy"),
        (("--preset", "demo", "--task", "nothing"), "no such task"),
        (("--preset", "demo", "--kind", "membership"), "needs a RUN_DIR"),
        (("--preset", "demo", "--canaries", "5"), "20 canaries"),
        (("--preset", "demo", "--confidence", "2"), "confidence"),
        (("--preset", "demo", "--rounds", "0"), "rounds = 0"),
        (("--preset", "demo", "--kind", "all-of-them"), "invalid choice"),
    ],
)
def test_wrong_use_is_one_line(capsys, arguments, said):
    status, _, errors = run(capsys, *arguments)
    assert status == ExitStatus.WRONG_USE and said in errors and "Traceback" not in errors


def test_membership_goes_with_no_other_settings(capsys, trained):
    status, _, errors = run(capsys, trained, "--kind", "membership", "--rounds", 5)
    assert status == ExitStatus.WRONG_USE and "leave out other settings" in errors


def test_a_damaged_report_is_named(capsys, trained):
    report = trained / "audit.json"
    whole = report.read_text() if report.exists() else ""
    report.write_text("{")
    rows = stored(trained)
    status, printed, errors = run(capsys, trained, *FEW, "--kind", "one-run")
    report.write_text(whole) if whole else report.unlink()
    assert status == 1 and "audit.json is damaged" in errors
    assert printed == "" and stored(trained) == rows  # before anything is measured


def test_the_bar_is_drawn_on_a_terminal_only(monkeypatch):
    with step_bars() as observer:
        assert observer is None
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with step_bars() as observer:
        observer("canaries", 1, 2)
        observer("canaries", 2, 2)
