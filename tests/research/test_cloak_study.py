"""The study of Cloak, small: rows say what was measured, and its parts are right on their own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fedlens.data.attributes import load_private
from fedlens.foundation.tables import Row
from fedlens.privatizers.attacks.claims import ONE
from fedlens.privatizers.attacks.filter_attack import USUAL
from fedlens.privatizers.networks.information import gaussian_information_bound
from fedlens.privatizers.networks.masks import MaskError, NoiseMap
from fedlens.privatizers.private_data import Split
from fedlens_research.filters.cloak import CloakPrivatizer
from fedlens_research.framework.errors import StudyError
from fedlens_research.framework.study import run_seeds
from fedlens_research.lenet import LeNet5
from fedlens_research.papers import STUDIES
from fedlens_research.papers.cloak import COLUMNS
from fedlens_research.papers.cloak_judging import raw_row, sigma_of_bound
from fedlens_research.papers.cloak_training import (
    CAUTIOUS,
    CloakSettings,
    CloakTraining,
    train_path,
)


def settings() -> CloakSettings:
    found = STUDIES["cloak"].settings(quick=True)
    assert isinstance(found, CloakSettings)
    return replace(
        found,
        source="embedded-mnist-greater5",
        protected="embedded-mnist-thickness",
        provider_epochs=6,
        ratios=(0.0, 0.4, 0.7),
        steps=(60, 30, 60),
        reported=(0.4, 0.7),
        settle_steps=20,
        value_steps=40,
        substitute_steps=80,
        follow_steps=8,
        follow_queries=300,
        attackers=("logistic",),
        attack_records=1000,
        index_records=200,
        code_steps=60,
    )


def some(*arguments: Any) -> Split:
    """The first half of a source's train and test part, and a fifth of the attack part."""
    whole = load_private(*arguments)
    parts = ((whole.train, 2500), (whole.attack, 1000), (whole.test, 1000))
    return Split(*(part.take(slice(0, many)) for part, many in parts))


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Row], Path]:
    """The whole study, of which readers of kept pixels take most: here they see some of the digits,
    one draw of a record's noise, and one release, of which alone the tests speak."""
    out = tmp_path_factory.mktemp("cloak")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedlens_research.papers.cloak.load_private", some)
        patch.setattr("fedlens.privatizers.attacks.gate.USUAL", replace(USUAL, draws=1, scored=1))
        patch.setattr("fedlens.privatizers.attacks.gate.LOOKS", (("code", ONE),))
        found = run_seeds(
            STUDIES["cloak"], settings(), seeds=(0,), data_dir=None, out=out, report=lambda _: None
        )
    return found, out


def one(rows: list[Row], **wanted: object) -> Row:
    found = [row for row in rows if all(row.get(key) == value for key, value in wanted.items())]
    assert len(found) == 1, wanted
    return found[0]


def number(row: Row, name: str) -> float:
    value = row[name]
    assert isinstance(value, int | float), (name, value)
    return float(value)


def test_there_is_a_row_for_each_fill_ratio_and_box(rows: tuple[list[Row], Path]) -> None:
    found, _ = rows
    assert len(found) == 1 + 2 * 2 * 4 + 2 * 2
    for box in ("white", "black"):
        for ratio in (0.4, 0.7):
            trained = one(found, box=box, fill="trained", path_ratio=ratio)
            assert number(trained, "suppressed") == pytest.approx(ratio, abs=0.01)
            assert set(COLUMNS) <= set(trained)
            assert one(found, box=box, fill="noise", path_ratio=ratio)["suppressed"] == 0.0


def test_the_provider_keeps_its_use_where_little_is_suppressed(
    rows: tuple[list[Row], Path],
) -> None:
    found, _ = rows
    raw = one(found, box="raw")
    some = one(found, box="white", fill="trained", path_ratio=0.4)
    assert number(raw, "accuracy") > 0.85
    assert number(some, "loss_points") < 5
    lost = 100 * (number(raw, "accuracy") - number(some, "accuracy"))
    assert number(some, "loss_points") == pytest.approx(lost)


def test_suppressing_more_bounds_the_information_more(rows: tuple[list[Row], Path]) -> None:
    found, _ = rows
    some, more = (one(found, box="white", fill="zeros", path_ratio=ratio) for ratio in (0.4, 0.7))
    assert number(more, "bound_nats") < number(some, "bound_nats")
    assert number(more, "bound_nats") > 0


@pytest.mark.parametrize(
    ("source", "theirs"), [("mnist-greater5", 0.9929), ("npz:faces.npz,utility=gender", None)]
)
def test_the_paper_s_accuracy_stands_beside_its_own_digits_alone(
    source: str, theirs: float | None
) -> None:
    judge = SimpleNamespace(
        settings=replace(settings(), source=source),
        data=SimpleNamespace(test=SimpleNamespace(records=None)),
        attack_part=None,
        raw_accuracy=0.8,
        base=lambda *head: {"accuracy": head[-1]},
        fairness=lambda _: {},
        attacks=lambda *_: {},
    )
    row = raw_row(judge)  # type: ignore[arg-type]
    assert row["paper_accuracy"] == theirs and row["accuracy"] == 0.8


