"""Claims, likelihood ratios, controls and refusals: each against what can be computed by hand."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from fedlens.api.privatizer import apply, export, load
from fedlens.privatizers.attacks.attackers import AttackError
from fedlens.privatizers.attacks.attackers.likelihood import LikelihoodAttacker
from fedlens.privatizers.attacks.claims import BARE, FIFTY, ONE, TEN, Claims
from fedlens.privatizers.attacks.controls import (
    ANSWER,
    CHANCE,
    TRUE_USE,
    Control,
    dominated,
    known_by_value,
    read_controls,
    table_control,
)
from fedlens.privatizers.attacks.filter_attack import FilterAttack
from fedlens.privatizers.attacks.filter_files import load_claims, save_filter
from fedlens.privatizers.attacks.gate import Measured, check_claims
from fedlens.privatizers.attacks.structure import Verdict, check_structure, overall
from fedlens.privatizers.attacks.targets import FilterTarget, noise_covariance, one_moved
from fedlens.privatizers.networks.masks import MaskFilter
from fedlens.privatizers.networks.releasers import ConvReleaser
from fedlens.privatizers.private_data import PrivateData
from fedlens.privatizers.protocol import PrivatizerError

SHAPE = (1, 8, 8)
CLAIMS = Claims("made up", True, 6.0, {ONE: 0.57, TEN: 0.6}, 0.56, 0.9, 3)


def people(codes: torch.Tensor, sensitive: torch.Tensor) -> PrivateData:
    none = torch.zeros_like(sensitive)
    return PrivateData("codes", codes, none, sensitive, None, None, 1, 2, -9.0, 9.0)


def test_the_posterior_is_bayes_rule_over_known_codes_with_the_law_of_the_noise() -> None:
    source = torch.Generator().manual_seed(0)
    codes = torch.randn(60, 3, generator=source)
    known = people(codes, torch.arange(60) % 2)
    root = torch.tensor([[1.0, 0.0, 0.0], [0.4, 0.8, 0.0], [0.0, 0.3, 1.5]])
    law = (root @ root.T).double()
    fitted = LikelihoodAttacker().facing(law, 1.0).fit(known, 0)
    seen = torch.randn(5, 3, generator=source)
    found = fitted.log_probabilities(seen).exp()
    for row, code in enumerate(seen):
        away = (code - codes).double()
        far = (away @ torch.linalg.inv(law) * away).sum(1) / fitted.deviation**2
        weight = torch.exp(-far / 2)
        one = float(weight[1::2].sum() / weight.sum())
        assert float(found[row, 1]) == pytest.approx(one, abs=1e-3)
    assert fitted.deviation >= 1
    tenth = LikelihoodAttacker().facing(law, 10.0).fit(known, 0)
    assert tenth.deviation >= 1 / math.sqrt(10)


def test_two_codes_apart_by_so_much_are_told_apart_as_often_as_the_normal_law_says() -> None:
    source, distance = torch.Generator().manual_seed(1), 2.0
    sensitive = torch.arange(4000) % 2
    codes = torch.zeros(4000, 2)
    codes[:, 0] = distance * sensitive
    known = people(codes, sensitive)
    for releases in (1.0, 4.0):
        fitted = LikelihoodAttacker().facing(torch.eye(2).double(), releases).fit(known, 0)
        noisy = codes + torch.randn(codes.shape, generator=source) / math.sqrt(releases)
        right = (fitted.log_probabilities(noisy).argmax(1) == sensitive).double().mean()
        wanted = 0.5 * (1 + math.erf(distance * math.sqrt(releases) / 2 / math.sqrt(2)))
        assert float(right) == pytest.approx(wanted, abs=0.02)


def test_too_few_records_or_attributes_of_steps_are_refused() -> None:
    few = people(torch.randn(8, 2), torch.arange(8) % 2)
    with pytest.raises(AttackError, match="8 records are too few"):
        LikelihoodAttacker().fit(few, 0)
    steps = replace(few, records=torch.randn(8, 2, 1), utility=torch.zeros(8, 2).long(),
                    sensitive=torch.arange(16).view(8, 2) % 2)  # fmt: skip
    with pytest.raises(AttackError, match="once a record"):
        LikelihoodAttacker().fit(steps, 0)


def test_the_law_of_a_mask_s_noise_is_what_it_was_built_with() -> None:
    keep = torch.zeros(SHAPE, dtype=torch.bool)
    keep[0, 0, :3] = True
    mask = MaskFilter(torch.full(SHAPE, 0.3), keep, torch.zeros(SHAPE))
    law = noise_covariance(mask, torch.zeros(SHAPE))
    assert (
        law is not None
        and law.shape[0]
        == mask.channel(torch.zeros(1, *SHAPE), torch.zeros(1, *mask.noise_shape)).shape[1]
    )
    assert law.diagonal()[law.diagonal() > 0].tolist() == pytest.approx([0.09] * 3, rel=1e-4)


def test_a_near_duplicate_differs_in_one_entry_by_one_grey_level() -> None:
    source = torch.Generator().manual_seed(0)
    records = torch.rand(50, *SHAPE, generator=source) * 2 - 1
    records[0] = 1.0
    moved = one_moved(records, -1.0, 1.0, source) - records
    assert ((moved != 0).flatten(1).sum(1) == 1).all()
    assert moved.flatten(1).abs().amax(1).tolist() == pytest.approx([2 / 255] * 50, rel=1e-3)
    assert float(moved[0].min()) < 0, "what is white cannot be whiter"


@pytest.mark.parametrize(("fresh", "left"), [(True, 0.1), (False, 1.0)])
def test_ten_near_duplicates_have_a_tenth_of_the_noise_unless_they_share_it(
    fresh: bool, left: float
) -> None:
    net = ConvReleaser(SHAPE, 2, code=4).eval()
    records = torch.rand(2000, *SHAPE, generator=torch.Generator().manual_seed(0)) * 2 - 1
    data = PrivateData("p", records, torch.zeros(2000).long(), torch.arange(2000) % 2,
                       None, None, 1, 2, -1.0, 1.0)  # fmt: skip
    target = FilterTarget(net, data, data, fresh=fresh)
    clean = target.clean_codes(data).records
    for copies, variance in ((1, 1.0), (10, left)):
        off = target.alike_codes(data, 5, copies).records - clean
        assert float(off.square().mean()) == pytest.approx(variance, rel=0.1)


# ---- what is to be had without a filter


def uses() -> PrivateData:
    """Use 1 has the attribute in nine of ten, use 0 in one of ten."""
    utility = torch.arange(2000) % 2
    sensitive = torch.where(torch.arange(2000) // 2 % 10 == 0, 1 - utility, utility)
    records = utility[:, None].float() + torch.zeros(2000, 3)
    return PrivateData("uses", records, utility, sensitive, None, None, 2, 2, 0.0, 1.0)


def test_who_knows_the_use_reads_what_hangs_on_it_and_an_answer_that_is_wrong_gives_less() -> None:
    data = uses()
    chance, true_use, answer = read_controls(data, data, 0, steps=60)
    assert (chance.sent, true_use.sent, answer.sent) == (CHANCE, TRUE_USE, ANSWER)
    assert chance.secret == 0.5 and chance.use is None
    assert true_use.secret == pytest.approx(0.9) and true_use.use == 1.0
    assert answer == replace(true_use, sent=ANSWER), "the record shows its use"
    wrong = torch.where(torch.arange(2000) // 20 % 2 == 0, data.utility, 1 - data.utility)
    half = table_control("half of the answers turned", wrong, data, 0)
    assert half.use == 0.5 and half.secret == pytest.approx(0.5, abs=0.05)


def test_a_use_that_tells_nothing_is_read_at_chance_and_not_below() -> None:
    data = replace(uses(), sensitive=torch.arange(2000) // 2 % 2)
    guesses = known_by_value(data.utility, data, 0)
    assert (guesses == data.sensitive).double().mean() < 0.5, "by tenths of what is balanced"
    nothing = table_control("use", data.utility, data, 0)
    assert (nothing.secret, nothing.low) == (0.5, 0.5) and nothing.high >= 0.5


def test_a_filter_that_the_answer_beats_on_both_is_dominated() -> None:
    answer = Control(ANSWER, 0.57, 0.55, 0.59, 0.83)
    assert dominated(0.58, 0.80, answer)
    assert not dominated(0.56, 0.80, answer), "it tells less"
    assert not dominated(0.58, 0.84, answer), "it keeps more"
    assert not dominated(0.58, None, answer) and not dominated(0.58, 0.8, None)


def test_a_series_is_its_own_use_and_has_no_answer() -> None:
    data = replace(uses(), utility=torch.zeros(2000).long(), utility_classes=1)
    assert [one.sent for one in read_controls(data, data, 0)] == [CHANCE]


# ---- claims


def reading(balanced: float, *, half: float = 0.01, sees: str = ONE) -> FilterAttack:
    ends = balanced - half, balanced + half
    return FilterAttack("code", "all", 1, 900, balanced, *ends, 0.6, 0.0, 0.0, 0.0, sees=sees)


@pytest.mark.parametrize(
    ("attack", "use", "verdict"),
    [
        (reading(0.575), 0.9, Verdict.HOLDS),
        (reading(0.60), 0.9, Verdict.FALLS),
        (reading(0.57), 0.87, Verdict.FALLS),
        (reading(0.57, half=0.08), 0.9, Verdict.UNKNOWN),
        (reading(0.75, half=0.08), 0.9, Verdict.FALLS),
        (reading(0.64, sees=TEN), 0.9, Verdict.FALLS),
    ],
)
def test_readings_are_held_against_claims(
    attack: FilterAttack, use: float, verdict: Verdict
) -> None:
    assert overall(check_claims(CLAIMS, Measured((attack,), use))) == verdict


def test_without_claims_it_cannot_tell_and_without_noise_nobody_is_asked() -> None:
    assert overall(check_claims(None, Measured((reading(0.5),), 1.0))) == Verdict.UNKNOWN
    bare = replace(CLAIMS, reads={BARE: 0.5, FIFTY: 0.7}, use=None)
    (only,) = check_claims(bare, Measured((reading(0.9, sees=BARE),), 1.0))
    assert only.verdict == Verdict.UNKNOWN


def test_claims_travel_in_the_file_and_old_files_have_none(tmp_path: Path) -> None:
    net = ConvReleaser(SHAPE, 2, code=3)
    path = save_filter(net, SHAPE, tmp_path / "one.safetensors", claims=CLAIMS)
    assert load_claims(path) == CLAIMS == load(path).claims
    assert load_claims(save_filter(net, SHAPE, tmp_path / "old.safetensors")) is None


@pytest.mark.parametrize(
    "change",
    [
        {"reads": {ONE: "much"}},
        {"reads": {ONE: 7}},
        {"data": None, "reads": 3},
        {"seed": math.inf},
        {},
    ],
)
def test_claims_that_are_none_are_refused_in_words(
    tmp_path: Path, change: dict[str, object]
) -> None:
    path = save_filter(ConvReleaser(SHAPE, 2, code=3), SHAPE, tmp_path / "one.safetensors")
    with safe_open(path, framework="pt") as content:
        known = json.loads(content.metadata()["filter"])
        tensors = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118
    known["claims"] = {**CLAIMS.row(), **change} if change else {"data": "x"}
    save_file(tensors, path, {"filter": json.dumps(known)})
    with pytest.raises(PrivatizerError, match="its claims cannot be read"):
        load_claims(path)


# ---- what is refused before it is let near records


@pytest.mark.law("7: filters are judged by attackers who have them")
@pytest.mark.parametrize(
    ("network", "claims", "words"),
    [
        (ConvReleaser(SHAPE, 2, code=3, noisy=False), None, "noise: none"),
        (ConvReleaser(SHAPE, 2, code=3, noisy=False), CLAIMS, "noise: none"),
        (ConvReleaser(SHAPE, 2, code=3, capacity=8.0), CLAIMS, "8.000 nats.*claimed 6.000"),
        (
            ConvReleaser(SHAPE, 2, code=3, noisy=False),
            replace(CLAIMS, noise=False),
            "certificate: none",
        ),
    ],
)
def test_a_filter_without_noise_or_beyond_its_bound_is_refused_unless_told(
    tmp_path: Path, network: ConvReleaser, claims: Claims | None, words: str
) -> None:
    path = save_filter(network, SHAPE, tmp_path / "one.safetensors", claims=claims)
    np.save(tmp_path / "in.npy", np.zeros((3, 8, 8), np.uint8))
    with pytest.raises(PrivatizerError, match=f"{words}.*--unsafe"):
        apply(path, tmp_path / "in.npy", tmp_path / "out.npy")
    with pytest.raises(PrivatizerError, match=words):
        export(path)
    assert not (tmp_path / "out.npy").exists() and not path.with_suffix(".pt2").exists()
    assert apply(path, tmp_path / "in.npy", tmp_path / "out.npy", unsafe=True).records == 3


def test_a_sound_filter_passes_with_and_without_claims(tmp_path: Path) -> None:
    for claims in (None, CLAIMS):
        net = ConvReleaser(SHAPE, 2, code=3, choices=1).eval()
        assert overall(check_structure(net, SHAPE, claims)) == Verdict.HOLDS
        path = save_filter(net, SHAPE, tmp_path / "one.safetensors", claims=claims)
        assert export(path).file.path.exists()
