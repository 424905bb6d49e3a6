"""The studies of alpha-MI and of two attributes: small real runs, floors, files, refusals."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from fedlens.data.attributes import load_private
from fedlens.foundation.tables import table_of
from fedlens.models.students import StudentCnn
from fedlens.privatizers.attacks.attack_runs import (
    normalised_error,
    read_sensitive,
    released,
    released_parts,
)
from fedlens.privatizers.attacks.attackers import ATTACKERS
from fedlens.privatizers.attacks.attackers.formula import InkFormula
from fedlens.privatizers.attacks.attackers.reading_nets import accuracy, learn
from fedlens.privatizers.private_data import PrivateData, Split
from fedlens.privatizers.protocol import PrivatizerError
from fedlens_research.framework.errors import StudyError
from fedlens_research.framework.settings import parse_points
from fedlens_research.framework.study import run_seeds
from fedlens_research.papers import STUDIES, alpha_images, alpha_load, attributes

NAMES = ("attributes", "alpha-images", "alpha-load")


class _Pass(nn.Module):
    """Releases what it is given."""

    noise_shape = ()

    def forward(self, records: Tensor, noise: Tensor, choice: Tensor | None = None) -> Tensor:
        return records


def _settings(name: str, **changes: Any) -> Any:
    return replace(STUDIES[name].settings(quick=True), **changes)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("quick", [True, False])
def test_settings_are_complete(name: str, quick: bool) -> None:
    assert STUDIES[name].settings(quick=quick).attackers


def _few(split: Split, count: int) -> Split:
    return Split(*(part.take(slice(0, count)) for part in (split.train, split.attack, split.test)))


@pytest.fixture
def few_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Studies of a few hundred records, so that a real run takes seconds."""
    for module in (alpha_images, alpha_load, attributes):

        def load(name: str, data_dir: Path | None = None, seed: int = 0) -> Split:
            return _few(load_private(name, data_dir, seed), 300)

        monkeypatch.setattr(module, "load_private", load)


@pytest.mark.usefixtures("few_records")
def test_images_study_runs_through(tmp_path: Path) -> None:
    settings = _settings(
        "alpha-images",
        data="embedded-amnist",
        points=("1:0.5", "inf:1"),
        modes=("loss", "entropy"),
        width=2,
        reading_steps=8,
        copying_steps=3,
        steps=3,
        attacker_steps=5,
        code_steps=12,
    )
    told: list[str] = []
    rows = run_seeds(
        STUDIES["alpha-images"],
        settings,
        seeds=[4],
        data_dir=None,
        out=tmp_path,
        report=told.append,
    )
    assert [(row["mode"], row["point"]) for row in rows] == [
        (None, "raw"),
        (None, "digit"),
        ("loss", "1:0.5"),
        ("loss", "inf:1"),
        ("entropy", "1:0.5"),
        ("entropy", "inf:1"),
    ]
    for row in rows[2:]:
        found = [value for name, value in row.items() if name.startswith("attacker_")]
        assert len(found) == 3 and row["attacker"] == max(found)
        assert 0 <= row["digits"] <= 1
        assert row["squared_error"] > 0
        assert 0 <= row["code_reader"] <= 1 and row["code_records"] == 600
    assert len(told) == 5
    assert table_of(rows, alpha_images.COLUMNS).row_count == 6
    assert {path.name for path in tmp_path.iterdir()} == {
        "alpha-images-sheet.png",
        "alpha-images-curve.png",
        "filters",
        "pieces",
        "trials",
    }
    fewer = replace(settings, points=("1:0.5",), modes=("loss",))
    again = run_seeds(
        STUDIES["alpha-images"],
        fewer,
        seeds=[4],
        data_dir=None,
        out=tmp_path,
        report=lambda line: None,
    )
    first, second = ({**found[2], "seconds": None} for found in (rows, again))
    assert first == second, "equal seeds give equal figures"


@pytest.mark.usefixtures("few_records")
def test_load_study_runs_through(tmp_path: Path) -> None:
    settings = _settings(
        "alpha-load",
        data="embedded-household",
        sides=("none", "calendar", "clock"),
        points=("2:0.3",),
        side_points=("0.5:0.3",),
        hidden=4,
        adversary_hidden=4,
        meeting_steps=2,
        steps=2,
        attacker_steps=5,
    )
    rows = run_seeds(
        STUDIES["alpha-load"],
        settings,
        seeds=[0],
        data_dir=None,
        out=tmp_path,
        report=lambda line: None,
    )
    assert [(row["side"], row["point"]) for row in rows] == [
        (side, point)
        for side, own in (("none", "2:0.3"), ("calendar", "0.5:0.3"), ("clock", "0.5:0.3"))
        for point in ("raw", "constant", own)
    ]
    for row in rows:
        assert 0 <= row["NE"] < 1.5
    assert rows[2]["drop"] == pytest.approx(rows[0]["attacker"] - rows[2]["attacker"])
    assert {path.name for path in tmp_path.iterdir()} == {
        "alpha-load-sheet.png",
        "alpha-load-curve.png",
        "filters",
        "pieces",
        "trials",
    }


