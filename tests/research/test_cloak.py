"""Cloak finds what a provider needs and masks the rest, with a substitute as with the provider."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.func import grad, vmap

from fedlens.models.classifiers import Mlp
from fedlens.privatizers.networks.information import gaussian_information_bound
from fedlens.privatizers.networks.masks import NoiseMap, masked, threshold_of
from fedlens.privatizers.private_data import PrivateData
from fedlens.privatizers.protocol import FILTER, Batch, PrivatizerError, named_weights
from fedlens.privatizers.training import Stage, train_privatizer
from fedlens_research.filters.black_box import Follower, ask, train_substitute
from fedlens_research.filters.cloak import (
    CloakObjective,
    CloakPrivatizer,
    covariance_factor,
    information_bound,
)

ENTRIES, NEEDED = 12, 3


def people(n: int, seed: int) -> PrivateData:
    """The utility is the sign of the sum of the first entries; the sensitive attribute is in the
    last one."""
    generator = torch.Generator().manual_seed(seed)
    records = torch.randn(n, ENTRIES, generator=generator)
    return PrivateData(
        name="made up",
        records=records,
        utility=(records[:, :NEEDED].sum(1) > 0).long(),
        sensitive=(records[:, -1] > 0).long(),
        side=None,
        owners=None,
        utility_classes=2,
        sensitive_classes=2,
        low=-9.0,
        high=9.0,
    )


def provider(seed: int = 0) -> nn.Module:
    """Knows the utility exactly: a margin on the sum of the needed entries."""
    net = nn.Linear(ENTRIES, 2)
    with torch.no_grad():
        net.weight.zero_()
        net.weight[1, :NEEDED] = 4.0
        net.bias.zero_()
    return net


def accuracy(method: CloakPrivatizer, data: PrivateData, net: nn.Module) -> float:
    noise = torch.randn(data.records.shape, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        answers = net(method.filter(data.records, noise)).argmax(1)
    return float((answers == data.utility).double().mean())


def trained_map(objective: CloakObjective, factor: Tensor | None = None) -> NoiseMap:
    noise = NoiseMap((ENTRIES,), 1.5, rho=-1.0)
    method = CloakPrivatizer(noise, provider(), objective, factor=factor)
    stages = [Stage("noise", {FILTER: 0.05}, 250)]
    train_privatizer(method, people(2000, 1), stages, batch=64, seed=0)
    return noise


@pytest.mark.parametrize("term", ["log_mean_var", "gaussian_mi"])
def test_noise_goes_where_the_provider_does_not_look(term: str) -> None:
    data = people(2000, 1)
    factor = covariance_factor(data.records, ENTRIES)
    objective = CloakObjective(0.1, term)  # type: ignore[arg-type]
    noise = trained_map(objective, factor)
    sigma = noise.sigma().detach()
    assert float(sigma[:NEEDED].max()) < 0.5 * float(sigma[NEEDED:].min())
    mask = masked(noise, threshold_of(sigma, 0.75), "zeros")
    assert mask.keep.tolist() == [True] * NEEDED + [False] * (ENTRIES - NEEDED)
    assert accuracy(CloakPrivatizer(mask, provider()), people(2000, 2), provider()) > 0.85


def test_more_weight_on_privacy_means_more_noise_and_a_smaller_bound() -> None:
    data = people(2000, 1)
    covariance = torch.cov(data.records.T)
    factor = covariance_factor(data.records, ENTRIES)
    bounds = [
        float(
            gaussian_information_bound(
                covariance,
                trained_map(CloakObjective(gamma, "gaussian_mi"), factor).sigma().detach(),
            )
        )
        for gamma in (0.01, 1.0)
    ]
    assert bounds[1] < 0.8 * bounds[0]


def test_the_trained_bound_is_the_reported_bound() -> None:
    data = people(500, 1)
    sigma = torch.linspace(0.3, 2.0, ENTRIES)
    whole = covariance_factor(data.records, ENTRIES)
    exact = float(gaussian_information_bound(torch.cov(data.records.T), sigma))
    assert float(information_bound(whole, sigma)) == pytest.approx(exact, rel=1e-4)
    assert float(information_bound(whole[:, -4:], sigma)) < exact  # a part of the variance only


def biased() -> nn.Module:
    """Expects entries that no one needs to be near 2: without them it always says 1."""
    net = provider()
    with torch.no_grad():
        net.weight[0, NEEDED:] = 3.0
        net.bias[1] = 2 * 3.0 * (ENTRIES - NEEDED)
    return net


def test_constants_are_learned_that_make_up_for_what_is_suppressed() -> None:
    data = people(2000, 1)
    data.records[:, NEEDED:] = 2.0 + 0.05 * data.records[:, NEEDED:]
    noise = NoiseMap((ENTRIES,), 1.0)
    with torch.no_grad():
        noise.rho[NEEDED:] = 2.0
    masks = {fill: masked(noise, 0.5, fill) for fill in ("zeros", "trained")}  # type: ignore[arg-type]
    frozen = {name: value.clone() for name, value in masks["trained"].named_buffers()}
    method = CloakPrivatizer(masks["trained"], biased())
    train_privatizer(method, data, [Stage("values", {FILTER: 0.05}, 200)], batch=64, seed=0)
    assert accuracy(CloakPrivatizer(masks["zeros"], biased()), data, biased()) < 0.6
    assert accuracy(method, data, biased()) > 0.9
    assert all(torch.equal(frozen[name], value) for name, value in masks["trained"].named_buffers())


def test_the_provider_never_changes() -> None:
    net = provider()
    before = [value.clone() for value in net.parameters()]
    method = CloakPrivatizer(NoiseMap((ENTRIES,)), net)
    train_privatizer(method, people(200, 1), [Stage("noise", {FILTER: 0.1}, 5)], batch=16, seed=0)
    assert all(torch.equal(one, two) for one, two in zip(before, net.parameters(), strict=True))


def test_a_user_at_a_time_is_the_same_gradient_as_alone() -> None:
    """Federated training takes each user's gradient with vmap; the privacy term is in each."""
    data = people(24, 1)
    factor = covariance_factor(data.records, 6)
    method = CloakPrivatizer(
        NoiseMap((ENTRIES,), rho=-1.0),
        provider(),
        CloakObjective(0.1, "gaussian_mi"),
        factor=factor,
    )
    weights = {
        k: {n: v.detach() for n, v in w.items()} for k, w in named_weights(method.networks).items()
    }
    noise = torch.randn(4, 6, ENTRIES, generator=torch.Generator().manual_seed(0))

    def loss(own: dict[str, Tensor], records: Tensor, utility: Tensor, draws: Tensor) -> Tensor:
        batch = Batch(records=records, utility=utility, sensitive=utility)
        return method.local_step({FILTER: own}, batch, draws).losses[FILTER]

    records, utility = data.records.reshape(4, 6, ENTRIES), data.utility.reshape(4, 6)
    each = vmap(grad(loss), in_dims=(None, 0, 0, 0))(weights[FILTER], records, utility, noise)
    for user in range(4):
        alone = grad(loss)(weights[FILTER], records[user], utility[user], noise[user])
        for name, value in alone.items():
            assert torch.allclose(each[name][user], value, atol=1e-5)


