"""The report on a privatizer: small real curves, what is certified, files, refusals."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from fedlens.cli import main
from fedlens.data.attributes import load_private
from fedlens.privatizers.attacks.attackers.formula import formula_of
from fedlens.privatizers.attacks.filter_files import load_filter, save_filter
from fedlens.privatizers.networks.filters import DenseFilter, LinearFilter, UNet
from fedlens.privatizers.networks.masks import MaskFilter
from fedlens.privatizers.networks.releasers import ConvReleaser, LstmReleaser
from fedlens.privatizers.private_data import Split
from fedlens.privatizers.protocol import PrivatizerError
from fedlens.store import open_store
from fedlens_research.loaders.mixture import mixture_joint
from fedlens_research.tradeoff.certified import certify
from fedlens_research.tradeoff.figures import LABEL, Curve, CurvePoint
from fedlens_research.tradeoff.measuring import (
    AttackFigures,
    FilterFigures,
    FilterJudge,
    balanced_accuracy,
    least_sum_of,
)
from fedlens_research.tradeoff.points import OperatingPoint, TrainedFilter, parse_operating_points
from fedlens_research.tradeoff.report import CurvePlan, run_curve

SMALL: dict[str, dict[str, Any]] = {
    "information": {"width": 2, "reading_steps": 60, "meeting_steps": 5, "steps": 20},
    "cloak": {"provider_epochs": 1, "ratios": (0.0, 0.5), "steps": (20, 20), "reported": (0.5,)},
    "alpha": {"reading_steps": 60, "copying_steps": 20, "steps": 20, "adversary_steps": 1},
}
SERIES = {"hidden": 8, "adversary_hidden": 8, "meeting_steps": 5, "steps": 15}


def a_plan(out: Path, **changes: Any) -> CurvePlan:
    fields: dict[str, Any] = {
        "method": "information",
        "data": "mixture:0.4",
        "out": out,
        "points": ("0.5",),
        "attackers": ("logistic",),
        "quick": True,
        "changes": {"reading_steps": 100, "steps": 100},
        "attack_records": 800,
        "test_records": 600,
    }
    return CurvePlan(**fields | changes)


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> tuple[Curve, Path]:
    """A linear filter at two places, two seeds."""
    out = tmp_path_factory.mktemp("points")
    return run_curve(a_plan(out, points=("0.8", "0.1"), seeds=(0, 1))), out


def test_a_point_has_what_was_promised(points: tuple[Curve, Path]) -> None:
    curve, out = points
    rows = curve.rows()
    assert [row["alpha"] for row in rows] == [0.1, 0.8]
    for row in rows:
        assert row["method"] == "information" and row["seeds"] == [0, 1]
        assert 0 <= row["utility"] <= 1 and row["latency_ms_p50"] > 0
        for figures in row["sensitive"].values():
            assert 0 <= figures["low"] <= figures["mean"] <= figures["high"] <= 1
            assert figures["std"] >= 0
            assert figures["leak_low"] <= figures["leak"] <= figures["leak_high"]
        assert all(Path(plot).exists() for plot in row["plots"])
        assert row["label"] == LABEL == "simulation only: trained and measured on raw data"
    assert json.loads((out / "points.json").read_text()) == rows


def test_attackers_that_look_at_nothing_are_lines_of_reference(
    points: tuple[Curve, Path],
) -> None:
    reference = points[0].rows()[0]["reference"]
    assert reference["prior"]["mean"] == pytest.approx(0.5)
    assert reference["raw"]["logistic"]["mean"] > 0.99
    assert "prior" not in points[0].rows()[0]["sensitive"]


def test_means_and_deviations_are_over_seeds(points: tuple[Curve, Path]) -> None:
    place = points[0].places[0]
    values = [one.attacks["logistic"].balanced for one in place.seeds]
    row = points[0].rows()[0]["sensitive"]["logistic"]
    assert row["mean"] == pytest.approx(sum(values) / 2)
    assert row["std"] == pytest.approx(abs(values[0] - values[1]) / math.sqrt(2))


def test_the_leak_found_stays_below_what_is_certified(points: tuple[Curve, Path]) -> None:
    """The bound is of the whole record; no attacker on the secret may pass it."""
    for row in points[0].rows():
        assert row["certified"]["kind"] == "gaussian-log-det"
        for figures in row["sensitive"].values():
            assert figures["leak_low"] <= row["certified"]["record_nats"]


def test_a_report_goes_on_where_it_was(
    points: tuple[Curve, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is trained again; another place is trained alone."""
    curve, out = points
    trained: list[OperatingPoint] = []
    measure = FilterJudge.measure

    def counted(self: FilterJudge, one: TrainedFilter) -> FilterFigures:
        trained.append(one.point)
        return measure(self, one)

    monkeypatch.setattr(FilterJudge, "measure", counted)
    again = run_curve(a_plan(out, points=("0.8", "0.1"), seeds=(0, 1)))
    assert trained == [] and again == curve
    more = run_curve(a_plan(out, points=("0.8", "0.5"), seeds=(0,)))
    assert (
        trained == [OperatingPoint(alpha=0.5)]
        and more.places[1].seeds[0] == curve.places[1].seeds[0]
    )


