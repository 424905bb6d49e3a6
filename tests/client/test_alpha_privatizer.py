"""The alpha-MI releaser: closed forms of any order, the right gradient, users at once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import grad, vmap

from fedlens.models.classifiers import ConvClassifier, Mlp
from fedlens.privatizers.alpha import ADVERSARY, STEEPEST, AlphaObjective, AlphaPrivatizer, Mode
from fedlens.privatizers.networks.adversaries import CodeAdversary, LstmAdversary
from fedlens.privatizers.networks.filters import LinearFilter
from fedlens.privatizers.networks.releasers import ConvReleaser, LstmReleaser
from fedlens.privatizers.private_data import PrivateData
from fedlens.privatizers.protocol import Batch, PrivatizerError, draw_noise, named_weights
from fedlens.privatizers.training import Stage, train_privatizer

ORDERS = (0.2, 0.5, 1.0, 2.0, 5.0, 20.0, math.inf)
JOINT = torch.tensor([[3.0, 1.0], [2.0, 4.0]], dtype=torch.float64)
"""Tenths of p(s, z); with p(z) uniform, so that two answers are a batch."""


def arimoto_conditional_entropy(joint: Tensor, order: float) -> Tensor:
    """H_a(S|Z) in nats of a table [S, Z], as Arimoto 1977 writes it."""
    if order == 1:
        return -(joint * (joint / joint.sum(0)).log()).sum()
    if order == math.inf:
        return -joint.max(0).values.sum().log()
    return order / (1 - order) * (joint**order).sum(0).pow(1 / order).sum().log()


def _cells() -> Tensor:
    """The label of each cell (s, z), in the order of the flattened table."""
    return torch.tensor([0, 0, 1, 1])


def _posterior(joint: Tensor, order: float = 1.0) -> Tensor:
    """Log-probabilities [2, 2] of s for each z, tilted to the power ``order``."""
    if order == math.inf:
        best = joint.T.argmax(1)
        return torch.nn.functional.one_hot(best, 2).double().clamp_min(1e-300).log()
    tilted = joint.T**order
    return (tilted / tilted.sum(1, keepdim=True)).log()


@pytest.mark.parametrize("order", ORDERS)
def test_entropy_of_posteriors_is_arimotos(order: float) -> None:
    terms = AlphaObjective(order).log_terms(_posterior(JOINT), torch.zeros(2, dtype=torch.int64))
    found, _ = AlphaObjective(order).uncertainty(terms, torch.ones(2, dtype=torch.float64))
    expected = arimoto_conditional_entropy(JOINT / 10, order)
    assert float(found) == pytest.approx(float(expected), abs=1e-12)


@pytest.mark.parametrize("order", [order for order in ORDERS if order != 20])
def test_figures_are_the_oracles(order: float, privatizer_oracles) -> None:
    table = privatizer_oracles["arimoto"]["T1_2x2_asym"]["H_alpha_S_given_Z"]
    name = "inf" if order == math.inf else f"{order:g}"
    objective = AlphaObjective(order)
    terms = objective.log_terms(_posterior(JOINT), torch.zeros(2, dtype=torch.int64))
    found, _ = objective.uncertainty(terms, torch.ones(2, dtype=torch.float64))
    assert float(found) == pytest.approx(table[name], abs=1e-9)


@pytest.mark.parametrize("order", ORDERS)
def test_least_loss_of_labels_is_the_same_entropy(order: float) -> None:
    objective = AlphaObjective(order, mode="loss")
    tilted = _posterior(JOINT, order)
    answers = torch.stack([tilted[0], tilted[1], tilted[0], tilted[1]])
    terms = objective.log_terms(answers, _cells())
    found, _ = objective.uncertainty(terms, JOINT.flatten())
    expected = float(arimoto_conditional_entropy(JOINT / 10, order))
    assert float(found) == pytest.approx(expected, abs=1e-9)
    if objective.tilts and order <= STEEPEST:  # a posterior is tilted so by itself
        torch.testing.assert_close(objective.tilted(_posterior(JOINT)), tilted)
    if order in (0.5, 2.0):  # no other posterior brings it lower
        for shift in (-0.1, 0.1):
            worse = (answers + torch.tensor([0.0, shift], dtype=torch.float64)).log_softmax(-1)
            more, _ = objective.uncertainty(objective.log_terms(worse, _cells()), JOINT.flatten())
            assert float(more) > float(found)


@pytest.mark.parametrize("order", [0.5, 1.0, 2.0, 5.0])
def test_loss_mode_has_the_gradient_of_the_entropy(order: float) -> None:
    """Envelope theorem: with the adversary at its optimum and held still, dH/dθ is exact."""
    logits = JOINT.flatten().log().requires_grad_()
    joint = logits.softmax(0)
    exact = torch.autograd.grad(
        arimoto_conditional_entropy(joint.reshape(2, 2), order), logits, retain_graph=True
    )[0]
    tilted = _posterior(JOINT, order)
    labelled = torch.stack([tilted[0], tilted[1], tilted[0], tilted[1]])
    objective = AlphaObjective(order, mode="loss")
    value, _ = objective.uncertainty(objective.log_terms(labelled, _cells()), joint)
    ours = torch.autograd.grad(value, logits, retain_graph=True)[0]
    torch.testing.assert_close(ours, exact)
    believed = _posterior(JOINT)
    doubt = AlphaObjective(order)
    cells = torch.stack([believed[0], believed[1], believed[0], believed[1]])
    other, _ = doubt.uncertainty(doubt.log_terms(cells, _cells()), joint)
    theirs = torch.autograd.grad(other, logits)[0]
    assert not torch.allclose(theirs, exact, rtol=0.1)


@pytest.mark.parametrize("order", [0.5, 1.0, 2.0, 20.0, math.inf])
def test_no_order_lets_the_adversary_give_up_the_rarer_label(order: float) -> None:
    """It would leave the releaser with nothing to hide from: see the module."""
    source = torch.Generator().manual_seed(0)
    sensitive = (torch.rand(600, generator=source) < 0.25).long()
    records = 2.0 * sensitive[:, None] + torch.randn(600, 4, generator=source)
    utility = torch.zeros(600, dtype=torch.int64)
    data = PrivateData("points", records, utility, sensitive, None, None, 1, 2, -9.0, 9.0)
    method = AlphaPrivatizer(
        LinearFilter(4, generator=source),
        Mlp(4, 2, (32,), generator=source),
        AlphaObjective(order, 1.0, "loss"),
    )
    train_privatizer(method, data, [Stage("meeting", {ADVERSARY: 0.02}, 150)], batch=64, seed=0)
    said = method.networks[ADVERSARY](method.filter(records, _noise(method, 600)))
    assert float((said.argmax(1) == sensitive)[sensitive == 1].double().mean()) > 0.5
    weights = named_weights(method.networks)
    batch = Batch(records, data.utility, sensitive)
    loss = method.local_step(weights, batch, _noise(method, 600)).losses["filter"]
    slopes = torch.autograd.grad(loss, list(weights["filter"].values()), allow_unused=True)
    assert any(slope is not None and float(slope.abs().max()) > 1e-6 for slope in slopes)


@pytest.mark.parametrize("mode", ["entropy", "loss"])
def test_orders_beside_one_are_near_shannon(mode: Mode) -> None:
    answers = torch.randn(50, 3, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    labels = torch.arange(50) % 3
    values = []
    for order in (0.999, 1.0, 1.00005, 1.001):
        objective = AlphaObjective(order, mode=mode)
        values.append(
            float(objective.uncertainty(objective.log_terms(answers, labels), torch.ones(50))[0])
        )
    assert values[1] == values[2]
    assert values[0] == pytest.approx(values[1], abs=3e-3)
    assert values[3] == pytest.approx(values[1], abs=3e-3)


def _series_method(objective: AlphaObjective, side: int = 3) -> tuple[AlphaPrivatizer, Batch]:
    source = torch.Generator().manual_seed(2)
    method = AlphaPrivatizer(
        LstmReleaser(hidden=5, layers=2, steps=6),
        LstmAdversary(1, 2, hidden=4, layers=1, side=side),
        objective,
    )
    batch = Batch(
        records=torch.rand(12, 6, 1, generator=source),
        utility=torch.zeros(12, 6, dtype=torch.int64),
        sensitive=torch.randint(2, (12, 6), generator=source),
        side=torch.rand(12, side, generator=source),
    )
    return method, batch


def _image_method(objective: AlphaObjective) -> tuple[AlphaPrivatizer, Batch]:
    source = torch.Generator().manual_seed(3)
    method = AlphaPrivatizer(
        ConvReleaser((1, 8, 8), 2, code=3),
        CodeAdversary(3, 2),
        objective,
        utility=ConvClassifier((1, 8, 8), 5, 2),
    )
    batch = Batch(
        records=torch.rand(12, 1, 8, 8, generator=source) * 2 - 1,
        utility=torch.randint(5, (12,), generator=source),
        sensitive=torch.randint(2, (12,), generator=source),
    )
    return method, batch


def _noise(method: AlphaPrivatizer, records: int) -> Tensor:
    return draw_noise(method, records, torch.Generator().manual_seed(4))


def _gradients(
    method: AlphaPrivatizer, batch: Batch, noise: Tensor, shared: Tensor | None = None
) -> Mapping[str, Mapping[str, Tensor]]:
    weights = {
        network: {name: value.detach() for name, value in net.items()}
        for network, net in named_weights(method.networks).items()
    }

    def total(own: Any) -> Tensor:
        return torch.stack(list(method.local_step(own, batch, noise, shared).losses.values())).sum()

    found: Mapping[str, Mapping[str, Tensor]] = grad(total)(weights)
    return found


@pytest.mark.parametrize("mode", ["entropy", "loss"])
@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0])
def test_a_network_moves_on_its_own_loss_alone(mode: Mode, alpha: float) -> None:
    method, batch = _image_method(AlphaObjective(alpha, 2.0, mode, beta=0.5))
    noise = _noise(method, 12)
    together = _gradients(method, batch, noise)
    weights = named_weights(method.networks)
    step = method.local_step(weights, batch, noise)
    for network, net in weights.items():
        alone = torch.autograd.grad(
            step.losses[network], list(net.values()), retain_graph=True, allow_unused=True
        )
        for name, slope in zip(net, alone, strict=True):
            torch.testing.assert_close(together[network][name], slope)


@pytest.mark.parametrize("kind", [_series_method, _image_method])
def test_where_the_releaser_rests_the_adversary_learns_the_same(kind: Any) -> None:
    method, batch = kind(AlphaObjective(2.0, 3.0, "loss"))
    weights, noise = named_weights(method.networks), _noise(method, 12)
    step = method.local_step(weights, batch, noise, filtering=False)
    assert "filter" not in step.losses and not len(step.scalars)
    whole = method.local_step(weights, batch, noise).losses
    for network, loss in step.losses.items():
        own = list(weights[network].values())
        there, here = (torch.autograd.grad(found, own) for found in (whole[network], loss))
        torch.testing.assert_close(there, here)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("kind", [_series_method, _image_method])
@pytest.mark.parametrize("budget", [None, 0.01])
@pytest.mark.parametrize("alpha", [1.0, 2.0, math.inf])
def test_users_with_everybodys_means_have_the_gradient_of_all(
    kind: Any, alpha: float, budget: float | None
) -> None:
    method, batch = kind(AlphaObjective(alpha, 3.0, "entropy", error_budget=budget))
    noise = _noise(method, 12)
    whole = _gradients(method, batch, noise)
    scalars = method.local_step(named_weights(method.networks), batch, noise).scalars
    means = 0 if alpha == 1 else batch.sensitive.reshape(12, -1).shape[1]
    assert len(scalars) == means + (budget is not None)
    weights = {
        network: {name: value.detach() for name, value in net.items()}
        for network, net in named_weights(method.networks).items()
    }

    def loss(own: Any, x: Tensor, u: Tensor, s: Tensor, side: Tensor | None, z: Tensor) -> Tensor:
        step = method.local_step(own, Batch(x, u, s, side), z, scalars)
        return torch.stack(list(step.losses.values())).sum()

    def users(value: Tensor | None) -> Tensor | None:
        return None if value is None else value.reshape(4, 3, *value.shape[1:])

    parts = [users(v) for v in (batch.records, batch.utility, batch.sensitive, batch.side, noise)]
    axes = (None, *(None if part is None else 0 for part in parts))
    each = vmap(grad(loss), in_dims=axes)(weights, *parts)
    for network, net in whole.items():
        for name, slope in net.items():
            torch.testing.assert_close(each[network][name].mean(0), slope, atol=1e-6, rtol=1e-4)


def test_an_error_below_its_budget_costs_nothing() -> None:
    """And above it the price rises from 0, with no jump of value or slope."""
    price = AlphaObjective(error_budget=0.2, penalty=50.0).price
    below, above = (torch.tensor(value, requires_grad=True) for value in (0.199, 0.3))
    assert float(price(below).detach()) == 0
    assert float(price(above).detach()) == pytest.approx(50 * 0.1**2, rel=1e-4)
    for value, slope in ((below, 0.0), (above, 2 * 50 * 0.1)):
        for shared in (None, value):
            (found,) = torch.autograd.grad(price(value, shared), [value])
            assert float(found) == pytest.approx(slope, rel=1e-4)


def test_records_that_hide_nothing_are_only_kept() -> None:
    method, batch = _series_method(AlphaObjective(2.0, 3.0))
    noise, weights = _noise(method, 12), named_weights(method.networks)
    openly = Batch(batch.records, batch.utility, batch.sensitive, batch.side, torch.zeros(12, 1))
    step = method.local_step(weights, openly, noise)
    released = method.filter(batch.records, noise)
    assert float(step.losses["filter"].detach()) == pytest.approx(
        float((released - batch.records).square().mean().detach())
    )
    assert float(step.losses["adversary"]) == 0
    some = Batch(batch.records, batch.utility, batch.sensitive, batch.side, torch.eye(12)[:, :1])
    alone = Batch(batch.records[:1], batch.utility[:1], batch.sensitive[:1], batch.side[:1])
    ours = method.local_step(weights, some, noise).losses["adversary"]
    theirs = method.local_step(weights, alone, noise[:1]).losses["adversary"]
    assert float(ours) == pytest.approx(float(theirs))


def test_a_choice_of_two_sensitive_values_is_refused() -> None:
    method, batch = _series_method(AlphaObjective())
    noise, weights = _noise(method, 12), named_weights(method.networks)
    bits = Batch(batch.records, batch.utility, batch.sensitive, batch.side, torch.ones(12, 2))
    with pytest.raises(PrivatizerError, match=r"choice.*\(12, 2\).*one column"):
        method.local_step(weights, bits, noise)
    with pytest.raises(PrivatizerError, match="one column"):
        method.report(bits, noise)


def test_side_information_reaches_the_adversary() -> None:
    method, batch = _series_method(AlphaObjective())
    noise = _noise(method, 12)
    other = Batch(batch.records, batch.utility, batch.sensitive, batch.side + 1)
    assert method.report(batch, noise) != method.report(other, noise)


def test_larger_beta_is_paid_for_the_use() -> None:
    method, batch = _image_method(AlphaObjective(1.0, 0.0, beta=2.0))
    noise, weights = _noise(method, 12), named_weights(method.networks)
    losses = method.local_step(weights, batch, noise).losses
    report = method.report(batch, noise)
    expected = report["squared_error"] + 2 * report["utility_loss"]
    assert float(losses["filter"]) == pytest.approx(expected, rel=1e-5)


def test_a_fixed_network_does_not_learn() -> None:
    utility = ConvClassifier((1, 8, 8), 5, 2)
    method = AlphaPrivatizer(
        ConvReleaser((1, 8, 8), 2, noisy=False),
        ConvClassifier((1, 8, 8), 2, 2),
        AlphaObjective(beta=1.0),
        fixed_utility=utility,
    )
    assert set(method.networks) == {"filter", "adversary"}
    assert not any(value.requires_grad for value in utility.parameters())
    assert method.noise_shape == ()


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"alpha": 0.0}, "alpha=0.0 must be above 0"),
        ({"alpha": -1.0}, "alpha=-1.0 must be above 0"),
        ({"alpha": math.nan}, "alpha=nan must be above 0"),
        ({"weight": -0.1}, "weight=-0.1"),
        ({"weight": math.inf}, "weight=inf"),
        ({"beta": math.nan}, "beta=nan"),
        ({"mode": "doubt"}, "mode='doubt' is unknown"),
        ({"error_budget": 0.0}, "error_budget=0.0"),
        ({"penalty": math.nan}, "penalty=nan"),
    ],
)
def test_impossible_objectives_are_refused(values: dict[str, Any], text: str) -> None:
    with pytest.raises(PrivatizerError, match=text):
        AlphaObjective(**values)


def test_networks_that_do_not_fit_are_refused() -> None:
    net, classifier = ConvReleaser((1, 8, 8), 2, noisy=False), ConvClassifier((1, 8, 8), 2, 2)
    with pytest.raises(PrivatizerError, match="weighs a utility classifier"):
        AlphaPrivatizer(net, classifier, AlphaObjective(beta=1.0))
    with pytest.raises(PrivatizerError, match="not both"):
        AlphaPrivatizer(net, classifier, utility=classifier, fixed_utility=classifier)
    with pytest.raises(PrivatizerError, match="no noise_shape"):
        AlphaPrivatizer(nn.Identity(), classifier)
    method, batch = _series_method(AlphaObjective())
    wrong = Batch(batch.records, batch.utility, batch.sensitive[:, 0], batch.side)
    with pytest.raises(PrivatizerError, match="one row of classes a value"):
        method.local_step(named_weights(method.networks), wrong, _noise(method, 12))
    tiny, images = _image_method(AlphaObjective(0.001))
    with pytest.raises(PrivatizerError, match="too small for 2 classes"):
        tiny.local_step(named_weights(tiny.networks), images, _noise(tiny, 12))
