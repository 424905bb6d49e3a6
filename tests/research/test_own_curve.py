"""Curves over people's own records: every method, many sizes, attributes of three values."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fedlens.cli import main
from fedlens.foundation.errors import ExitStatus
from fedlens.privatizers.attacks.claims import ONE
from fedlens.privatizers.attacks.filter_attack import QUICK
from fedlens.privatizers.attacks.filter_files import (
    RecordUnits,
    load_filter,
    load_units,
    save_filter,
)
from fedlens.privatizers.attacks.gate import LOOKS
from fedlens.privatizers.classifiers import noise_shape_of
from fedlens.privatizers.export import release
from fedlens.privatizers.private_data import PrivateData, Split
from fedlens.store import open_store
from fedlens_research.tradeoff.measuring import FilterJudge
from fedlens_research.tradeoff.points import CurveJob, build_recipe, parse_operating_points
from fedlens_research.tradeoff.report import SEES

LEAST: dict[str, dict[str, Any]] = {
    "information": {
        "width": 2, "reading_steps": 3, "copying_steps": 2, "meeting_steps": 1, "steps": 2,
    },
    "cloak": {
        "provider_epochs": 1, "ratios": (0.0, 0.4), "steps": (3, 3), "reported": (0.4,),
        "value_steps": 2,
    },
    "alpha": {"width": 2, "reading_steps": 3, "copying_steps": 2, "steps": 2, "adversary_steps": 1},
}  # fmt: skip
POINTS = {"information": "0.5", "cloak": "0.4", "alpha": "1:1"}


def images(shape: tuple[int, int, int], values: int) -> PrivateData:
    source = torch.Generator().manual_seed(1)
    labels = torch.arange(60)
    return PrivateData(
        name="own", records=torch.rand(60, *shape, generator=source) * 2 - 1, utility=labels % 2,
        sensitive=labels % values, side=None, owners=None, utility_classes=2,
        sensitive_classes=values, low=-1.0, high=1.0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("channels", "side"), [(1, 16), (3, 20), (1, 28), (3, 32), (1, 48), (3, 64)]
)
@pytest.mark.parametrize("method", list(LEAST))
def test_every_method_takes_every_size(
    method: str, channels: int, side: int, tmp_path: Path
) -> None:
    """A filter is trained, kept, loaded, and answers alike, with a value more than two."""
    train = images((channels, side, side), 3)
    recipe = build_recipe(method, train, quick=True, changes=LEAST[method])
    points = parse_operating_points(method, [POINTS[method]])
    provider = recipe.provider(recipe.settings, train, 0)
    (trained,) = recipe.filters(CurveJob(recipe.settings, train, provider, points, 0))
    path = save_filter(trained.filter, train.shape, tmp_path / "f.safetensors")
    loaded, shape = load_filter(path)
    assert shape == train.shape and noise_shape_of(loaded) == noise_shape_of(trained.filter)
    noise = torch.Generator().manual_seed(5)
    found = release(loaded, train.records[:4], noise)
    assert torch.equal(found, release(trained.filter, train.records[:4], noise.manual_seed(5)))
    assert found.shape == (4, *train.shape) and bool(torch.isfinite(found).all())
    assert trained.reader is not None and trained.reader(found).shape == (4, 2)


def test_a_curve_claims_what_the_attack_of_its_file_will_look_at() -> None:
    """Else an honest filter fell: the attack reads near-duplicates by the likelihood too."""
    own = images((1, 16, 16), 2)
    recipe = build_recipe("alpha", own, quick=True, changes=LEAST["alpha"])
    points = parse_operating_points("alpha", [POINTS["alpha"]])
    provider = recipe.provider(recipe.settings, own, 0)
    (trained,) = recipe.filters(CurveJob(recipe.settings, own, provider, points, 0))
    names = ("likelihood", "code")
    judge = FilterJudge(
        Split(own, own, own), provider, names, 3, 3, None, 0, effort=QUICK, sees=SEES
    )
    claimed = set(judge.measure(trained).attacks)
    looked_at = {name if sees == ONE else f"{name}, {sees}" for name, sees in LOOKS if sees in SEES}
    assert claimed == looked_at


def a_folder(root: Path, people: int) -> None:
    """Bright above for dogs; the left edge tells which of three houses."""
    source = np.random.default_rng(0)
    rows = []
    for one in range(3 * people):
        kind, house = one % 2, one // 2 % 3
        pixels = source.integers(0, 60, (16, 16))
        pixels[:8] += 120 * kind
        pixels[:, :3] += 60 * house
        Image.fromarray(pixels.astype(np.uint8)).save(root / f"{one}.png")
        rows.append([f"{one}.png", ("cat", "dog")[kind], "abc"[house], f"p{one // 3}"])
    (root / "0.png").write_text("damaged")
    with (root / "people.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([["path", "kind", "house", "who"], *rows])


@pytest.mark.slow
def test_one_command_for_a_folder_from_records_to_released_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, out = tmp_path / "own", tmp_path / "curve"
    own.mkdir()
    a_folder(own, 60)
    columns = ["--utility", "kind", "--sensitive", "house", "--owner", "who"]
    data = ["--data", f"folder:{own}", *columns]
    quick = ["--quick", "--attackers", "logistic", "--points", "0.4", "--seeds", "0", "--json"]
    assert main(["privatizer", "curve", "--method", "cloak", *data, *quick, "--out", str(out)]) == 0
    printed = capsys.readouterr()
    said = [line for line in printed.err.splitlines() if "left out" in line]
    assert len(said) == 1 and "1 left out, no picture of a known kind" in said[0]
    (row,) = json.loads(printed.out.splitlines()[-1])["points"]
    assert row["utility_raw"] > 0.9 and row["reference"]["raw"]["logistic"]["mean"] > 0.9
    assert row["reference"]["prior"]["mean"] == pytest.approx(1 / 3)
    (kept,) = (out / "filters").iterdir()
    assert load_units(kept) == RecordUnits(1.0, ("cat", "dog"), ("a", "b", "c"))
    with open_store(out / "store.db") as store:
        (curve,) = store.privatizer_curves()
    assert curve.data == "folder,utility=kind,sensitive=house,owner=who"
    assert str(tmp_path) not in repr(curve), "no path enters the store"
    assert main(["privatizer", "apply", str(kept), str(own), str(tmp_path / "released")]) == 0
    assert len(list((tmp_path / "released").iterdir())) == 179
    attacked = ["privatizer", "attack", str(kept), *data, "--quick", "--attackers", "logistic"]
    assert main([*attacked, "--json"]) == ExitStatus.UNDECIDED, "a quick curve claims nothing"
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["strongest"]["balanced"] > 0.4, "three houses, and 60% of the pixels are left"
    # other pictures under the same names are measured anew
    Image.new("L", (16, 16), 9).save(own / "0.png")
    assert main(["privatizer", "curve", "--method", "cloak", *data, *quick, "--out", str(out)]) == 0
    assert len(list((out / "measured").iterdir())) == 4


@pytest.mark.slow
def test_own_series_have_a_curve(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = np.random.default_rng(0)
    with (tmp_path / "meters.csv").open("w", newline="") as stream:
        lines = csv.writer(stream)
        lines.writerow(["home", "family", *(f"h{hour}" for hour in range(8))])
        for one in range(90):
            load = 300 * (1 + one % 3) + 50 * source.random(8)
            lines.writerow([one, ("none", "small", "large")[one % 3], *load.round(1)])
    out = tmp_path / "curve"
    command = [
        "privatizer",
        "curve",
        "--method",
        "alpha",
        "--data",
        f"series:{tmp_path}/meters.csv",
    ]
    command += ["--sensitive", "family", "--owner", "home", "--quick", "--attackers", "logistic"]
    command += ["--points", "1:1", "--seeds", "0", "--json", "--out", str(out)]
    assert main(command) == 0
    (row,) = json.loads(capsys.readouterr().out.splitlines()[-1])["points"]
    assert (
        row["utility_measure"].startswith("1 - normalised")
        and row["reference"]["raw"]["logistic"]["mean"] > 0.9
    )
    (kept,) = (out / "filters").iterdir()
    assert load_units(kept).unit > 100
    target = str(tmp_path / "released.csv")
    assert main(["privatizer", "apply", str(kept), str(tmp_path / "meters.csv"), target]) == 0
    with Path(target).open() as stream:
        released = list(csv.DictReader(stream))
    assert len(released) == 90 and "family" not in released[0]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--data", "mnist-thickness", "--utility", "x"], "mnist-thickness has its own columns"),
        (["--data", "folder:.", "--utility", "a,b"], "has a comma or an equals sign"),
        (["--data", "folder:"], "folder needs a path"),
        (
            ["--data", "orl:.,64"],
            "'64' is no option; there are side=48: write orl:PATH,option=value",
        ),
        (["--data", "cifar100:.,sied=3"], "'sied=3' is no option"),
    ],
)
def test_wrong_columns_are_refused(
    flags: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["privatizer", "curve", "--method", "cloak", "--quick", "--out", str(tmp_path)]
    assert main([*command, *flags]) in (1, 2)
    error = capsys.readouterr().err
    assert message in error and len(error.strip().splitlines()) == 1
