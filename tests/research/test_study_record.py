"""Figures over seeds, and the record that keeps a page's figures when the runs are gone."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from fedlens.cli import main
from fedlens.foundation.rounding import rounded_up
from fedlens_research.framework.figures import SeedFigure
from fedlens_research.framework.store import write_json
from fedlens_research.table1 import evaluation as efforts
from fedlens_research.table1.figures import Group, counted, joined
from fedlens_research.table1.guarantees import configuration, parse_guarantee
from fedlens_research.table1.page import IMAGES, write_page
from fedlens_research.table1.record import read_record
from fedlens_research.table1.rows import TableRow
from fedlens_research.table1.runner import TableRun
from fedlens_research.table1.trials import TableTrial, alike, plan_of

VALUES = st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=5)
PLAIN = """
[data]
samples_per_user = 4
[tasks.critic]
kind = "frozen"
rounds = 4
clipping_norm = 0.3
"""


@given(VALUES, VALUES)
def test_figures_of_two_sets_of_seeds_are_those_of_all_seeds(one, other):
    both = SeedFigure.of(one).joined(SeedFigure.of(other))
    assert asdict(both) == pytest.approx(asdict(SeedFigure.of([*one, *other])), rel=1e-9, abs=1e-5)


def test_of_one_seed_there_is_no_deviation():
    assert SeedFigure.of([0.5]).summary() == {"mean": 0.5, "std": None}
    assert SeedFigure.of([0.5, 0.7]).summary()["std"] == pytest.approx(statistics.stdev([0.5, 0.7]))


def cell_json(student: float, **more) -> dict:
    training = {
        "epsilon_dp": 4.9 + student / 100, "delta_dp": 1e-3, "bdp_as_published": 0.1,
        "bdp_corrected": 0.2, "bdp_sound": 0.3, "delta_bdp": 1e-10, "seconds": 10.0,
        "peak_mb": 100.0 + student, "threads": 1, "statement": "in words",
    }  # fmt: skip
    return {
        "users": 40, "students": {"cnn": student, "mlp": 0.9 - student, "residual": 0.5},
        "taught": True, "own_label": 0.5, "control": None, "annotator": 0.9, "recognised": 0.8,
        "recognised_per_class": [0.1, 0.2], "recognised_real": 0.9, "frechet": 1.0,
        "coverage": 0.5, "density": 0.6, "judged_rotated": 0.1, "judged_rotated_real": 0.0,
        "real": {"frechet": 0.1, "coverage": 0.9, "density": 0.9}, "seconds": 5.0,
        "curve": [{"labels": 100, "annotated": student, "requested": 0.4, "extended": 0.3}],
        "training": training, **more,
    }  # fmt: skip


def test_every_number_of_a_cell_is_a_figure_and_nothing_else_is():
    found = joined([Group.of(cell_json(0.5), 0), Group.of(cell_json(0.7, control=0.6), 1)])
    assert found["students.cnn"] == SeedFigure.of([0.5, 0.7])
    assert found["students.best"] == SeedFigure.of([0.5, 0.7])
    assert found["control"] == SeedFigure.of([0.6]), "a seed that lacks it takes no part"
    assert found["curve.100.annotated"] == SeedFigure.of([0.5, 0.7])
    assert found["real.coverage"].mean == 0.9 and found["taught"].mean == 1
    assert "recognised_per_class" not in found and "training.statement" not in found


def group(*seeds: int) -> Group:
    return Group(seeds, {"x": SeedFigure(len(seeds), 0.5, None, None)})


@pytest.mark.parametrize(
    ("groups", "shown"),
    [
        ([(2,), (0,)], [(0,), (2,)]),
        ([(0, 1, 2), (3,)], [(0, 1, 2), (3,)]),
        ([(0, 1, 2), (2,), (3,)], [(0, 1, 2), (3,)]),
        ([(0, 1), (0,), (1,)], [(0,), (1,)]),
        ([(0, 1), (1, 2, 3)], [(1, 2, 3)]),
    ],
)
def test_no_seed_is_counted_twice(groups, shown):
    found = counted([group(*seeds) for seeds in groups])
    assert [one.seeds for one in found] == shown


def test_what_nobody_knows_of_a_group_is_known_of_none():
    both = joined([group(0, 1), Group((2,), {"x": SeedFigure.of([0.8])})])["x"]
    assert (both.count, both.deviation, both.most) == (3, None, None)
    assert both.mean == pytest.approx(0.6)


@pytest.fixture
def rows(tmp_path, monkeypatch) -> dict[str, TableRow]:
    """Two rows, and a study that may compute nothing."""
    (tmp_path / "plain.toml").write_text(PLAIN)
    made = [
        TableRow(name, name.capitalize(), str(tmp_path / "plain"), "embedded", "user", users=40,
            curve=True, guarantees=("5@1e-3",))
        for name in ("first", "second")
    ]  # fmt: skip
    monkeypatch.setattr("fedlens_research.table1.rows.ROWS", {row.name: row for row in made})
    monkeypatch.setattr(TableRun, "run", lambda self: pytest.fail("computed"))
    return {row.name: row for row in made}


def measured(
    row: TableRow,
    seed: int,
    out: Path,
    student: float,
    guarantee: str = "5@1e-3",
    effort: efforts.EvaluationBudget = efforts.FULL,
) -> None:
    """Put a trial into a study's folder as if it had been trained and measured."""
    trial = TableTrial.of(row, parse_guarantee(guarantee), seed, out)
    known = plan_of(trial, configuration(row, trial.guarantee, seed), effort)
    trial.begin(known)
    write_json(trial.folder / "training.json", {})
    found = cell_json(student, seed=seed, measures=known["measures"], images=effort.images)
    write_json(trial.folder / "trial.json", found)
    Image.new("L", (8, 8), seed).save(trial.folder / "contact-sheet.png")