def test_other_settings_are_not_taken_for_these(points: tuple[Curve, Path]) -> None:
    curve, out = points
    other = run_curve(a_plan(out, points=("0.8",), changes={"reading_steps": 100, "steps": 101}))
    assert other.places[0].seeds[0] != curve.places[1].seeds[0]


def test_a_file_that_was_cut_short_is_measured_again(tmp_path: Path) -> None:
    first = run_curve(a_plan(tmp_path))
    for path in (tmp_path / "measured").iterdir():
        path.write_text(path.read_text()[:50])
    again = run_curve(a_plan(tmp_path))
    assert again.places[0].seeds[0].attacks == first.places[0].seeds[0].attacks


@pytest.mark.parametrize(
    ("method", "data", "point", "changes", "certified"),
    [
        (
            "information",
            "embedded-mnist-thickness",
            "0.9",
            SMALL["information"],
            "gaussian-capacity",
        ),
        ("cloak", "embedded-mnist-greater5", "0.5", SMALL["cloak"], "gaussian-log-det"),
        ("alpha", "embedded-amnist", "1:1.5", SMALL["alpha"], "gaussian-capacity"),
        ("alpha", "embedded-household", "1:0.7", SERIES, "none"),
    ],
)
def test_every_method_gives_a_curve(
    tmp_path: Path, method: str, data: str, point: str, changes: dict[str, Any], certified: str
) -> None:
    more = {"attack_records": 300, "test_records": 300, "changes": changes}
    curve = run_curve(a_plan(tmp_path, method=method, data=data, points=(point,), **more))
    (row,) = curve.rows()
    assert row["certified"]["kind"] == certified
    assert not row["certified"]["released_is_differentially_private"]
    assert (
        set(row["sensitive"]) >= {"logistic"} and 0 <= row["sensitive"]["logistic"]["frozen"] <= 1
    )
    series = data == "embedded-household"
    assert (row["utility_fresh"] is None) == (row["bound_K_nats"] is None) == series
    assert ("position" in row["reference"]) == ("side-information" in row["reference"]) == series
    with_formula = ("embedded-amnist", "embedded-mnist-thickness")
    assert ("formula" in row["sensitive"]) == (data in with_formula)
    for plot in row["plots"]:
        with Image.open(plot) as image:
            assert min(image.size) > 100
    (kept,) = (tmp_path / "filters").iterdir()
    assert load_filter(kept)[1] == load_private(data).test.shape
    assert (row["fairness"]["before"] is None) == series


