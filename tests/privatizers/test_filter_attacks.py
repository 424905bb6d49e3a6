"""Attackers who have the filter find what its code lets through, and nothing where nothing is."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from fedlens.data.attributes import load_private
from fedlens.privatizers.attacks.attackers import ATTACKERS, INFORMED, AttackError
from fedlens.privatizers.attacks.attackers.decoding import CodeDecoder, drawn
from fedlens.privatizers.attacks.attackers.protocol import (
    EVERYTHING,
    RELEASE,
    WEIGHTS,
    knowledge_of,
)
from fedlens.privatizers.attacks.attackers.vectors import VectorReader
from fedlens.privatizers.attacks.filter_attack import QUICK, attack_filter, strongest
from fedlens.privatizers.attacks.targets import FilterTarget, target_of
from fedlens.privatizers.networks.filters import UNet
from fedlens.privatizers.networks.masks import MaskFilter
from fedlens.privatizers.networks.releasers import ConvReleaser
from fedlens.privatizers.private_data import PrivateData, Split
from fedlens.privatizers.training import train_identity

SHAPE = (1, 8, 8)
FAST = replace(QUICK, reader_steps=200, tree_rounds=20, network_steps=120, decoder_steps=60)


def pictures(n: int, seed: int) -> PrivateData:
    """Images of noise whose attribute is whether the left half is brighter than the right."""
    source = torch.Generator().manual_seed(seed)
    sensitive = torch.randint(0, 2, (n,), generator=source)
    records = 0.3 * torch.randn(n, *SHAPE, generator=source)
    side = 0.5 * (2 * sensitive - 1).float()[:, None, None, None]
    records[..., :4] += side
    records[..., 4:] -= side
    return PrivateData(
        "made up",
        records.clamp(-1, 1),
        torch.zeros_like(sensitive),
        sensitive,
        None,
        None,
        1,
        2,
        -1.0,
        1.0,
    )


def a_target(filter_: nn.Module, seed: int = 0) -> FilterTarget:
    return FilterTarget(filter_, pictures(2000, seed + 1), pictures(1000, seed + 2))


def a_releaser(scale: float, *, noisy: bool = True) -> ConvReleaser:
    """A code whose numbers are ``scale`` times what a fresh network makes of an image."""
    net = ConvReleaser(SHAPE, 4, code=6, noisy=noisy, output_noise_std=0.1)
    with torch.no_grad():
        net.encode.weight.mul_(scale)
    return net.eval()


class Leaky(nn.Module):
    """A releaser that hides well, but for one number of its code, which its decoder ignores."""

    def __init__(self) -> None:
        super().__init__()
        self.net = a_releaser(0.0)
        self.noise_shape = self.net.noise_shape
        with torch.no_grad():
            self.net.decode.weight[:, 0] = 0

    def channel(self, records: Tensor, noise: Tensor, choice: Tensor | None = None) -> Tensor:
        code = self.net.channel(records, noise)
        code[:, 0] += 8 * (records[..., :4].mean((1, 2, 3)) > 0)
        return code

    def forward(self, records: Tensor, noise: Tensor, choice: Tensor | None = None) -> Tensor:
        sent = self.net.decoded(self.channel(records, noise))
        return sent + 0.1 * noise[:, 6:].view_as(sent)


@pytest.mark.law("7: filters are judged by attackers who have them")
def test_a_filter_without_its_noise_is_caught() -> None:
    hiding, bare = (a_target(a_releaser(0.02, noisy=noisy)) for noisy in (True, False))
    (found,) = attack_filter(hiding, ["code"], effort=FAST)
    assert found.balanced < 0.6
    (caught,) = attack_filter(bare, ["code"], effort=FAST)
    assert caught.balanced > 0.93 and caught.nats_low > 0.4


@pytest.mark.law("7: filters are judged by attackers who have them")
def test_a_leaky_code_is_caught_where_releases_show_nothing() -> None:
    target = a_target(Leaky())
    code, residual = attack_filter(target, ["code", "residual"], effort=FAST)
    assert code.balanced > 0.97
    assert abs(residual.balanced - 0.5) < 0.08
    assert strongest([residual, code]) is code


class Scaled(nn.Module):
    """Sends images as they are, in numbers of another size."""

    noise_shape = (1,)

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, records: Tensor, noise: Tensor, choice: Tensor | None = None) -> Tensor:
        return records * self.scale


@pytest.mark.parametrize("scale", [1e-30, 1e30, 3e38])
def test_numbers_of_any_size_are_read(scale: float) -> None:
    found = attack_filter(a_target(Scaled(scale)), ["residual", "features"], effort=FAST)
    for one in found:
        assert one.balanced > 0.9, one


class Blinding(Scaled):
    """Puts one huge number into some records."""

    def forward(self, records: Tensor, noise: Tensor, choice: Tensor | None = None) -> Tensor:
        sent = super().forward(records, noise, choice).clone()
        sent[::100, 0, 0, 0] = 3e38
        return sent


@pytest.mark.parametrize("scale", [1.0, 1e-30])
def test_a_few_huge_numbers_hide_nothing_from_networks(scale: float) -> None:
    found = attack_filter(a_target(Blinding(scale)), ["residual", "same"], effort=FAST)
    for one in found:
        assert one.balanced > 0.9, one


@pytest.mark.law("7: filters are judged by attackers who have them")
def test_pure_noise_gives_every_attacker_a_coin() -> None:
    names = ["code", "decode", "residual", "features", "logistic"]
    found = attack_filter(a_target(a_releaser(0.0)), names, effort=FAST)
    assert [one.attacker for one in found] == names
    for one in found:
        assert abs(one.balanced - 0.5) < 0.08, one
        assert one.low <= one.balanced <= one.high
        assert one.nats_low < 0.01


def test_a_source_without_a_formula_leaves_it_out() -> None:
    said: list[str] = []
    target = a_target(a_releaser(0.0))
    (found,) = attack_filter(target, ["formula", "logistic"], effort=FAST, tell=said.append)
    assert found.attacker == "logistic"
    assert any(line.startswith("formula: left out") for line in said)
    with pytest.raises(AttackError, match="none of formula applies"):
        attack_filter(target, ["formula"], effort=FAST)


def test_more_releases_tell_more_unless_their_noise_repeats() -> None:
    net = a_releaser(0.25)
    net.repeats_noise = False
    target = a_target(net)
    one, ten = attack_filter(target, ["code"], releases=(1, 10), effort=FAST)
    assert (one.name, ten.name) == ("code", "code x10") and ten.releases == 10
    assert ten.balanced > one.balanced + 0.05
    net.repeats_noise = True
    again = a_target(net)
    repeated = again.codes(again.test, 5, 10).records
    assert torch.equal(repeated, again.codes(again.test, 5).records)
    same, repeats = attack_filter(again, ["code"], releases=(1, 10), effort=FAST)
    assert same.balanced == repeats.balanced == one.balanced
    keyless = replace(again, fresh=True)
    codes = [
        keyless.codes(keyless.test, 3, n).records - again.codes(again.test, 3).records
        for n in (1, 40)
    ]
    assert float(codes[0].abs().max()) < 1e-4
    assert 0.8 < float(codes[1].std()) < 1.2, "of forty draws the mean has next to no noise left"


class Turned(nn.Module):
    """A code whose noise is not added: each number of it is multiplied by a noisy sign."""

    noise_shape = (6,)
    repeats_noise = False

    def channel(self, records: Tensor, noise: Tensor, choice: Tensor | None = None) -> Tensor:
        code: Tensor = records.flatten(1)[:, :6] * torch.tanh(3 * noise)
        return code

    def forward(self, records: Tensor, noise: Tensor, choice: Tensor | None = None) -> Tensor:
        return self.channel(records, noise)


@pytest.mark.parametrize("kind", ["added", "turned"])
def test_the_mean_code_of_releases_has_the_law_of_a_mean_of_codes(kind: str) -> None:
    net: nn.Module = a_releaser(0.25) if kind == "added" else Turned()
    net.repeats_noise = False  # type: ignore[assignment]
    target = FilterTarget(net, pictures(2000, 0), pictures(2000, 1))
    assert target.affine == (kind == "added")
    means = target.codes(target.test, 3, 8).records
    singles = torch.stack([target.codes(target.test, 50 + draw).records for draw in range(8)])
    off = singles.mean(0) - singles.mean((0, 1))
    assert torch.allclose((means - means.mean(0)).std(0), off.std(0), rtol=0.1)
    assert torch.allclose(means.mean(0), singles.mean((0, 1)), atol=0.05)


@pytest.mark.thorough
def test_a_decoder_brings_codes_back_to_about_their_noise() -> None:
    split = load_private("embedded-mnist-thickness", None, 0)
    net = ConvReleaser((1, 28, 28), 4, code=8, output_noise_std=0.1)
    train_identity(net, split.train, steps=150, rate=5e-3, batch=128, seed=0)
    decoder = CodeDecoder.learn(net, split.attack.records, 0, steps=100, refine=6)
    source = torch.Generator().manual_seed(1)
    codes, sent = drawn(net, split.test.records[:150], source)
    first = replace(decoder, law=None).decode(sent)
    off, guessed = (
        float((one - codes).square().mean().sqrt()) for one in (decoder.decode(sent), first)
    )
    assert off < 1.0, "below the noise of the code, which is 1"
    assert off < guessed and float(codes.std()) > 2 * off


def test_who_learns_from_a_record_is_not_judged_on_another_draw_of_it() -> None:
    """Attributes are coin flips: who has seen a record's other draw would know its coin."""
    source = torch.Generator().manual_seed(0)
    codes = 5 * torch.randn(300, 20, generator=source)
    data = replace(
        pictures(300, 0), records=codes, sensitive=torch.randint(0, 2, (300,), generator=source)
    )
    many = data.take(torch.arange(300).repeat(8))
    noise = 0.1 * torch.randn(many.records.shape, generator=source)
    many = replace(many, records=many.records + noise, owners=torch.arange(300).repeat(8))
    fitted = VectorReader(steps=300, tree_rounds=30).fit(many, 0)
    fresh = replace(data, records=5 * torch.randn(2000, 20, generator=source)[:300])
    sure = fitted.log_probabilities(fresh.records).exp().max(1).values
    assert float(sure.mean()) < 0.95, "overconfident: it chose its epoch by records that it knew"


