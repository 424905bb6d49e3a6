"""The study: trials that are kept, resumed and summed up, and the command around them."""

from __future__ import annotations

import json
import math
import re
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from fedlens.cli import main
from fedlens.data.registry import load
from fedlens.data.spec import Distortion
from fedlens.server.config.loading import read_config
from fedlens.server.config.sections import ReleaseConfig
from fedlens.server.config.tree import Config
from fedlens_research.framework import worker
from fedlens_research.framework.errors import StudyError
from fedlens_research.framework.store import read_json, write_json
from fedlens_research.framework.trials import Processes
from fedlens_research.papers import STUDIES
from fedlens_research.table1 import evaluation as efforts
from fedlens_research.table1 import federated, judges, trials
from fedlens_research.table1.controls import NoiseTeacher, noise_images
from fedlens_research.table1.evaluation import EvaluationBudget
from fedlens_research.table1.faults import faulty_records, write_faulty_copy
from fedlens_research.table1.guarantees import configuration, parse_guarantee
from fedlens_research.table1.literature import NOTIONS, published_figures
from fedlens_research.table1.rows import GUARANTEES, PRESETS, ROWS, STRONG, TableRow
from fedlens_research.table1.runner import TableRun, trials_of
from fedlens_research.table1.table import lines_of
from fedlens_research.table1.trials import TableTrial, _trains, plan_of

TINY = """
[data]
name = "embedded"
nodes = 2
samples_per_user = 4
[privacy]
delta = 1e-3
[tasks.critic]
kind = "frozen"
rounds = 2
noise_multiplier = 3.0
clipping_norm = 0.3
generator_steps = 3
faithful_steps = 3
[generator]
batch = 20
width = 8
[release]
samples = 20
strip = 1
"""
ANNOTATED = """
[tasks.annotator]
kind = "annotator"
rounds = 2
noise_multiplier = 20.0
components = 8
guided_steps = 2
"""
SMALL = EvaluationBudget(
    images=300,
    epochs={"cnn": 1, "mlp": 1, "residual": 1},
    judged=200,
    labels=(10, 30),
    repeated=60,
    recogniser_epochs=1,
    orientation_epochs=1,
    sheet=2,
)
KEYS = {
    "data", "unit", "users", "epsilon_dp", "delta_dp", "epsilon_bdp", "delta_bdp",
    "student_accuracy", "own_label_accuracy", "control_accuracy", "annotator_accuracy",
    "recognised", "seconds", "peak_mb", "contact_sheet",
}  # fmt: skip


@pytest.fixture
def tiny(tmp_path, monkeypatch) -> dict[str, TableRow]:
    """Rows that take seconds, in the place of the real ones."""
    (tmp_path / "tiny.toml").write_text(TINY)
    (tmp_path / "annotated.toml").write_text('schedule = "critic annotator"\n' + TINY + ANNOTATED)
    annotated = str(tmp_path / "annotated")
    common = {
        "data": "embedded",
        "unit": "user",
        "users": 40,
        "guarantees": ("5@1e-3", "1@1e-10", "none"),
    }
    rows = [
        TableRow("taught", "Taught", annotated, quick=True, curve=True, **common),
        TableRow("plain", "Plain", str(tmp_path / "tiny"), **common),
        TableRow("faulty", "Faulty", annotated, fault=0.5, clean="taught", **common),
        TableRow("later", "Later", "a-preset-of-tomorrow", **common),
    ]
    monkeypatch.setattr("fedlens_research.table1.rows.ROWS", {row.name: row for row in rows})
    monkeypatch.setattr(efforts, "FULL", SMALL)
    return {row.name: row for row in rows}


def study(capsys, *arguments) -> tuple[int, str, str]:
    try:
        status = main(["study", "table1", *map(str, arguments)])
    except SystemExit as stop:  # argparse
        status = int(stop.code or 0)
    printed = capsys.readouterr()
    return status, printed.out, printed.err


# The whole command


@pytest.fixture
def same_process(monkeypatch):
    """Steps in this process, which has everything loaded; judges that saw few images."""
    monkeypatch.setattr(Processes, "_run", lambda _, arguments, threads: worker.main(arguments))
    whole = judges.training_tensors
    monkeypatch.setattr(
        judges, "training_tensors", lambda data: tuple(part[:500] for part in whole(data))
    )