def test_a_mask_s_bound_is_of_what_is_kept_and_grows_as_noise_falls() -> None:
    records = torch.randn(500, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    keep = torch.zeros(1, 8, 8, dtype=torch.bool)
    keep[0, 0, :2] = True
    bounds = [
        certify(MaskFilter(torch.full((1, 8, 8), s), keep, torch.zeros(1, 8, 8)), records).nats
        for s in (2.0, 0.5)
    ]
    covariance = torch.cov(records.flatten(1)[:, :2].double().T)
    exact = 0.5 * math.log(float(torch.linalg.det(torch.eye(2) + covariance / 4)))
    assert bounds[0] == pytest.approx(exact, rel=1e-6)
    assert bounds[1] is not None and bounds[0] is not None and bounds[1] > bounds[0]


def test_without_noise_nothing_is_certified() -> None:
    keep, zero = torch.ones(1, 8, 8, dtype=torch.bool), torch.zeros(1, 8, 8)
    records = torch.randn(50, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    assert certify(MaskFilter(zero, keep, zero), records).nats is None
    assert certify(UNet((1, 8, 8), 2), records).nats is None
    assert certify(ConvReleaser((1, 8, 8), 2, code=3, noisy=False), records).nats is None
    assert certify(ConvReleaser((1, 8, 8), 2, code=3), records).nats is not None


FAR = {"filter": '{"kind": "LinearFilter", "arguments": {"dim": 1}, "shape": [Infinity]}'}
FILTERS: dict[str, tuple[Callable[[], torch.nn.Module], tuple[int, ...]]] = {
    "unet": (lambda: UNet((1, 9, 8), 2, noise=1, limits=(-1.0, 1.0)), (1, 9, 8)),
    "dense": (lambda: DenseFilter((1, 8, 9), 5, noise=2, residual=False), (1, 8, 9)),
    "linear": (lambda: LinearFilter(3), (3,)),
    "conv": (lambda: ConvReleaser((1, 8, 8), 2, code=3), (1, 8, 8)),
    "lstm": (lambda: LstmReleaser(hidden=4, layers=2, low=0.0, high=2.0, steps=5), (5, 1)),
    "output_noise_std": (
        lambda: LstmReleaser(hidden=4, layers=1, steps=5, level=0.4, output_noise_std=0.1),
        (5, 1),
    ),
    "mask": (
        lambda: MaskFilter(
            torch.full((1, 8, 8), 0.3), torch.eye(8).bool()[None], torch.ones(1, 8, 8), trained=True
        ),
        (1, 8, 8),
    ),
}


@pytest.mark.parametrize("name", FILTERS)
def test_a_kept_filter_does_what_it_did(name: str, tmp_path: Path) -> None:
    build, shape = FILTERS[name]
    net = build().eval()
    loaded, found = load_filter(save_filter(net, shape, tmp_path / "filters" / "one.safetensors"))
    generator = torch.Generator().manual_seed(3)
    records = torch.randn(4, *shape, generator=generator)
    noise = torch.randn(4, *net.noise_shape, generator=generator)  # type: ignore[misc]
    assert found == shape and torch.equal(loaded(records, noise), net(records, noise))


def test_a_file_that_is_no_filter_is_refused_in_words(tmp_path: Path) -> None:
    for content in (b"", b"nonsense", b"PK\x03\x04"):
        (tmp_path / "one.safetensors").write_bytes(content)
        with pytest.raises(PrivatizerError, match="holds no filter"):
            load_filter(tmp_path / "one.safetensors")
    known = {"kind": "Evil", "arguments": {}, "shape": [1]}
    for metadata in (None, {"filter": json.dumps(known)}, {"filter": "{"}, FAR):
        save_file({"one": torch.zeros(1)}, tmp_path / "two.safetensors", metadata)
        with pytest.raises(PrivatizerError, match="holds no filter"):
            load_filter(tmp_path / "two.safetensors")


def test_k_is_the_information_of_the_labels() -> None:
    data = load_private("mixture:0.4").train
    joint = mixture_joint(0.4)
    exact = float((joint * (joint / 0.25).log()).sum())
    assert least_sum_of(data) == pytest.approx(exact, abs=0.01)
    assert least_sum_of(load_private("embedded-household").train) is None


def test_the_interval_of_an_attack_covers_it_and_narrows_with_records() -> None:
    data = load_private("mixture:0.4").test
    answers = (data.records[:, 0] > 0.5).long()
    wide, narrow = (
        balanced_accuracy(answers[:count], data.take(slice(0, count)), 0) for count in (200, 8000)
    )
    assert all(low <= middle <= high for middle, low, high in (wide, narrow))
    assert narrow[2] - narrow[1] < (wide[2] - wide[1]) / 3
    assert narrow[1] <= 0.2 <= narrow[2]  # the use is the secret of one in five at k = 0.4


def test_the_stroke_formula_reads_thickness_from_raw_images() -> None:
    split = load_private("embedded-mnist-thickness")
    small = Split(split.train, split.attack.take(slice(0, 2000)), split.test.take(slice(0, 500)))

    class Told(torch.nn.Module):
        """Says of every image that it is one digit: the width alone is left."""

        def forward(self, records: torch.Tensor) -> torch.Tensor:
            return torch.zeros(len(records), 10)

    attacker = formula_of("embedded-mnist-thickness", Told())
    assert attacker is not None
    fitted = attacker.fit(small.attack, 0)
    answers = fitted.log_probabilities(small.test.records).argmax(1)
    assert balanced_accuracy(answers, small.test, 0)[0] > 0.75
    assert formula_of("orl", Told()) is None


def test_the_strongest_is_an_attacker_that_looks() -> None:
    weak = AttackFigures(0.6, 0.5, 0.7, 0.6, 0.1, 0.0, 0.2, 0.5)
    blind = AttackFigures(0.9, 0.8, 1.0, 0.9, 0.5, 0.4, 0.6)
    place = CurvePoint(None, [FilterFigures(1.0, 1.0, {"prior": blind, "trees": weak})])
    assert place.strongest == "trees" and place.leak == 0.1


def test_an_attacker_worse_than_the_prior_proves_nothing() -> None:
    poor = AttackFigures(0.5, 0.4, 0.6, 0.5, -0.2, -0.3, -0.1, 0.5)
    assert CurvePoint(None, [FilterFigures(1.0, 1.0, {"trees": poor})]).leak == 0


@pytest.mark.parametrize(
    ("method", "points", "words"),
    [
        ("information", ["1.5"], "alpha=1.5"),
        ("information", ["1:2"], "a number in"),
        ("information", ["much"], "'much'"),
        ("cloak", ["1"], "something has to be sent"),
        ("cloak", ["-0.1"], "suppression ratio"),
        ("alpha", ["0:1"], "alpha=0.0 must be above 0"),
        ("alpha", ["1:-1"], "weight=-1.0"),
        ("alpha", ["1:x"], "order and a weight"),
        ("fader", ["1"], "no curve"),
        ("cloak", [], "at least one"),
    ],
)
def test_points_that_cannot_be_are_refused(method: str, points: list[str], words: str) -> None:
    with pytest.raises(PrivatizerError, match=words):
        parse_operating_points(method, points)


def test_points_are_sorted_and_each_there_once() -> None:
    assert parse_operating_points("cloak", ["0.9", "0.4", "0.90"]) == [
        OperatingPoint(suppression_ratio=0.4),
        OperatingPoint(suppression_ratio=0.9),
    ]
    assert parse_operating_points("alpha", ["2"])[0].row() == {"alpha": 2.0, "lambda": 1.0}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--method", "cloak", "--data", "mixture:0.4"), "methods that have: information"),
        (("--method", "cloak", "--data", "nowhere"), "there is no data set 'nowhere'"),
        (("--method", "alpha", "--points", "0"), "above 0"),
        (("--method", "alpha", "--attackers", "prior"), "always there"),
        (("--method", "alpha", "--seeds", "x"), "whole numbers"),
        (("--method", "information", "--data", "embedded-household"), "records are series"),
    ],
)
def test_wrong_use_is_said_in_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    status = main(["privatizer", "curve", "--quick", "--out", str(tmp_path), *arguments])
    errors = capsys.readouterr().err
    assert status == 2 and words in errors and errors.count("\n") == 1