KEPT = ("study", "table1", "--kept")


def write(out: Path, page: Path, capsys) -> tuple[int, str]:
    status = main(["study", "table1", "--kept", "--out", str(out), "--page", str(page)])
    return status, capsys.readouterr().err


def test_a_page_grows_over_folders_as_if_all_had_been_in_one(rows, tmp_path, capsys):
    page, whole = tmp_path / "grown" / "page.md", tmp_path / "whole" / "page.md"
    trials = [("first", 0, 0.5), ("first", 1, 0.75), ("second", 0, 0.25), ("first", 2, 0.625)]
    for number, (name, seed, student) in enumerate(trials):
        for out in (tmp_path / f"machine-{number}", tmp_path / "one"):
            measured(rows[name], seed, out, student)
        assert write(tmp_path / f"machine-{number}", page, capsys)[0] == 0
    assert write(tmp_path / "one", whole, capsys)[0] == 0
    assert page.read_text() == whole.read_text()
    assert "| First | (5, 1e-3)-DP | 3 | **62.5 ± 12.5** |" in page.read_text()
    sheet = page.parent / IMAGES / "first-5-at-1e-3.png"
    assert Image.open(sheet).getpixel((0, 0)) == 0, "the first seed's, which came first"
    before = page.read_text()
    assert write(tmp_path / "machine-1", page, capsys)[0] == 0
    assert page.read_text() == before, "what is there already joins nothing twice"