def check_row(row):
    """What holds of every row, whatever was trained."""
    assert set(row) >= KEYS
    assert row["data"] == "embedded" and row["unit"] == "user" and row["users"] == 40
    assert 4.9 < row["epsilon_dp"] <= 5 and row["delta_dp"] == 1e-3
    assert set(row["epsilon_bdp"]) == {"as_published", "corrected", "sound"}
    assert row["delta_bdp"] == 1e-10 and row["seconds"] > 0 and 50 < row["peak_mb"] < 4000
    assert set(row["student_accuracy"]["per_architecture"]) == {"cnn", "mlp", "residual"}
    assert row["student_accuracy"]["std"] is None, "one seed has no deviation"
    assert 0 <= row["student_accuracy"]["mean"] <= row["student_accuracy"]["best"] <= 1
    assert Image.open(row["contact_sheet"]).size[0] == 10 * 28 * 2
    assert 0 <= row["recognised"] <= 1 and 0 <= row["coverage"] <= 1 and row["frechet"] > 0


def test_a_cell_is_made_in_processes_of_its_own(capsys, tiny, tmp_path):
    wanted = ("--rows", "plain", "--seeds", "1", "--guarantee", "5@1e-3", "--json")
    status, printed, told = study(capsys, *wanted, "--out", tmp_path / "out")
    assert status == 0 and "1 trials, 1 of them to do" in told
    (row,) = json.loads(printed.splitlines()[-1])["rows"]
    check_row(row)
    assert not row["taught"]
    assert row["annotator_accuracy"] is row["control_accuracy"] is None
    assert row["student_accuracy"]["mean"] == row["own_label_accuracy"]


def test_a_table_is_made_and_drawn(capsys, tiny, tmp_path, same_process):
    out, page = tmp_path / "out", tmp_path / "docs" / "results.md"
    wanted = ("--rows", "taught", "faulty", "--seeds", "0", "--guarantee", "5@1e-3", "--out", out)
    status, printed, told = study(capsys, *wanted, "--jobs", 1, "--json")
    assert status == 0, told
    assert "2 trials, 2 of them to do" in told and "simulation only" in printed
    rows = json.loads(printed.splitlines()[-1])["rows"]
    assert [row["row"] for row in rows] == ["taught", "faulty"]
    for row in rows:
        check_row(row)
        assert row["taught"] and 0 <= row["annotator_accuracy"] <= 1
        assert 0 <= row["control_accuracy"] <= 1
    assert [point["labels"] for point in rows[0]["label_curve"]] == [10, 30]
    assert (out / "trials/faulty/5@1e-3/seed-0/faulty.npz").is_file()

    # a second call computes nothing, and writes the page from what is there
    status, printed, told = study(capsys, *wanted, "--json", "--page", page)
    assert status == 0 and "2 trials, 0 of them to do" in told
    assert json.loads(printed.splitlines()[-1])["rows"] == rows
    text = page.read_text()
    for shown in ("Taught", "simulation", "DP-FETA", "planted fault", "Samples", "94.19"):
        assert shown in text, shown
    promised = text.split("## What each row promises")[1].split("## What others")[0]
    for row in json.loads(printed.splitlines()[-1])["rows"]:
        for epsilon in (row["epsilon_dp"], *row["epsilon_bdp"].values()):
            shown = [
                float(trial) for trial in re.findall(r"(?<=\| )[0-9][0-9.e+-]*(?= \|)", promised)
            ]
            assert any(epsilon * (1 - 1e-9) <= value <= 1.001 * epsilon for value in shown)
    pictures = re.findall(r"!\[[^]]*\]\(([^)]+)\)", text)
    assert len(pictures) == 4 and all((page.parent / name).is_file() for name in pictures)
    assert {"accuracy-epsilon.png", "accuracy-labels.png"} <= {p.name for p in out.iterdir()}


def test_what_was_lost_is_made_again_and_nothing_is_spent_twice(
    capsys, tiny, tmp_path, same_process
):
    out = tmp_path / "out"
    wanted = ("--rows", "plain", "--seeds", "3", "--guarantee", "5@1e-3", "--out", out, "--json")
    status, printed, _ = study(capsys, *wanted)
    (row,) = json.loads(printed.splitlines()[-1])["rows"]
    assert status == 0
    folder = out / "trials/plain/5@1e-3/seed-3"
    ledger = (folder / "run" / "ledger.jsonl").read_bytes()

    (folder / "trial.json").unlink()
    status, printed, told = study(capsys, *wanted)
    assert status == 0 and "plain 5@1e-3 seed 3: measuring" in told and "training" not in told
    (again,) = json.loads(printed.splitlines()[-1])["rows"]
    assert again["student_accuracy"] == row["student_accuracy"]

    for name in ("training.json", "trial.json"):  # as if it had been killed before the end
        (folder / name).unlink()
    status, printed, told = study(capsys, *wanted)
    assert status == 0 and "training" in told
    assert (folder / "run" / "ledger.jsonl").read_bytes() == ledger
    assert read_json(folder / "training.json")["resumed"] is True
    (again,) = json.loads(printed.splitlines()[-1])["rows"]
    assert again["student_accuracy"] == row["student_accuracy"]
    assert again["epsilon_dp"] == row["epsilon_dp"] <= 5