@pytest.mark.usefixtures("few_records")
def test_the_rule_takes_the_lstms_place_and_is_fitted_to_the_budget(tmp_path: Path) -> None:
    settings = _settings(
        "alpha-load",
        data="embedded-household",
        releaser="peaks",
        points=("1:0.3", "5:0.3", "1:0.6"),
        attackers=("trees",),
    )
    rows = run_seeds(
        STUDIES["alpha-load"], settings, seeds=[0], data_dir=None, out=tmp_path, report=print
    )
    raw, _, tight, other, loose = rows
    assert tight["NE"] == other["NE"] < loose["NE"], "the order says nothing to it"
    assert raw["attacker"] > tight["attacker"] > loose["attacker"] - 0.02


def test_who_knows_the_clock_needs_no_load() -> None:
    settings = _settings("alpha-load", data="embedded-household", attackers=("same",))
    balanced = {}
    for side in ("none", "clock"):
        split = alpha_load.load_side(settings, side, None, 0)
        known = read_sensitive(ATTACKERS["position"](), split.attack, split.test, 0)
        balanced[side] = known.reweighted
    assert balanced["none"] < 0.53 < 0.65 < balanced["clock"]


@pytest.mark.parametrize(
    ("network", "alphas", "budgets", "baselines"),
    [("unet", (0.5,), (), ()), ("code", (), (0.01,), ("fader", "fader+unet"))],
)
def test_attributes_study_takes_other_data_by_path(
    network: str,
    alphas: tuple[float, ...],
    budgets: tuple[float, ...],
    baselines: tuple[str, ...],
    tmp_path: Path,
) -> None:
    faces = tmp_path / "faces"
    faces.mkdir()
    for number in range(150):
        gender, race = number % 2, number // 2 % 2
        shade = (40 + 60 * gender, 80 + 90 * race, number % 50)
        name = f"{20 + number % 40}_{gender}_{race}_20170109{number:06d}.jpg"
        Image.new("RGB", (20, 20), shade).save(faces / name)
    settings = _settings(
        "attributes",
        data=(f"utkface:{faces},utility=race,sensitive=gender,side=20",),
        alphas=alphas,
        budgets=budgets,
        network=network,
        baselines=baselines,
        fader_steps=5,
        fader_width=2,
        width=2,
        noise=2,
        copying_steps=5,
        reading_steps=40,
        meeting_steps=5,
        steps=5,
        attacker_steps=10,
        code_steps=12,
    )
    out = tmp_path / "out"
    rows = run_seeds(
        STUDIES["attributes"], settings, seeds=[0], data_dir=None, out=out, report=lambda line: None
    )
    assert [row["filter"] for row in rows] == [network, *baselines]
    assert all(0 <= number <= 1 for row in rows for number in (row["utility"], row["attacker"]))
    row = rows[0]
    assert all((r["alpha"], r["budget"]) == (None, None) for r in rows if r["filter"] == "fader")
    assert row["data"] == "utkface"
    assert (row["alpha"], row["budget"]) == (*(alphas or (None,)), *(budgets or (None,)))
    assert row["utility_raw"] > 0.9
    assert row["utility_loss"] == pytest.approx(row["utility_raw"] - row["utility"])
    assert row["attacker_raw"] > 0.4
    assert "attacker_formula" not in row  # gender has none
    assert {path.name for path in out.iterdir()} == {
        "attributes-utkface-sheet.png",
        "attributes-curve.png",
        "filters",
        "pieces",
        "trials",
    }


def test_the_formula_of_thickness_is_one_of_the_attackers() -> None:
    settings = _settings(
        "attributes", attackers=("logistic",), reading_steps=150, attacker_steps=10
    )
    split = _few(load_private("embedded-mnist-thickness"), 1500)
    provider = attributes.provide(settings, split, 0)
    passing = SimpleNamespace(networks={"filter": _Pass()})
    row, _ = attributes.point_row(settings, passing, provider, split, 0)
    assert row["attacker_formula"] > 0.8 > row["attacker_logistic"]
    assert row["attacker"] == row["attacker_formula"] == provider.attacker


def test_error_of_loads_settles_near_its_budget() -> None:
    """It starts at the mean load, where next to nothing of it is known."""
    settings = _settings(
        "alpha-load",
        data="embedded-household",
        hidden=12,
        adversary_hidden=12,
        adversary_steps=1,
        batch=64,
        steps=250,
        attackers=("same",),
        attacker_steps=120,
    )
    split = alpha_load.load_side(settings, "none", None, 0)
    found = []
    for budget in (0.1, 0.4):
        objective = alpha_load.objective_of(settings, split.train, "loss", 1.0, budget)
        method = alpha_load.train_point(settings, split.train, objective, 0)
        error = normalised_error(split.train, released(method.networks["filter"], split.train, 0))
        assert 0.6 * budget < error < 1.6 * budget
        found.append(method)
    raw, low, high = (
        read_sensitive(settings.fresh()["same"], attack, test, 0).balanced
        for attack, test in (
            (split.attack, split.test),
            *(released_parts(method.networks["filter"], split, 1) for method in found),
        )
    )
    assert high < low < raw - 0.05


