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

from simulations.cli import main
from simulations.study import effort as efforts
from simulations.study.cells import Cell, alike, plan_of, write_json
from simulations.study.figures import Figure, figures_of, joined
from simulations.study.guarantees import configuration, parse_guarantee
from simulations.study.page import IMAGES
from simulations.study.rows import Row
from simulations.study.runner import Study

VALUES = st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=5)
PLAIN = """
[data]
name = "embedded"
nodes = 2
samples_per_user = 4
[privacy]
noise_multiplier = 3.0
clipping_norm = 0.3
delta = 1e-3
"""


@given(VALUES, VALUES)
def test_figures_of_two_sets_of_seeds_are_those_of_all_seeds(one, other):
    both = Figure.of(one).joined(Figure.of(other))
    assert asdict(both) == pytest.approx(asdict(Figure.of([*one, *other])), rel=1e-9, abs=1e-5)


def test_of_one_seed_there_is_no_deviation():
    assert Figure.of([0.5]).summary() == {"mean": 0.5, "std": None}
    assert Figure.of([0.5, 0.7]).summary()["std"] == pytest.approx(statistics.stdev([0.5, 0.7]))


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
    found = figures_of([cell_json(0.5), cell_json(0.7, control=0.6)])
    assert found["students.cnn"] == Figure.of([0.5, 0.7])
    assert found["students.best"] == Figure.of([0.5, 0.7])
    assert found["control"] == Figure.of([0.6]), "a seed that lacks it takes no part"
    assert found["curve.100.annotated"] == Figure.of([0.5, 0.7])
    assert found["real.coverage"].mean == 0.9 and found["taught"].mean == 1
    assert "recognised_per_class" not in found and "training.statement" not in found
    apart = joined(figures_of([cell_json(0.5)]), figures_of([cell_json(0.7, control=0.6)]))
    assert apart.keys() == found.keys() and apart["control"] == found["control"]


@pytest.fixture
def rows(tmp_path, monkeypatch) -> dict[str, Row]:
    """Two rows, and a study that may compute nothing."""
    (tmp_path / "plain.toml").write_text(PLAIN)
    made = [
        Row(name, name.capitalize(), str(tmp_path / "plain"), "embedded", "user", users=40,
            curve=True, guarantees=("5@1e-3",))
        for name in ("first", "second")
    ]  # fmt: skip
    monkeypatch.setattr("simulations.study.rows.ROWS", {row.name: row for row in made})
    monkeypatch.setattr(Study, "run", lambda self: pytest.fail("computed"))
    return {row.name: row for row in made}


def measured(row: Row, seed: int, out: Path, student: float) -> None:
    """Put a cell into a study's folder as if it had been trained and measured."""
    cell = Cell.of(row, parse_guarantee("5@1e-3"), seed, out)
    known = plan_of(cell, configuration(row, cell.guarantee, seed), efforts.FULL)
    cell.begin(known)
    write_json(cell.folder / "training.json", {})
    found = cell_json(student, seed=seed, measures=known["measures"])
    write_json(cell.folder / "cell.json", found)
    Image.new("L", (8, 8), seed).save(cell.folder / "contact-sheet.png")


def write(out: Path, page: Path, capsys) -> tuple[int, str]:
    status = main(["study", "table1", "--kept", "--out", str(out), "--page", str(page)])
    return status, capsys.readouterr().err


def test_a_page_grows_over_folders_as_if_all_had_been_in_one(rows, tmp_path, capsys):
    page, whole = tmp_path / "grown" / "page.md", tmp_path / "whole" / "page.md"
    cells = [("first", 0, 0.5), ("first", 1, 0.75), ("second", 0, 0.25), ("first", 2, 0.625)]
    for number, (name, seed, student) in enumerate(cells):
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


def test_all_seeds_anew_take_the_place_of_those_before(rows, tmp_path, capsys):
    page = tmp_path / "page.md"
    measured(rows["first"], 0, tmp_path / "old", 0.5)
    write(tmp_path / "old", page, capsys)
    for seed in (0, 1):
        measured(rows["first"], seed, tmp_path / "new", 0.75)
    write(tmp_path / "new", page, capsys)
    assert "| First | (5, 1e-3)-DP | 2 | **75.0 ± 0.0** |" in page.read_text()


def test_figures_of_other_settings_leave_the_page(rows, tmp_path, capsys, monkeypatch):
    page = tmp_path / "page.md"
    for name in rows:
        measured(rows[name], 0, tmp_path / "out", 0.5)
    write(tmp_path / "out", page, capsys)
    assert "First" in page.read_text() and "Second" in page.read_text()
    path = Path(f"{rows['first'].preset}-other.toml")
    path.write_text(PLAIN.replace("0.3", "0.4"))
    other = Row("first", "First", str(path.with_suffix("")), "embedded", "user", users=40,
                curve=True, guarantees=("5@1e-3",))  # fmt: skip
    monkeypatch.setattr("simulations.study.rows.ROWS", {**rows, "first": other})
    measured(rows["second"], 1, tmp_path / "later", 0.5)
    status, told = write(tmp_path / "later", page, capsys)
    assert status == 0 and "first 5@1e-3: leaves the page" in told
    assert "First" not in page.read_text() and "| Second | (5, 1e-3)-DP | 2 |" in page.read_text()


@pytest.mark.parametrize("content", ["[{", "{}", '[{"row": "first"}]', "[1]", "null"])
def test_a_broken_record_is_refused_before_anything_is_computed(content, rows, tmp_path, capsys):
    page = tmp_path / "page.md"
    measured(rows["first"], 0, tmp_path / "out", 0.5)
    page.with_suffix(".json").write_text(content)
    status, told = write(tmp_path / "out", page, capsys)
    assert status == 2 and "page.json: is no record of a page" in told and "Traceback" not in told
    assert page.with_suffix(".json").read_text() == content and not page.exists()
    assert main(["study", "table1", "--out", str(tmp_path / "out"), "--page", str(page)]) == 2


def test_noise_that_differs_in_its_last_digits_is_the_same_noise(rows):
    cell = Cell(rows["first"], parse_guarantee("5@1e-3"), 0, Path())
    config = configuration(cell.row, cell.guarantee, 0)
    plan = plan_of(cell, config, efforts.FULL)
    noise = plan["config"]["privacy.noise_multiplier"]

    def changed(**settings) -> dict:
        return {**plan, "config": {**plan["config"], **settings}}

    assert alike(plan, changed(seed=3))
    assert alike(plan, changed(**{"privacy.noise_multiplier": noise * (1 + 1e-12)}))
    assert not alike(plan, changed(**{"privacy.noise_multiplier": noise * 1.001}))
    assert not alike(plan, {**plan, "fault": 0.3})
    assert not alike(plan, {**plan, "measures": "otherwise"})


def test_the_page_that_ships_is_made_of_its_record():
    """Its figures outlive the runs only if they are there."""
    docs = Path(__file__).parents[2] / "docs"
    entries = json.loads((docs / "results.json").read_text(encoding="utf-8"))
    text = (docs / "results.md").read_text(encoding="utf-8")
    for entry in entries:
        student = Figure(**entry["figures"]["students.cnn"])
        assert f"{100 * student.mean:.1f}" in text, (entry["row"], entry["guarantee"])
    shown = text.split("## What each row promises")[1].split("## What others")[0]
    assert shown.count("-DP |") + shown.count("preset's noise |") == len(entries)