def test_a_substitute_of_another_kind_stands_in_for_a_provider_that_only_answers() -> None:
    data, target = people(3000, 1), provider()

    def answers(records: Tensor) -> Tensor:
        return target(records).argmax(1)

    other = Mlp(ENTRIES, 2, (32,))
    agreed = train_substitute(
        other,
        data.records,
        ask(answers, data.records),
        steps=400,
        batch=128,
        rate=0.01,
        generator=torch.Generator().manual_seed(0),
    )
    assert agreed > 0.93
    assert not any(value.requires_grad for value in other.parameters())
    noise = NoiseMap((ENTRIES,), 1.5, rho=-1.0)
    method = CloakPrivatizer(noise, other, CloakObjective(0.1))
    train_privatizer(method, data, [Stage("noise", {FILTER: 0.05}, 250)], batch=64, seed=0)
    mask = masked(noise, threshold_of(noise.sigma(), 0.75), "zeros")
    assert mask.keep.tolist() == [True] * NEEDED + [False] * (ENTRIES - NEEDED)
    assert accuracy(CloakPrivatizer(mask, target), people(2000, 2), target) > 0.85


def test_a_follower_keeps_a_substitute_true_where_a_filter_leads() -> None:
    """Far from all raw records a substitute knows nothing until it has asked there."""
    data, generator = people(3000, 1), torch.Generator().manual_seed(0)

    def answers(records: Tensor) -> Tensor:
        told = records[:, :NEEDED].sum(1).sin()
        return torch.stack([told, -told], 1).mul(2).softmax(1)

    said = ask(answers, data.records)
    other = Mlp(ENTRIES, 2, (32,))
    train_substitute(
        other, data.records, said, steps=300, batch=128, rate=0.01, generator=generator
    )
    noise = NoiseMap((ENTRIES,), 1.5, rho=-1.0)
    with torch.no_grad():
        noise.shift.fill_(2.0)
    follow = Follower(
        other,
        answers,
        data.records,
        said,
        queries=500,
        steps=200,
        rate=0.01,
        generator=generator,
    )

    @torch.no_grad()
    def apart(released: Tensor) -> float:
        return float((other(released).softmax(1) - answers(released)).abs().mean())

    fresh = people(1000, 2).records
    moved = noise(fresh, torch.randn(1000, ENTRIES, generator=generator)).detach()
    before, raw = apart(moved), apart(fresh)
    for _ in range(3):
        follow(noise)
    assert apart(moved) < before / 2
    assert apart(fresh) < raw + 0.05
    assert not any(value.requires_grad for value in other.parameters())