def test_what_only_the_spread_of_a_code_tells_is_read() -> None:
    """Two numbers agree in sign for one value and not for the other; alone they tell nothing."""
    source = torch.Generator().manual_seed(0)
    shared = torch.randn(3000, 1, generator=source)
    data = pictures(3000, 0)
    turned = shared * (2 * data.sensitive[:, None] - 1)
    codes = torch.cat([shared, turned, torch.zeros(3000, 4)], 1)
    codes = codes + 0.3 * torch.randn(codes.shape, generator=source)
    data = replace(data, records=codes, utility=(shared[:, 0] > 1).long(), utility_classes=2)
    fitted = VectorReader(steps=200, tree_rounds=20).fit(data.take(slice(0, 2000)), 0)
    guesses = fitted.log_probabilities(codes[2000:]).argmax(1)
    assert float((guesses == data.sensitive[2000:]).double().mean()) > 0.8


def test_what_each_knows_is_declared() -> None:
    assert knowledge_of(ATTACKERS["code"]()) == EVERYTHING
    assert knowledge_of(ATTACKERS["decode"]()) == WEIGHTS
    assert knowledge_of(ATTACKERS["trees"]()) == knowledge_of(object()) == RELEASE
    for name in ATTACKERS:
        assert knowledge_of(ATTACKERS[name]()).weights == (name in INFORMED)
    (found,) = attack_filter(a_target(a_releaser(0.0)), ["code"], effort=FAST)
    assert found.knows == "the code, weights, noise law" and found.records == 2000
    assert set(found.row()) >= {"attacker", "knows", "balanced", "low", "high", "nats", "releases"}


