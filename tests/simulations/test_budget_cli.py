"""``fedlens budget``, ``budget bayesian`` and ``calibrate``, as a planner calls them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedlens.cli import main
from fedlens.foundation.errors import ExitStatus

SCHEDULE = ("--sampling-rate", "0.01", "--noise-multiplier", "1", "--rounds", "1000")
DELTA = ("--delta", "1e-5")
TINY_BAYESIAN = (
    "--clipping-norm",
    "1",
    "--sampling-rate",
    "0.01",
    "--noise-multiplier",
    "1",
    "--rounds",
    "100",
)


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main([*words, "--json"]) == ExitStatus.DONE
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(words) in (ExitStatus.FAILED, ExitStatus.WRONG_USE)
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return captured.err


@pytest.fixture
def norms(tmp_path: Path) -> Path:
    path = tmp_path / "norms.json"
    path.write_text(json.dumps(np.linspace(0.01, 0.2, 64).tolist()))
    return path


def test_a_budget_names_both_accountants_and_takes_the_smaller(capsys) -> None:
    found = answer(capsys, "budget", *SCHEDULE, *DELTA)
    assert found["rdp"]["epsilon"] == pytest.approx(2.10137, abs=0.002)  # Opacus and dp-accounting
    assert found["tight"]["epsilon"] == pytest.approx(1.8282367, abs=2e-6)
    assert found["epsilon"] == min(found["rdp"]["epsilon"], found["tight"]["epsilon"])
    assert found["order"] == found["rdp"]["order"] > 1
    assert "adding or removing one user" in found["statement"]
    assert "1000 rounds, each user drawn with probability 0.01" in found["statement"]


def test_one_shot_releases_add_to_the_cost_and_to_the_statement(capsys) -> None:
    alone = answer(capsys, "budget", *SCHEDULE, *DELTA)
    both = answer(capsys, "budget", *SCHEDULE, *DELTA, "--release", "class counts=5")
    assert both["epsilon"] > alone["epsilon"]
    assert "class counts released once" in both["statement"]


def test_delta_at_an_epsilon_is_the_inverse(capsys) -> None:
    found = answer(capsys, "budget", *SCHEDULE, *DELTA, "--at-epsilon", "1.8282367")
    assert found["at_epsilon"]["delta"] == pytest.approx(1e-5, rel=1e-4)


def test_without_noise_there_is_no_guarantee(capsys) -> None:
    schedule = ("--sampling-rate", "0.01", "--noise-multiplier", "0", "--rounds", "10")
    found = answer(capsys, "budget", *schedule, *DELTA)
    assert (found["epsilon"], found["rdp"]["epsilon"], found["tight"]["epsilon"]) == (None,) * 3
    assert found["statement"].startswith("No guarantee")


def test_what_if_tables_are_monotone_and_drawn(capsys, tmp_path: Path) -> None:
    picture = tmp_path / "plots" / "budget.png"
    words = ("--users", "10000", "--what-if", "--plot", str(picture))
    found = answer(capsys, "budget", *SCHEDULE, *DELTA, *words)
    assert set(found["what_if"]) == {"rounds", "noise multiplier", "users"}
    for name, growing in (("rounds", True), ("noise multiplier", False), ("users", False)):
        lines = found["what_if"][name]
        values, costs = ([line[key] for line in lines] for key in ("value", "epsilon"))
        assert values == sorted(values) and len(values) >= 5
        assert costs == sorted(costs, reverse=not growing)
    assert Image.open(picture).width > 600


def test_the_bayesian_figures_stand_beside_differential_privacy(capsys, norms: Path) -> None:
    words = ("budget", "bayesian", "--norms", str(norms), *TINY_BAYESIAN, *DELTA)
    found = answer(capsys, *words)
    assert found["as_published"]["epsilon"] > 0
    assert found["corrected"]["epsilon"] <= found["sound"]["epsilon"] <= found["dp"]["epsilon"]
    assert 0 < found["corrected"]["confidence_failure"] < 1e-5
    for name in ("as_published", "corrected", "sound"):
        assert found[name]["order"] >= 1 or found[name]["method"] == "dp"
    assert "panel" not in found
    panel = answer(capsys, *words, "--panel")
    assert panel["panel"]["epsilon"] < panel["corrected"]["epsilon"]


def test_the_percentile_curve_grows_towards_everybody(capsys, norms: Path, tmp_path: Path) -> None:
    picture = tmp_path / "curve.png"
    words = ("--users", "1000", "--plot", str(picture))
    found = answer(
        capsys, "budget", "bayesian", "--norms", str(norms), *TINY_BAYESIAN, *DELTA, *words
    )
    shares = [point["share"] for point in found["percentiles"]]
    costs = [point["epsilon"] for point in found["percentiles"]]
    assert shares == sorted(shares) and costs == sorted(costs)
    assert costs[-1] <= found["dp"]["epsilon"]
    for point in found["percentiles"]:
        assert point["meaningful"] == ((1 - point["share"]) * 1000 >= 1 - 1e-9)
    assert Image.open(picture).width > 300


def test_gamma_and_orders_are_the_planner_s(capsys, norms: Path) -> None:
    words = ("budget", "bayesian", "--norms", str(norms), *TINY_BAYESIAN, *DELTA)
    found = answer(capsys, *words, "--orders", "2,4,8,16,32", "--gamma", "1.1102230246251565e-16")
    assert found["corrected"]["order"] in (2, 4, 8, 16, 32)
    assert found["corrected"]["confidence_failure"] == pytest.approx(100 * 5 * 1.11e-16, rel=1e-3)
    assert found["corrected"]["epsilon"] == pytest.approx(0.36499755, rel=1e-6)  # the authors' code


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--rounds", "10", *DELTA), "--sampling-rate, --noise-multiplier"),
        ((*SCHEDULE, "--delta", "0"), "delta"),
        ((*SCHEDULE, "--delta", "1"), "delta"),
        ((*SCHEDULE, "--delta", "nan"), "delta"),
        ((*SCHEDULE[:4], "--rounds", "0", *DELTA), "count"),
        (("--sampling-rate", "1.5", *SCHEDULE[2:], *DELTA), "sampling_rate"),
        (("--sampling-rate", "0.5", *SCHEDULE[2:], *DELTA, "--sampler", "none"), "sampling_rate"),
        ((*SCHEDULE[:2], "--noise-multiplier", "-1", *SCHEDULE[4:], *DELTA), "noise_multiplier"),
        ((*SCHEDULE, *DELTA, "--users", "0"), "--users"),
        ((*SCHEDULE, *DELTA, "--release", "counts"), "NAME=Z"),
        ((*SCHEDULE, *DELTA, "--release", "counts=many"), "NAME=Z"),
        ((*SCHEDULE, *DELTA, "--at-epsilon", "-1"), "epsilon"),
    ],
)
def test_a_schedule_that_cannot_be_priced_is_refused_by_name(capsys, words, said) -> None:
    assert said in refusal(capsys, "budget", *words)


@pytest.mark.parametrize(
    ("content", "extra", "said"),
    [
        ("not json", (), "not JSON"),
        ('{"a": 1}', (), "list of numbers"),
        ('["0.1", "0.2", "0.3"]', (), "list of numbers"),
        ("[0.1, 1.2, 0.3]", (), "clipping_norm"),
        ("[0.1, -0.2, 0.3]", (), "norms"),
        ("[0.1, NaN, 0.3]", (), "norms"),
        ("[0.1, 0.2]", (), "3"),
        ("[]", (), "norms"),
        ("[0.1, 0.2, 0.3]", ("--orders", "0:4"), "--orders"),
        ("[0.1, 0.2, 0.3]", ("--orders", "a"), "--orders"),
        ("[0.1, 0.2, 0.3]", ("--gamma", "0.7"), "gamma"),
        ("[0.1, 0.2, 0.3]", ("--gamma", "1e-6"), "delta"),
        ("[0.1, 0.2, 0.3]", ("--rounds", "0"), "rounds"),
    ],
)
def test_norms_that_cannot_be_used_are_refused(capsys, tmp_path, content, extra, said) -> None:
    path = tmp_path / "norms.json"
    path.write_text(content)
    words = ("budget", "bayesian", "--norms", str(path), *TINY_BAYESIAN, *DELTA, *extra)
    assert said in refusal(capsys, *words)


def test_a_file_of_norms_that_is_not_there_is_named(capsys, tmp_path) -> None:
    missing = str(tmp_path / "none.json")
    words = ("budget", "bayesian", "--norms", missing, *TINY_BAYESIAN, *DELTA)
    assert missing in refusal(capsys, *words)


def test_calibrated_noise_keeps_the_budget_and_no_less_would(capsys) -> None:
    target = ("--epsilon", "1", *DELTA, "--sampling-rate", "0.01", "--rounds", "10000")
    found = answer(capsys, "calibrate", *target)
    assert found["epsilon"] <= 1
    assert found["noise_multiplier"] <= 3.8560  # dp-accounting's PLD asks for 3.8559
    assert found["rdp"]["noise_multiplier"] <= 4.1406 + 1e-4  # Opacus asks for 4.1406
    less = str(0.999 * found["noise_multiplier"])
    schedule = ("--sampling-rate", "0.01", "--noise-multiplier", less, "--rounds", "10000", *DELTA)
    assert answer(capsys, "budget", *schedule)["epsilon"] > 1


def test_calibrated_rounds_keep_the_budget_and_one_more_would_not(capsys) -> None:
    mechanism = ("--sampling-rate", "0.01", "--noise-multiplier", "4")
    found = answer(capsys, "calibrate", "--epsilon", "1", *DELTA, *mechanism)
    assert found["rounds"] > found["rdp"]["rounds"] > 1000
    for rounds, within in ((found["rounds"], True), (found["rounds"] + 1, False)):
        cost = answer(capsys, "budget", *mechanism, "--rounds", str(rounds), *DELTA)["epsilon"]
        assert (cost <= 1) == within


def test_a_budget_too_small_for_a_single_round(capsys) -> None:
    mechanism = ("--sampling-rate", "1", "--noise-multiplier", "0.5")
    found = answer(capsys, "calibrate", "--epsilon", "0.1", *DELTA, *mechanism)
    assert found["rounds"] == 0


@pytest.mark.parametrize("extra", [(), ("--rounds", "5", "--noise-multiplier", "2")])
def test_calibration_wants_one_of_rounds_and_noise(capsys, extra) -> None:
    words = ("calibrate", "--epsilon", "1", *DELTA, "--sampling-rate", "0.1", *extra)
    assert "--rounds" in refusal(capsys, *words)


@pytest.mark.parametrize("epsilon", ["0", "-1", "nan", "inf"])
def test_no_budget_is_refused(capsys, epsilon) -> None:
    words = ("calibrate", "--epsilon", epsilon, *DELTA, "--sampling-rate", "0.1", "--rounds", "5")
    assert "epsilon" in refusal(capsys, *words)