def test_probabilities_teach_a_substitute_too_and_logits_are_refused() -> None:
    records, target = people(200, 1).records, provider()
    soft = ask(lambda rows: target(rows).softmax(1), records)
    assert soft.shape == (200, 2)
    with pytest.raises(PrivatizerError, match="not logits"):
        ask(target, records)
    with pytest.raises(PrivatizerError, match="at least 10"):
        train_substitute(
            Mlp(ENTRIES, 2),
            records[:5],
            soft[:5],
            steps=1,
            batch=2,
            rate=0.1,
            generator=torch.Generator(),
        )


def test_a_report_is_of_the_batch() -> None:
    data = people(500, 1)
    noise = NoiseMap((ENTRIES,), 1.5)
    mask = masked(noise, 1.0, "zeros")
    batch, draws = data.batch(slice(None)), torch.zeros(500, ENTRIES)
    found = CloakPrivatizer(mask, provider()).report(batch, draws)
    assert found["utility_accuracy"] == 1.0
    assert found["suppression_ratio"] == 0.0
    assert found["mean_sigma"] == pytest.approx(float(noise.sigma().mean()), rel=1e-6)


def test_what_cannot_be_trained_is_refused() -> None:
    noise = NoiseMap((ENTRIES,))
    with pytest.raises(PrivatizerError, match="gamma=0"):
        CloakObjective(0.0)
    with pytest.raises(PrivatizerError, match="unknown"):
        CloakObjective(1.0, "vibes")  # type: ignore[arg-type]
    with pytest.raises(PrivatizerError, match="does not take records"):
        CloakPrivatizer(NoiseMap((7,)), provider())
    with pytest.raises(PrivatizerError, match="at least two classes"):
        CloakPrivatizer(noise, nn.Linear(ENTRIES, 1))
    with pytest.raises(PrivatizerError, match="needs factor"):
        CloakPrivatizer(noise, provider(), CloakObjective(1.0, "gaussian_mi"))
    with pytest.raises(PrivatizerError, match="infinite without noise"):
        CloakPrivatizer(
            NoiseMap((ENTRIES,), least=0.0),
            provider(),
            CloakObjective(1.0, "gaussian_mi"),
            factor=torch.ones(ENTRIES, 1),
        )
    with pytest.raises(PrivatizerError, match="rank=13"):
        covariance_factor(people(50, 1).records, 13)
    method = CloakPrivatizer(masked(noise, 1.0, "zeros"), provider())
    with pytest.raises(PrivatizerError, match="does not learn"):
        method.local_step({FILTER: {}}, people(4, 1).batch(slice(None)), torch.zeros(4, ENTRIES))