def test_the_command_prints_a_table_and_ends_with_the_list(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real data, real training; only the number of steps is less."""
    from fedlens_research.tradeoff import points as recipes

    monkeypatch.setitem(recipes.QUICK, "attributes", {"steps": 40, "reading_steps": 60})
    out = tmp_path / "curve"
    chosen = ["--method", "information", "--data", "mixture:0.4", "--quick", "--out", str(out)]
    status = main(["privatizer", "curve", *chosen, "--attackers", "logistic", "--json"])
    printed = capsys.readouterr().out.strip().splitlines()
    (point,) = json.loads(printed[-1])["points"]
    assert status == 0 and point["alpha"] == 0.5 and "mean" in point["sensitive"]["logistic"]
    assert any(line.split()[:2] == ["point", "utility"] for line in printed)
    assert LABEL in printed

    with open_store(out / "store.db") as store:
        (stored,) = store.privatizer_curves()
    raw, filtered = stored.points
    assert raw.is_raw and {one.attacker for one in raw.attacks} == {"prior", "logistic", "formula"}
    assert (filtered.alpha, filtered.utility) == (0.5, point["utility"])
    (logistic,) = (one for one in filtered.attacks if one.attacker == "logistic")
    assert logistic.mean == point["sensitive"]["logistic"]["mean"]
    assert stored.label == LABEL
    sent = {one.sent: (one.secret, one.use) for one in stored.controls}
    told = point["without_filter"]
    assert "the answer alone" in sent
    assert sent == {name: (one["secret"], one["use"]) for name, one in told.items()}

    (kept,) = (out / "filters").iterdir()
    for kind, suffix in (("torch", ".pt2"), ("onnx", ".onnx")):
        assert main(["privatizer", "export", str(kept), "--kind", kind, "--json"]) == 0
        made = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
        assert Path(made["path"]) == kept.with_suffix(suffix) and made["difference"] < 1e-4


def test_exporting_what_is_no_filter_is_wrong_use(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "one.safetensors").write_bytes(b"nonsense")
    assert main(["privatizer", "export", str(tmp_path / "one.safetensors")]) == 2
    assert "holds no filter" in capsys.readouterr().err
    assert main(["privatizer", "export", str(tmp_path / "two.safetensors")]) == 2
    assert "there is no such file" in capsys.readouterr().err