def test_what_was_measured_less_stands_on_no_page_and_says_so(rows, tmp_path, capsys):
    out, page = tmp_path / "out", tmp_path / "page.md"
    measured(rows["first"], 0, out, 0.5, effort=efforts.quick())
    status, told = write(out, page, capsys)
    assert status == 2 and "--quick and no --page" in told and not page.exists()
    measured(rows["first"], 1, out, 0.75)
    assert write(out, page, capsys)[0] == 0
    assert "| First | (5, 1e-3)-DP | 1 | **75.0** |" in page.read_text()
    assert "which saw 120,000 synthetic" in page.read_text()
    assert main([*KEPT, "--quick", "--seeds", "0", "1", "--rows", "first", "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "first 5@1e-3: students of 30,000 or 120,000 images" in shown
    assert "which saw 30,000 or 120,000 synthetic" in (out / "results.md").read_text()
    assert main([*KEPT, "--quick", "--seeds", "1", "--rows", "first", "--out", str(out)]) == 0
    assert "students of" not in capsys.readouterr().out


def test_all_seeds_anew_take_the_place_of_those_before(rows, tmp_path, capsys):
    page = tmp_path / "page.md"
    for seed in (0, 1):
        measured(rows["first"], seed, tmp_path / "old", 0.5)
    write(tmp_path / "old", page, capsys)
    for seed in (1, 2):
        measured(rows["first"], seed, tmp_path / "new", 0.75)
    write(tmp_path / "new", page, capsys)
    assert "| First | (5, 1e-3)-DP | 3 | **66.7 ± 14.4** |" in page.read_text()


def test_a_seed_of_a_group_waits_until_all_of_it_are_there(rows, tmp_path, capsys):
    page = tmp_path / "page.md"
    measured(rows["first"], 0, tmp_path / "out", 0.5)
    write(tmp_path / "out", page, capsys)
    record = page.with_suffix(".json")
    (entry,) = json.loads(record.read_text())
    (only,) = entry["groups"]
    figures = {name: {**f, "count": 2, "deviation": None} for name, f in only["figures"].items()}
    entry["groups"] = [{"seeds": [0, 1], "figures": figures}]
    record.write_text(json.dumps([entry]))
    measured(rows["first"], 0, tmp_path / "anew", 0.75)
    anew = TableTrial.of(rows["first"], parse_guarantee("5@1e-3"), 0, tmp_path / "anew").folder
    Image.new("L", (8, 8), 99).save(anew / "contact-sheet.png")
    status, told = write(tmp_path / "anew", page, capsys)
    assert status == 0 and "first 5@1e-3: seeds [0] are part of a group" in told
    assert "| First | (5, 1e-3)-DP | 2 | **50.0 ± –** |" in page.read_text()
    assert len(json.loads(record.read_text())[0]["groups"]) == 2
    sheet = page.parent / IMAGES / "first-5-at-1e-3.png"
    assert Image.open(sheet).getpixel((0, 0)) == 0, "the group's, as its figures"
    measured(rows["first"], 1, tmp_path / "later", 0.25)
    write(tmp_path / "later", page, capsys)
    assert "| First | (5, 1e-3)-DP | 2 | **50.0 ± 35.4** |" in page.read_text()
    assert [g["seeds"] for g in json.loads(record.read_text())[0]["groups"]] == [[1], [0]]


def test_lines_that_are_there_twice_are_joined(rows, tmp_path, capsys):
    """As where two people's pages were merged."""
    page, other = tmp_path / "page.md", tmp_path / "other" / "page.md"
    measured(rows["first"], 0, tmp_path / "mine", 0.5)
    measured(rows["first"], 1, tmp_path / "yours", 0.7)
    write(tmp_path / "mine", page, capsys)
    write(tmp_path / "yours", other, capsys)
    texts = [json.loads(path.with_suffix(".json").read_text()) for path in (page, other)]
    page.with_suffix(".json").write_text(json.dumps(texts[0] + texts[1]))
    assert write(tmp_path / "nothing", page, capsys)[0] == 0, "a page needs no trials"
    assert "| First | (5, 1e-3)-DP | 2 | **60.0 ± 14.1** |" in page.read_text()


def test_a_line_without_privacy_and_one_of_a_preset_stay_two(rows, tmp_path, capsys):
    page = tmp_path / "page.md"
    for guarantee, student in (("none", 0.5), ("preset", 0.7)):
        measured(rows["first"], 0, tmp_path / "out", student, guarantee)
    wanted = ["study", "table1", "--kept", "--rows", "first", "--guarantee", "none", "preset"]
    assert main([*wanted, "--out", str(tmp_path / "out"), "--page", str(page)]) == 0
    assert "**50.0**" in page.read_text() and "**70.0**" in page.read_text()


def test_figures_of_before_are_not_those_of_a_cell_that_failed(rows, tmp_path, capsys, monkeypatch):
    """It was measured in another way, and measuring anew did not come to an end."""
    out, page = tmp_path / "out", tmp_path / "page.md"
    for name, student in (("first", 0.33), ("second", 0.66)):
        measured(rows[name], 0, out, student)
    trial = TableTrial.of(rows["first"], parse_guarantee("5@1e-3"), 0, out)
    write_json(trial.folder / "trial.json", cell_json(0.33, seed=0, measures="otherwise"))
    monkeypatch.setattr(TableRun, "run", lambda self: ["first 5@1e-3 seed 0: measuring failed"])
    assert main(["study", "table1", "--seeds", "0", "--out", str(out), "--page", str(page)]) == 1
    assert "33.0" not in capsys.readouterr().out
    assert "Second" in page.read_text() and "First" not in page.read_text()


def test_figures_of_other_settings_leave_the_page(rows, tmp_path, capsys, monkeypatch):
    page = tmp_path / "page.md"
    for name in rows:
        measured(rows[name], 0, tmp_path / "out", 0.5)
    write(tmp_path / "out", page, capsys)
    assert "First" in page.read_text() and "Second" in page.read_text()
    path = Path(f"{rows['first'].preset}-other.toml")
    path.write_text(PLAIN.replace("0.3", "0.4"))
    other = TableRow("first", "First", str(path.with_suffix("")), "embedded", "user", users=40,
                curve=True, guarantees=("5@1e-3",))  # fmt: skip
    monkeypatch.setattr("fedlens_research.table1.rows.ROWS", {**rows, "first": other})
    measured(rows["second"], 1, tmp_path / "later", 0.5)
    status, told = write(tmp_path / "later", page, capsys)
    assert status == 0 and "first 5@1e-3: leaves the page" in told
    assert "First" not in page.read_text() and "| Second | (5, 1e-3)-DP | 2 |" in page.read_text()


GROUP = '{"row": "first", "guarantee": "5@1e-3", "plan": %s, "groups": %s}'
PLAN = '{"config": {}, "fault": 0, "provider": "", "measures": ""}'
BROKEN = [
    "[{", "{}", '[{"row": "first"}]', "[1]", "null",
    "[" + GROUP % (PLAN, "[]") + "]",
    "[" + GROUP % ("{}", '[{"seeds": [0], "figures": {}}]') + "]",
    "[" + GROUP % (PLAN, '[{"seeds": [0], "figures": []}]') + "]",
    "[" + GROUP % (PLAN, '[{"seeds": [0], "figures": {}}]') + "]",
    "[" + GROUP % (PLAN, '[{"seeds": [], "figures": {"users": {"count": 0}}}]') + "]",
]  # fmt: skip


@pytest.mark.parametrize("content", BROKEN)
def test_a_broken_record_is_refused_before_anything_is_computed(content, rows, tmp_path, capsys):
    page = tmp_path / "page.md"
    measured(rows["first"], 0, tmp_path / "out", 0.5)
    page.with_suffix(".json").write_text(content)
    status, told = write(tmp_path / "out", page, capsys)
    assert status == 2 and "page.json: is no record of a page" in told and "Traceback" not in told
    assert page.with_suffix(".json").read_text() == content and not page.exists()
    assert main(["study", "table1", "--out", str(tmp_path / "out"), "--page", str(page)]) == 2


@pytest.mark.parametrize(
    "wrong", [{"count": 0}, {"count": 2}, {"count": "1"}, {"mean": "x"}, {"mean": float("nan")}]
)
def test_a_figure_that_is_none_is_refused(wrong):
    with pytest.raises((ValueError, TypeError)):
        Group((0,), {"x": SeedFigure(**{**asdict(SeedFigure.of([1.0])), **wrong})})


def test_a_page_that_cannot_be_written_is_told_first(rows, tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text("# by hand\n")
    for path, said in ((page, "without its figures"), (Path("/proc/no/x.md"), "cannot be written")):
        status = main(["study", "table1", "--out", str(tmp_path / "out"), "--page", str(path)])
        assert status == 2 and said in capsys.readouterr().err
    assert page.read_text() == "# by hand\n"


def test_a_row_whose_preset_is_gone_leaves_the_page_and_the_others_stay(rows, tmp_path, capsys):
    page = tmp_path / "page.md"
    for name in rows:
        measured(rows[name], 0, tmp_path / "out", 0.5)
    write(tmp_path / "out", page, capsys)
    rows["first"].preset_path.rename(tmp_path / "elsewhere.toml")
    second = TableRow(**{**asdict(rows["second"]), "preset": str(tmp_path / "elsewhere")})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "fedlens_research.table1.rows.ROWS", {"first": rows["first"], "second": second}
        )
        status, told = write(tmp_path / "none", page, capsys)
    assert status == 0 and "first 5@1e-3: leaves the page" in told
    assert "First" not in page.read_text() and "Second" in page.read_text()


def test_noise_that_differs_in_its_last_digits_is_the_same_noise(rows):
    trial = TableTrial(rows["first"], parse_guarantee("5@1e-3"), 0, Path())
    config = configuration(trial.row, trial.guarantee, 0)
    plan = plan_of(trial, config, efforts.FULL)
    noise = plan["config"]["tasks.critic.noise_multiplier"]

    def changed(**settings) -> dict:
        return {**plan, "config": {**plan["config"], **settings}}

    assert alike(plan, changed(seed=3))
    above = rounded_up((1 + 1e-8) * rounded_up(noise, 7), 7)
    assert above != rounded_up(noise, 7)
    near = changed(**{"tasks.critic.noise_multiplier": above})
    assert alike(changed(**{"tasks.critic.noise_multiplier": rounded_up(noise, 7)}), near)
    assert not alike(plan, changed(**{"tasks.critic.noise_multiplier": noise * 1.001}))
    assert not alike(plan, {**plan, "fault": 0.3})
    assert not alike(plan, {**plan, "measures": "otherwise"})


def test_the_page_that_ships_is_made_of_its_record_and_nothing_else(tmp_path, monkeypatch):
    """Also where what makes its figures has changed since, as the page of results says."""
    monkeypatch.setattr("fedlens_research.table1.record._is_current", lambda *_: True)
    results = Path(__file__).parents[2] / "research" / "results"
    record = read_record(results / "results.json", results / IMAGES, efforts.FULL)
    assert record.entries and not record.left_out
    page = tmp_path / "results.md"
    write_page(page, [entry.line for entry in record.entries], tmp_path / IMAGES)
    assert page.read_text() == (results / "results.md").read_text()
    pictures = {path.name for path in (results / IMAGES).iterdir()}
    assert pictures == {path.name for path in (tmp_path / IMAGES).iterdir()}