def test_a_filter_without_a_code_is_read_by_what_it_releases() -> None:
    net, lines = UNet(SHAPE, 2), list[str]()
    (found,) = attack_filter(
        a_target(net), ["code", "decode", "logistic"], effort=FAST, tell=lines.append
    )
    assert found.attacker == "logistic" and found.balanced > 0.97
    assert sum("shows no code" in line for line in lines) == 2
    with pytest.raises(AttackError, match="none of code applies"):
        attack_filter(a_target(net), ["code"], effort=FAST)
    with pytest.raises(AttackError, match="needs the filter"):
        ATTACKERS["decode"]().fit(pictures(100, 0), 0)


def test_of_a_mask_the_kept_pixels_are_read() -> None:
    keep = torch.zeros(SHAPE, dtype=torch.bool)
    keep[0, :2] = True
    mask = MaskFilter(torch.full(SHAPE, 0.2), keep, torch.zeros(SHAPE))
    (found,) = attack_filter(a_target(mask), ["code"], effort=FAST)
    assert found.balanced > 0.95


def test_the_attacker_gets_all_labelled_records_or_as_many_as_are_asked_for() -> None:
    split = Split(pictures(500, 1), pictures(300, 2), pictures(200, 3))
    net = a_releaser(0.0)
    assert len(target_of(net, split).known) == 800
    some = target_of(net, split, records=200).known
    assert torch.equal(some.records, split.attack.records[:200])
    most = target_of(net, split, records=400).known
    assert torch.equal(most.records[300:], split.train.records[:100])