def test_a_cell_that_fails_is_told_and_the_others_are_made(capsys, tiny, tmp_path, same_process):
    out = tmp_path / "out"
    broken = out / "trials/plain/none/seed-0/run"
    broken.mkdir(parents=True)
    (broken / "something-else").write_text("of somebody")
    status, printed, told = study(
        capsys, "--rows", "plain", "--seeds", 0, 1, "--guarantee", "none", "--out", out, "--json"
    )
    assert status == 1 and "Traceback" not in told
    assert "plain none seed 0: training failed: RunDirectoryError" in told
    (row,) = json.loads(printed.splitlines()[-1])["rows"]
    assert row["seeds"] == [1] and row["epsilon_dp"] is None


MISTAKES = [
    (["--rows", "mnist-recrod"], "--rows 'mnist-recrod': there is no such row"),
    (["--rows", "later"], "needs the preset 'a-preset-of-tomorrow'"),
    (["--seeds", "one"], "--seeds 'one'"),
    (["--seeds", "-1"], ""),
    (["--seeds", "9999999"], "below a million"),
    (["--guarantee", "1e-5"], "write EPSILON@DELTA"),
    (["--guarantee", "0@1e-5"], "write EPSILON@DELTA"),
    (["--guarantee", "nan@1e-5"], "write EPSILON@DELTA"),
    (["--guarantee", "1@2"], "write EPSILON@DELTA"),
    (["--guarantee", "1@0"], "write EPSILON@DELTA"),
    (["--guarantee", "1@0.5"], "privacy.delta"),
    (["--jobs", "0"], "--jobs 0"),
    (["--page", "results.json"], "--page results.json: give a file name that ends in .md"),
    (["--out", "/proc/nowhere"], "--out /proc/nowhere: cannot be written to"),
]


@pytest.mark.parametrize(("arguments", "said"), MISTAKES)
def test_wrong_use_is_told_in_one_line(arguments, said, capsys, tiny, tmp_path):
    wanted = ["--rows", "plain", "--out", tmp_path / "out", *arguments]
    status, printed, told = study(capsys, *wanted)
    assert status == 2 and said in told and printed == "" and "Traceback" not in told
    assert not (tmp_path / "out" / "trials").exists()


def test_missing_data_is_told_before_anything_is_trained(capsys, tiny, tmp_path, monkeypatch):
    row = TableRow("far", "Far", tiny["plain"].preset, "mnist", unit="user", users=40)
    monkeypatch.setattr("fedlens_research.table1.rows.ROWS", {"far": row})
    status, _, told = study(
        capsys, "--rows", "far", "--guarantee", "none", "--out", tmp_path / "out",
        "--data-dir", tmp_path,
    )  # fmt: skip
    assert status == 2 and f"--data-dir {tmp_path} has no mnist" in told
    assert not (tmp_path / "out" / "trials").exists()