def test_attackers_see_both_kinds_of_images(rows: tuple[list[Row], Path]) -> None:
    found, _ = rows
    more = one(found, box="white", fill="trained", path_ratio=0.7)
    assert number(more, "attack_retrained") > number(more, "attack_frozen") - 0.02
    assert (
        0.1 < number(more, "attack_retrained") < number(one(found, box="raw"), "attack_retrained")
    )
    assert number(more, "leak_at_least") > 0


def test_uniform_noise_has_the_bound_of_what_it_stands_beside(
    rows: tuple[list[Row], Path],
) -> None:
    found, _ = rows
    mask = one(found, box="white", fill="trained", path_ratio=0.7)
    uniform = one(found, box="uniform", fill="as trained", path_ratio=0.7)
    assert uniform["bound_nats"] == mask["bound_nats"]
    assert number(uniform, "sigma") > 0


def test_kept_pixels_are_read_as_what_they_are(rows: tuple[list[Row], Path]) -> None:
    for ratio in (0.4, 0.7):
        row = one(rows[0], box="white", fill="trained", path_ratio=ratio)
        assert number(row, "code_reader") > 0.5, "of ten digits"
        assert row["code_records"] == 3500, "all that are not tested on"


def test_the_index_is_of_noise_alone_too_and_latency_stands_beside_the_service_s(
    rows: tuple[list[Row], Path],
) -> None:
    """The paper states its index of what has noise and is not suppressed, and of uniform noise."""
    indexed = {(row["box"], row["fill"]) for row in rows[0] if "ite_style_loss" in row}
    assert {("white", "noise"), ("white", "trained"), ("uniform", "as noise")} <= indexed
    timed = [row for row in rows[0] if "ms" in row]
    assert timed and all(row["fill"] == "trained" for row in timed)
    assert all(float(row["ms"]) > 0 and float(row["service_ms"]) > 0 for row in timed)


def test_pictures_are_drawn(rows: tuple[list[Row], Path]) -> None:
    _, out = rows
    assert {path.name for path in out.iterdir()} == {
        "curves.png",
        "filters",
        "pieces",
        "sheet-0.4.png",
        "sheet-0.7.png",
        "trials",
    }


def test_the_noise_of_a_bound_is_found() -> None:
    source = torch.Generator().manual_seed(0)
    covariance = torch.cov(torch.randn(5, 40, generator=source).double())
    for bound in (0.1, 3.0, 50.0):
        sigma = sigma_of_bound(covariance, bound)
        reached = gaussian_information_bound(covariance, torch.full((5,), sigma))
        assert float(reached) == pytest.approx(bound, rel=1e-5)


def test_paths_that_lead_nowhere_are_refused() -> None:
    good = settings()
    with pytest.raises(StudyError, match="rising"):
        replace(good, ratios=(0.0, 0.7, 0.4))
    with pytest.raises(StudyError, match=r"0\.5.*not among"):
        replace(good, reported=(0.5,))
    with pytest.raises(StudyError, match="follow_every=0"):
        replace(good, follow_every=0)
    for share in (0.0, 1.5):
        with pytest.raises(StudyError, match="black_share"):
            replace(good, black_share=share)
    with pytest.raises(StudyError, match="attackers: 'moon' is unknown"):
        replace(good, attackers=("moon",))
    with pytest.raises(MaskError, match=r"most=0\.0001"):
        replace(good, most=1e-4)


def test_the_provider_is_asked_again_and_again_while_a_filter_learns() -> None:
    changed = replace(settings(), follow_every=20)
    training = CloakTraining(changed, load_private("embedded-mnist-greater5").train, 0)
    method = CloakPrivatizer(NoiseMap(training.data.shape), LeNet5((1, 28, 28), 2))
    asked: list[torch.nn.Module] = []
    training.train(method, 0.01, 50, 1.0, asked.append)  # type: ignore[arg-type]
    assert asked == [method.networks["filter"]] * 3, "before the first step, after 20 and 40"


def test_a_map_on_a_substitute_takes_its_share_of_the_steps_and_shifts_slowly() -> None:
    """On the provider itself every step is taken, and the shift moves as fast as the noise."""
    changed = replace(
        settings(), ratios=(0.0,), steps=(40,), reported=(0.0,), black_share=0.25, follow_every=1
    )
    training = CloakTraining(changed, load_private("embedded-mnist-greater5").train, 0)
    network = LeNet5((1, 28, 28), 2, generator=training.generator(1))
    asked: list[torch.nn.Module] = []
    ((_, slow),) = train_path(training, network, asked.append)  # type: ignore[arg-type]
    assert len(asked) == 1 + 10, "before the first step and after each of a quarter of 40"
    ((_, fast),) = train_path(training, network)
    assert float(slow.shift_unit) == pytest.approx(CAUTIOUS)
    assert float(fast.shift_unit) == 1.0
    assert 0 < float(slow.mu().abs().max()) < float(fast.mu().abs().max()) / 4