def test_the_digit_alone_is_the_floor_of_annotated_digits() -> None:
    split = load_private("embedded-amnist")
    known = alpha_images.digit_reading(split, 0)
    shares = torch.zeros(10, 2)
    for digit, sensitive in zip(split.test.utility, split.test.sensitive, strict=True):
        shares[digit, sensitive] += 1
    shares /= shares.sum(0)
    best = (1 + float((shares[:, 0] - shares[:, 1]).abs().sum()) / 2) / 2
    assert 0.5 < known.balanced < known.reweighted <= best + 1e-6
    assert known.reweighted > 0.55


def test_the_formula_measures_the_digits_own_row() -> None:
    split = _few(load_private("embedded-amnist"), 2000)
    reader = StudentCnn((1, 28, 28), 10)
    learn(reader, split.train.records, split.train.utility, steps=150, rate=2e-3, seed=0)
    assert accuracy(reader, split.test.records, split.test.utility) > 0.8
    formula = alpha_images._attackers(_settings("alpha-images", attackers=("prior",)), reader)
    reading = read_sensitive(formula["formula"], split.attack, split.test, 0)
    assert reading.balanced > 0.85, "the rule's own measure nearly gives the secret away"
    answers = InkFormula(reader, -0.9)(split.test.records, None)
    assert int(answers.max()) < 29 * 10


def test_releasing_changes_records_alone() -> None:
    data = load_private("embedded-household").test
    passed = released(_Pass(), data, 0)
    assert torch.equal(passed.records, data.records)
    assert passed.sensitive is data.sensitive
    assert normalised_error(data, passed) == 0
    doubled = replace(data, records=2 * data.records)
    assert normalised_error(data, doubled) == pytest.approx(1)
    silent = replace(data, records=torch.zeros_like(data.records))
    assert normalised_error(data, silent) == pytest.approx(1)


def test_reweighting_pays_where_a_class_is_common() -> None:
    generator = torch.Generator().manual_seed(0)
    sensitive = (torch.rand(4000, generator=generator) < 0.8).long()
    points = torch.randn(4000, 1, generator=generator) + sensitive[:, None].float()
    data = PrivateData("points", points, sensitive, sensitive, None, None, 2, 2, low=-9.0, high=9.0)
    reading = read_sensitive(
        ATTACKERS["logistic"](), data.take(slice(0, 2000)), data.take(slice(2000, 4000)), 0
    )
    assert reading.reweighted > reading.balanced + 0.1
    assert reading.leak > 0


@pytest.mark.parametrize(
    ("name", "changes", "text"),
    [
        ("alpha-images", {"points": ()}, "at least one"),
        ("alpha-images", {"points": ("1",)}, "point '1'"),
        ("alpha-load", {"points": ("x:1",)}, "point 'x:1'"),
        ("alpha-load", {"sides": ("moon",)}, "sides: 'moon' is unknown"),
        ("alpha-load", {"modes": ("x",)}, "modes: 'x' is unknown: choose of entropy, loss"),
        ("alpha-images", {"modes": ()}, "modes must name at least one of entropy, loss"),
        ("alpha-images", {"attackers": ("moon",)}, "attackers: 'moon' is unknown"),
        ("alpha-load", {"points": ("1:-0.2",)}, "error_budget=-0.2"),
        ("alpha-load", {"points": ("0:0.2",)}, "alpha=0.0"),
        ("alpha-load", {"penalty": -1.0}, "penalty=-1.0"),
        ("alpha-load", {"releaser": "rule"}, "releaser: 'rule' is unknown: choose of lstm, peaks"),
        ("alpha-load", {"attackers": ()}, "at least one"),
        ("attributes", {"alphas": (), "budgets": ()}, "at least one"),
        ("attributes", {"budgets": (-0.1,)}, "budget=-0.1"),
        ("attributes", {"network": "fader"}, "network: 'fader' is unknown"),
        ("attributes", {"baselines": ("unet",)}, "baselines: 'unet' is unknown"),
    ],
)
def test_settings_of_no_use_are_refused(name: str, changes: dict[str, Any], text: str) -> None:
    with pytest.raises((PrivatizerError, StudyError), match=text):
        _settings(name, **changes)


def test_a_class_that_the_attacker_never_met_is_no_obstacle() -> None:
    generator = torch.Generator().manual_seed(0)
    sensitive = torch.randint(2, (400,), generator=generator)
    points = torch.randn(400, 1, generator=generator) + 2 * sensitive[:, None].float()
    data = PrivateData("points", points, sensitive, sensitive, None, None, 2, 3, low=-9.0, high=9.0)
    half = [data.take(slice(0, 200)), data.take(slice(200, 400))]
    reading = read_sensitive(ATTACKERS["logistic"](), *half, 0)
    assert min(reading.balanced, reading.reweighted) > 0.75


def test_points_are_orders_and_weights() -> None:
    assert parse_points(["0.2:1.5", "inf:2"]) == [(0.2, 1.5), (math.inf, 2.0)]