def test_without_rows_those_that_can_be_made_are(capsys, tiny, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(TableRun, "run", lambda self: asked.append(self.trials) or [])
    assert study(capsys, "--out", tmp_path / "out")[0] == 0
    assert {trial.row.name for trial in asked[0]} == {"taught", "plain", "faulty"}
    assert {trial.seed for trial in asked[0]} == {0, 1, 2} and len(asked[0]) == 3 * 3 * 3
    assert study(capsys, "--quick", "--out", tmp_path / "out")[0] == 0
    assert [str(trial) for trial in asked[1]] == ["taught 5@1e-3 seed 0"]  # the first it has


def test_the_quick_form_is_at_the_strongest_guarantee():
    quick = [row for row in ROWS.values() if row.quick]
    assert len(quick) == 2 and {row.guarantees[0] for row in quick} == {STRONG}


def test_the_quick_form_spends_a_quarter_and_a_page_all(capsys, tiny, tmp_path, monkeypatch):
    begun = []
    monkeypatch.setattr(TableRun, "run", lambda self: begun.extend(self._plans.values()) or [])
    out = tmp_path / "out"
    for flags in ([], ["--page", tmp_path / "page.md"]):
        study(capsys, "--quick", "--out", out, *flags)
    quick, whole = (plan["effort"] for plan in begun)
    assert whole == SMALL.to_json()
    assert quick["images"] == SMALL.images // 4
    assert quick["labels"] == [30], "the largest stays"
    assert [plan["config"]["generator.precision"] for plan in begun] == ["auto", "float32"]


def test_what_was_measured_whole_serves_the_quick_form_and_not_the_other_way(tiny, tmp_path):
    trial, whole = plan(tiny["taught"], tmp_path)
    _, quick = plan(tiny["taught"], tmp_path, effort=efforts.quick())
    trial.begin(whole)
    finish(trial, whole)
    assert trial.missing(whole) == trial.missing(quick) == ()
    finish(trial, quick)
    assert trial.missing(quick) == () and trial.missing(whole) == ("measure",)


def test_what_float32_trained_serves_the_quick_form_and_not_the_other_way(tiny, tmp_path):
    trial, exact = plan(tiny["taught"], tmp_path)
    _, quick = plan(tiny["taught"], tmp_path, **{"generator.precision": "auto"})
    trial.begin(exact)
    finish(trial, exact)
    trial.begin(quick)
    assert trial.missing(quick) == trial.missing(exact) == ()
    kept = json.loads((trial.folder / "plan.json").read_text())["config"]
    assert kept["generator.precision"] == "float32", "what it was trained in"
    _, other = plan(tiny["taught"], tmp_path, seed=1, **{"generator.precision": "auto"})
    assert trial.missing(other) == ("train", "measure")
    trial.begin(other)
    finish(trial, other)
    exact["config"]["seed"] = 1
    assert trial.missing(exact) == ("train", "measure")


def test_nothing_of_a_trial_is_left_to_the_machine():
    for row in ROWS.values():
        found = configuration(row, parse_guarantee(row.guarantees[0]), 0).generator
        assert found.threads == 1 and found.precision == "float32"


# Cells and plans


def plan(row, tmp_path, seed=0, guarantee="5@1e-3", effort=SMALL, **settings):
    trial = TableTrial.of(row, parse_guarantee(guarantee), seed, tmp_path / "out")
    config = configuration(row, trial.guarantee, seed).updated(settings)
    return trial, plan_of(trial, config, effort)


def finish(trial, known):
    write_json(trial.folder / "training.json", {})
    write_json(trial.folder / "trial.json", {"measures": known["measures"]})


def _way(name, **distortion):
    """The digest of how a row is measured, with its own or another distortion."""
    row = ROWS[name]
    with pytest.MonkeyPatch.context() as patch:
        if distortion:
            spec = SimpleNamespace(distortion=Distortion(**distortion))
            patch.setattr(trials, "spec_of", lambda data: spec)
        trial = TableTrial.of(row, parse_guarantee(row.guarantees[0]), 0, Path())
        return plan_of(trial, configuration(row, trial.guarantee, 0), EvaluationBudget())[
            "measures"
        ]


@pytest.mark.parametrize("name", ["mnist-record", "mnist-users-fault", "fashion-users"])
def test_other_distortions_of_taught_students_measure_again(name):
    others = [{"warping": 0.05}, {"patching": 0.1}, {"shading": 0.1}, {"shading": 0.0}]
    assert len({_way(name), *(_way(name, **other) for other in others)}) == 5


@pytest.mark.parametrize("name", ["mnist-record-wgan", "mnist-record-paper003"])
def test_rows_without_an_annotator_do_not_depend_on_distortions(name):
    assert _way(name) == _way(name, warping=0.05)


def test_only_what_is_missing_is_to_be_done(tiny, tmp_path):
    row = tiny["plain"]
    trial, known = plan(row, tmp_path)
    assert trial.missing(known) == ("train", "measure")
    trial.begin(known)
    assert trial.missing(known) == ("train", "measure")
    write_json(trial.folder / "training.json", {})
    assert trial.missing(known) == ("measure",)
    finish(trial, known)
    assert trial.missing(known) == ()
    (trial.folder / "trial.json").write_text('{"half": ')
    assert trial.missing(known) == ("measure",)
    finish(trial, known)
    other = plan(row, tmp_path, effort=EvaluationBudget())[1]
    assert trial.missing(other) == ("measure",), "another effort measures again"
    moved = plan(row, tmp_path, **{"data.dir": "/elsewhere"})[1]
    assert trial.missing(moved) == (), "where the data lies is no matter"
    older = {k: v for k, v in known["config"].items() if k != "privacy.bayesian_delta"}
    write_json(trial.folder / "plan.json", {**known, "config": older})
    assert trial.missing(known) == (), "a setting that was not known yet had its default"
    strict = plan(row, tmp_path, **{"release.attempts": 3})[1]
    assert trial.missing(strict) == ("measure",), "another filter of samples trains nothing"
    unknown = {**known["config"], "privatizer.rate": 7.0}
    write_json(trial.folder / "plan.json", {**known, "config": unknown})
    assert trial.missing(known) == ("train", "measure"), "settings that this version cannot read"
    trial.begin(known)
    finish(trial, known)
    changed = plan(row, tmp_path, **{"tasks.critic.rounds": 3})[1]
    assert trial.missing(changed) == ("train", "measure")


@pytest.mark.parametrize(
    ("guarantee", "curve"),
    [("5@1e-3", True), ("1@1e-10", False), ("none", False), ("3@1e-4", True)],
)
def test_the_label_curve_is_left_out_at_the_tables_later_guarantees(
    tiny, tmp_path, guarantee, curve
):
    trial, known = plan(tiny["taught"], tmp_path, guarantee=guarantee)
    assert known["curve"] is curve and not plan(tiny["plain"], tmp_path)[1]["curve"]
    whole = plan(tiny["taught"], tmp_path)[1]
    trial.begin(known)
    finish(trial, whole)
    assert trial.missing(known) == (), "with a curve it is measured too"
    finish(trial, plan(tiny["taught"], tmp_path, guarantee="none")[1])
    assert trial.missing(known) == (("measure",) if curve else ())


def test_samples_are_drawn_by_the_tables_filter_whatever_the_runs_own(tiny, tmp_path):
    strict = ReleaseConfig(agreement=0.9, attempts=3)
    for name, agreement in (("taught", 0.9), ("plain", 0.0)):
        _, known = plan(tiny[name], tmp_path)
        config = Config().updated(known["config"])
        federated.train(config, tmp_path / name, lambda _: None)
        found = federated.source(tmp_path / name, strict)
        assert found.agreement == agreement and config.release.agreement == 0
        assert found.attempts == (3 if name == "taught" else config.release.attempts)


def test_where_a_given_filter_lies_trains_nothing_anew_and_who_hides_does():
    known = read_config(PRESETS / "mnist-users.toml").flat()
    given = {**known, "privatizer.kind": "pretrained", "privatizer.path": "/here"}
    plans = [
        {"config": config, "fault": 0, "provider": ""}
        for config in (known, given, {**given, "privatizer.path": "/there"})
    ]
    assert _trains(plans[1]) == _trains(plans[2]) != _trains(plans[0])


def test_a_filter_that_is_trained_on_samples_is_trained_anew_for_others():
    hidden, shown = (
        {"config": read_config(PRESETS / f"{name}.toml").flat(), "fault": 0, "provider": ""}
        for name in ("private-thickness", "mnist-record")
    )
    for known, same in ((hidden, False), (shown, True)):
        other = {**known, "config": {**known["config"], "release.attempts": 3}}
        assert (_trains(known) == _trains(other)) == same


def test_students_of_clothes_learn_from_twice_as_many_images(tmp_path):
    digits, clothes = (
        plan(ROWS[n], tmp_path, guarantee="1@1e-5")[1] for n in ("mnist-record", "fashion-record")
    )
    assert digits["effort"] == SMALL.to_json()
    assert clothes["effort"] == {**digits["effort"], "images": 2 * SMALL.images}


def test_what_is_kept_is_shown_and_nothing_computed(capsys, tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(TableRun, "run", lambda self: pytest.fail("computed"))
    wanted = ("--rows", "plain", "taught", "--guarantee", "5@1e-3", "--seeds", "0", "--kept")
    status, _, told = study(capsys, *wanted, "--out", tmp_path / "out")
    assert status == 2 and "none of these 2 trials" in told and "Traceback" not in told
    trial, known = plan(tiny["plain"], tmp_path, effort=efforts.FULL)
    trial.begin(known)
    write_json(trial.folder / "training.json", {})
    found = cell_json(0.5, 4.9, measures=known["measures"])
    found["training"]["bdp_sound"] = 0.3
    found["real"] = {"frechet": 0.1, "coverage": 0.9, "density": 0.9}
    found |= {"recognised_real": 0.99, "judged_rotated_real": 0.0, "seed": 0}
    write_json(trial.folder / "trial.json", found)
    page = tmp_path / "page.md"
    status, printed, told = study(
        capsys, *wanted, "--out", tmp_path / "out", "--page", page, "--json"
    )
    assert status == 0 and "2 trials, 1 of them there" in told
    assert [row["row"] for row in json.loads(printed.splitlines()[-1])["rows"]] == ["plain"]
    assert "Plain" in page.read_text() and "Taught" not in page.read_text()


def test_a_run_of_other_settings_is_set_aside_not_deleted(tiny, tmp_path):
    trial, known = plan(tiny["plain"], tmp_path)
    trial.begin(known)
    (trial.folder / "run").mkdir()
    (trial.folder / "run" / "ledger.jsonl").write_text("spent")
    finish(trial, known)
    _, changed = plan(tiny["plain"], tmp_path, **{"tasks.critic.rounds": 3})
    trial.begin(changed)
    assert trial.missing(changed) == ("train", "measure")
    kept = trial.folder.with_name("seed-0.old-1")
    assert (kept / "run" / "ledger.jsonl").read_text() == "spent"
    assert not (trial.folder / "run").exists()


def test_cells_are_every_row_guarantee_and_seed_once(tiny, tmp_path):
    rows = [tiny["taught"], tiny["plain"]]
    trials = trials_of(rows, [], [0, 1], tmp_path)
    assert len({trial.folder for trial in trials}) == len(trials) == 12
    assert [trial.seed for trial in trials] == [0] * 6 + [1] * 6
    chosen = trials_of(rows, [parse_guarantee("none")], [5], tmp_path)
    assert [str(trial) for trial in chosen] == ["taught none seed 5", "plain none seed 5"]


def test_rows_of_one_guarantee_are_made_at_others_only_where_they_are_named(tmp_path):
    rows = [ROWS["mnist-record"], ROWS["mnist-record-fault"], ROWS["mnist-record-paper003"]]
    asked = [parse_guarantee("3@1e-5"), parse_guarantee("1@1e-10")]
    names = [str(trial) for trial in trials_of(rows, asked, [0], tmp_path, named=False)]
    assert names == [
        "mnist-record 3@1e-5 seed 0",
        "mnist-record 1@1e-10 seed 0",
        "mnist-record-fault 1@1e-10 seed 0",
    ]
    assert len(trials_of(rows[:2], asked, [0], tmp_path)) == 4


def test_a_recipe_as_published_cannot_be_given_a_guarantee(tmp_path):
    """Its noise protects no user, whatever factor it is multiplied with."""
    published = [ROWS["mnist-record-paper003"]]
    for text in ("1@1e-10", "none"):
        with pytest.raises(StudyError, match="'mnist-record-paper003' is a recipe as published"):
            trials_of(published, [parse_guarantee(text)], [0], tmp_path)
    (only,) = trials_of(published, [parse_guarantee("preset")], [0], tmp_path)
    assert [only] == trials_of(published, [], [0], tmp_path)
    both = [ROWS["mnist-record"], *published]
    quick = trials_of(both, [], [0], tmp_path, first=True)
    assert [str(trial.guarantee) for trial in quick] == ["1@1e-10", "preset"]


# Guarantees and rows


@pytest.mark.parametrize("text", ["1@1e-10", "1@1e-5", "10@1e-5", "0.5@2.5e-3", "none", "preset"])
def test_guarantees_are_read_as_they_are_written(text):
    assert str(parse_guarantee(text)) == text


def test_a_cell_is_scaled_to_its_guarantee_and_may_not_pass_it(tiny):
    row = tiny["taught"]
    loose, tight = (configuration(row, parse_guarantee(g), 7) for g in ("10@1e-3", "2@1e-3"))
    for config, epsilon in ((loose, 10.0), (tight, 2.0)):
        assert config.privacy.epsilon_budget == epsilon and config.privacy.delta == 1e-3
        assert config.seed == 7 and config.data.users == 40
    ratio = tight.tasks["critic"].noise_multiplier / loose.tasks["critic"].noise_multiplier
    assert ratio > 1
    parts = tight.tasks["annotator"].noise_multiplier / loose.tasks["annotator"].noise_multiplier
    assert parts == pytest.approx(ratio, rel=1e-5), "all parts by one factor"
    open_ = configuration(row, parse_guarantee("none"), 0)
    noises = {k: v for k, v in open_.flat().items() if k.endswith("noise_multiplier")}
    assert set(noises.values()) == {0.0} and len(noises) == 2
    as_is = configuration(row, parse_guarantee("preset"), 0)
    assert as_is.tasks["critic"].noise_multiplier == 3.0


def test_settings_at_a_guarantee_come_last(tiny):
    row = TableRow(
        "r", "R", tiny["plain"].preset, "embedded", "user", 40,
        settings={"tasks.critic.generator_steps": 5},
        settings_at={"none": {"tasks.critic.generator_steps": 9}},
    )  # fmt: skip
    assert configuration(row, parse_guarantee("5@1e-3"), 0).tasks["critic"].generator_steps == 5
    assert configuration(row, parse_guarantee("none"), 0).tasks["critic"].generator_steps == 9


def test_a_row_has_its_presets_users_unless_it_says_how_many(tiny):
    own = TableRow("r", "R", tiny["plain"].preset, "embedded", "user")
    assert configuration(own, parse_guarantee("none"), 0).data.users == Config().data.users
    assert configuration(tiny["plain"], parse_guarantee("none"), 0).data.users == 40


def test_the_rows_that_ship_are_sound():
    assert sum(row.quick for row in ROWS.values()) == 2
    for name, row in ROWS.items():
        assert row.name == name and row.unit in ("user", "record")
        assert row.data in ("mnist", "fashion-mnist")
        assert bool(row.fault) == bool(row.clean) and (not row.clean or row.clean in ROWS)
        for text in row.guarantees:
            assert str(parse_guarantee(text)) == text
        if row.preset_path.is_file() and row.guarantees != ("preset",):
            for text in row.guarantees:
                configuration(row, parse_guarantee(text), 0)
    assert all(str(parse_guarantee(text)) == text for text in GUARANTEES)
    assert PRESETS.is_dir()


# Summing up


def cell_json(student, epsilon=1.0, **more):
    students = {"cnn": student, "mlp": student - 0.1, "residual": student + 0.01}
    training = {
        "epsilon_dp": epsilon, "delta_dp": 1e-5, "bdp_as_published": 0.1, "bdp_corrected": 0.2,
        "bdp_sound": None, "delta_bdp": 1e-10, "seconds": 10.0, "peak_mb": 100.0, "threads": 1,
    }  # fmt: skip
    return {
        "measures": "m", "users": 40, "students": students, "taught": True, "own_label": 0.5,
        "control": None, "annotator": 0.9, "recognised": 0.8, "frechet": 1.0,
        "coverage": 0.5, "density": 0.6, "judged_rotated": 0.1, "seconds": 5.0,
        "training": training, **more,
    }  # fmt: skip


def test_lines_are_means_and_deviations_over_seeds(tiny, tmp_path):
    row, guarantee = tiny["plain"], parse_guarantee("1@1e-5")
    trials = [TableTrial.of(row, guarantee, seed, tmp_path) for seed in (0, 1, 2)]
    for trial, accuracy, epsilon in zip(trials[:2], (0.8, 0.9), (0.99, 0.98), strict=True):
        trial.folder.mkdir(parents=True)
        points = [{"labels": 10, "annotated": accuracy, "requested": 0.1, "extended": 0.9}]
        write_json(trial.folder / "trial.json", cell_json(accuracy, epsilon, curve=points))
    (line,) = lines_of(trials)
    assert line.seeds == (0, 1), "the third was not measured"
    row_json = line.to_json()
    student = row_json["student_accuracy"]
    assert student["mean"] == pytest.approx(0.85)
    assert student["std"] == pytest.approx(math.sqrt(0.005))
    assert student["best"] == pytest.approx(0.86)
    assert student["per_architecture"]["mlp"]["mean"] == pytest.approx(0.75)
    assert row_json["epsilon_dp"] == 0.99, "the largest of the seeds"
    assert row_json["epsilon_bdp"]["sound"] is None, "a seed without a bound leaves none"
    assert row_json["control_accuracy"] is None
    assert row_json["label_curve"] == [
        {
            "labels": 10,
            "annotated": pytest.approx(0.85),
            "requested": pytest.approx(0.1),
            "extended": pytest.approx(0.9),
        }
    ]
    json.dumps(row_json, allow_nan=False)


# Faults and controls


def test_a_fault_rotates_whole_users_and_nothing_else(tmp_path):
    settings = {"data.users": 50, "data.samples_per_user": 20, "privacy.delta": 1e-3, "seed": 4}
    config = Config().updated(settings)
    path = tmp_path / "faults" / "faulty.npz"
    write_faulty_copy(config, 0.3, path)
    clean, faulty = load("embedded"), load(f"npz:{path}")
    moved = np.flatnonzero(
        (clean.train_images != faulty.train_images).reshape(len(clean.train_images), -1).any(1)
    )
    turned = faulty_records(config, 0.3)
    assert len(turned) == 15 * 20 and set(moved) <= set(turned) and len(moved) > 290
    sample = int(moved[0])
    assert np.array_equal(
        faulty.train_images[sample], np.rot90(clean.train_images[sample], 1, (1, 2))
    )
    assert np.array_equal(clean.train_labels, faulty.train_labels)
    assert np.array_equal(clean.test_images, faulty.test_images)
    other = faulty_records(config.updated({"seed": 5}), 0.3)
    assert not np.array_equal(turned, other)


def test_records_are_rotated_one_by_one_where_they_are_the_unit():
    config = Config().updated(
        {"privacy.unit": "record", "tasks.critic.kind": "wgan", "data.users": 2, "data.nodes": 2}
    )
    turned = faulty_records(config, 0.3)
    assert len(turned) == len(set(turned.tolist())) == 3000
    assert faulty_records(config, 0.0).size == 0


def test_noise_images_are_public_smooth_and_the_annotators_to_label():
    class Teacher:
        classes = 3

        def draw(self, labels, seed):
            raise AssertionError("the control may not draw from the generator")

        def label(self, images):
            return torch.full((len(images), 3), 1 / 3)

    control = NoiseTeacher(Teacher(), (1, 28, 28))
    images = control.draw(torch.zeros(20, dtype=torch.int64), 5)
    assert images.shape == (20, 1, 28, 28) and control.classes == 3
    assert float(images.min()) >= -1 and float(images.max()) <= 1
    assert torch.equal(images, noise_images(20, (1, 28, 28), 5))
    assert not torch.equal(images, noise_images(20, (1, 28, 28), 6))
    neighbours = (images[..., 1:] - images[..., :-1]).abs().mean()
    strangers = (images[..., 14:] - images[..., :14]).abs().mean()
    assert neighbours < strangers / 2
    assert control.label(images).shape == (20, 3)


# Published figures


def test_published_figures_have_a_source_and_a_guarantee():
    figures = published_figures()
    assert len(figures) > 25
    assert len({(f.method, f.data, f.notion, f.epsilon) for f in figures}) == len(figures)
    for figure in figures:
        assert figure.source and figure.url.startswith("https://") and figure.notion in NOTIONS
        assert 50 <= figure.accuracy < 99
    paper = [f for f in figures if f.notion == "BDP"]
    assert {f.accuracy for f in paper} == {94.19, 73.36}
    assert {f.guarantee for f in paper} == {"(1, 1e-10)-BDP"}


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (('source = "paper"\n\n', "\n"), "figure 1: 'source' is missing"),
        (('kind = "single"', 'kind = "lucky"'), "figure 1: cannot be used"),
        (("mnist = 94.19", "mnist = 0.9419e3"), "figure 1: cannot be used"),
        (("epsilon = 1.0", ""), "figure 1: a guarantee needs a finite epsilon"),
    ],
)
def test_a_published_figure_without_its_terms_is_refused(spoil, said, tmp_path):
    from fedlens_research.table1.literature import FILE

    text = FILE.read_text()
    (tmp_path / "published.toml").write_text(text.replace(*spoil, 1))
    with pytest.raises(StudyError, match=re.escape(said)):
        published_figures(tmp_path / "published.toml")


def test_a_broken_study_of_another_package_is_named_and_stops_no_command(monkeypatch, capsys):
    broken = EntryPoint("broken", "nowhere.at_all:STUDY", STUDIES.group)
    strange = EntryPoint("strange", "math:pi", STUDIES.group)
    monkeypatch.setattr(STUDIES, "_foreign", lambda: [broken, strange])
    status, out, err = study(capsys, "--help")
    assert status == 0 and "--guarantee" in out
    assert "study 'broken' is left out" in err and "study 'strange' is left out" in err
