"""The information privatizer: right gradients, three algorithms, and what it refuses."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from fedlens.models.classifiers import ConvClassifier, Mlp
from fedlens.privatizers.classifiers import check_reads, prior_of
from fedlens.privatizers.information import (
    ADVERSARY,
    RAW_UTILITY,
    UTILITY,
    InformationPrivatizer,
    Objective,
)
from fedlens.privatizers.networks.filters import LinearFilter, MlpFilter, UNet
from fedlens.privatizers.protocol import FILTER, Batch, PrivatizerError, draw_noise, named_weights

HALF = torch.tensor([0.5, 0.5])


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def points(n=256, seed=1):
    generator = seeded(seed)
    utility, sensitive = torch.randint(2, (2, n), generator=generator)
    records = torch.stack([utility, sensitive], 1) + 0.05 * torch.randn(n, 2, generator=generator)
    return Batch(records, utility, sensitive)


def privatizer(objective=None, algorithm=1, net=None, prior=HALF):
    net = net if net is not None else LinearFilter(2, generator=seeded())
    classifiers = [Mlp(2, 2, (8,), generator=seeded(2 + i)) for i in range(3)]
    given = {
        1: {"raw_utility": classifiers[0], "utility": classifiers[1], "adversary": classifiers[2]},
        2: {"fixed_utility": classifiers[0], "adversary": classifiers[2]},
        3: {"fixed_utility": classifiers[0], "fixed_adversary": classifiers[2]},
    }[algorithm]
    return InformationPrivatizer(net, prior, objective, **given)


def gradients(method, batch, noise, shared=None, network=FILTER):
    weights = named_weights(method.networks)
    losses, _ = method.local_step(weights, batch, noise, shared)
    own = list(weights[network].values())
    return torch.cat([g.flatten() for g in torch.autograd.grad(losses[network], own)])


@pytest.mark.parametrize(
    ("algorithm", "learning"),
    [(1, {RAW_UTILITY, UTILITY, ADVERSARY}), (2, {ADVERSARY}), (3, set())],
)
def test_each_algorithm_trains_what_the_paper_says(algorithm, learning):
    method = privatizer(algorithm=algorithm)
    batch = points()
    step = method.local_step(
        named_weights(method.networks), batch, draw_noise(method, 256, seeded())
    )
    assert set(step.losses) == {FILTER, *learning} == set(method.networks)
    assert method.leak == ("divergence" if algorithm == 3 else "label")


@pytest.mark.parametrize("algorithm", [1, 2])
def test_where_the_filter_rests_the_classifiers_learn_the_same(algorithm):
    method, batch = privatizer(algorithm=algorithm), points()
    weights, noise = named_weights(method.networks), draw_noise(method, 256, seeded())
    losses, scalars = method.local_step(weights, batch, noise, filtering=False)
    assert set(losses) == set(method.networks) - {FILTER} and not len(scalars)
    whole = method.local_step(weights, batch, noise).losses
    for network, loss in losses.items():
        own = list(weights[network].values())
        there, here = (torch.autograd.grad(found, own) for found in (whole[network], loss))
        assert all(torch.equal(a, b) for a, b in zip(there, here, strict=True))


@pytest.mark.parametrize("algorithm", [1, 2, 3])
@pytest.mark.parametrize("leak", ["label", "divergence"])
def test_the_filters_gradient_is_that_of_the_squared_means(algorithm, leak):
    method = privatizer(Objective(0.3, leak=leak), algorithm)
    batch, noise = points(), draw_noise(method, 256, seeded(5))
    theta = method.networks[FILTER].theta

    def loss():
        step = method.local_step(named_weights(method.networks), batch, noise)
        lost, leaked = (float(value) for value in step.scalars)
        return 0.7 * lost**2 + 0.3 * leaked**2

    found = gradients(method, batch, noise).reshape(2, 2)
    for i, j in ((0, 0), (1, 0), (1, 1)):
        values = []
        for shift in (1e-2, -1e-2):
            with torch.no_grad():
                theta[i, j] += shift
                values.append(loss())
                theta[i, j] -= shift
        assert float(found[i, j]) == pytest.approx(
            (values[0] - values[1]) / 2e-2, rel=0.03, abs=2e-4
        )


def test_the_budget_forms_gradient_is_that_of_its_objective():
    method = privatizer(Objective(budget=0.05, weight=7.0, leak="label"))
    batch, noise = points(), draw_noise(method, 256, seeded(5))
    theta = method.networks[FILTER].theta
    found = gradients(method, batch, noise).reshape(2, 2)
    values = []
    for shift in (5e-3, -5e-3):
        with torch.no_grad():
            theta[0, 1] += shift
            values.append(method.report(batch, noise)["estimated_loss"])
            theta[0, 1] -= shift
    assert float(found[0, 1]) == pytest.approx((values[0] - values[1]) / 1e-2, rel=0.05, abs=1e-3)


def test_distortion_pulls_released_records_towards_what_they_were():
    plain, close = (privatizer(Objective(budget=0.05, distortion=d)) for d in (0.0, 3.0))
    batch, noise = points(), draw_noise(plain, 256, seeded(5))
    added = gradients(close, batch, noise) - gradients(plain, batch, noise)
    theta = plain.networks[FILTER].theta
    moved = (plain.filter(batch.records, noise) - batch.records).square().mean()
    (expected,) = torch.autograd.grad(3.0 * moved, theta)
    assert torch.allclose(added, expected.flatten(), atol=1e-5) and float(added.abs().max()) > 0


@pytest.mark.parametrize("distortion", [-1.0, math.nan])
def test_a_distortion_below_zero_is_refused(distortion):
    with pytest.raises(PrivatizerError, match=r"distortion=.* at least 0"):
        Objective(distortion=distortion)


def test_under_its_budget_the_leak_has_no_pull():
    open_handed = privatizer(Objective(budget=10.0))
    batch, noise = points(), draw_noise(open_handed, 256, seeded(5))
    only_use = gradients(open_handed, batch, noise)
    squares = gradients(privatizer(Objective(0.0)), batch, noise)
    cosine = torch.nn.functional.cosine_similarity(only_use, squares, dim=0)
    assert abs(float(cosine)) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("network", [RAW_UTILITY, UTILITY, ADVERSARY])
def test_a_networks_loss_moves_its_own_weights_alone(network):
    method = privatizer()
    weights = named_weights(method.networks)
    losses, _ = method.local_step(weights, points(), draw_noise(method, 256, seeded()))
    for other in set(weights) - {network}:
        own = torch.autograd.grad(
            losses[network], list(weights[other].values()), retain_graph=True, allow_unused=True
        )
        assert all(gradient is None for gradient in own)
    theirs = torch.autograd.grad(
        losses[FILTER], list(weights[network].values()), retain_graph=True, allow_unused=True
    )
    assert all(gradient is None for gradient in theirs)


def test_users_gradients_with_shared_scalars_average_to_the_gradient_of_all():
    method = privatizer(Objective(0.4, leak="label"))
    batch, noise = points(), draw_noise(method, 256, seeded(5))
    weights = {
        network: {name: value.detach() for name, value in own.items()}
        for network, own in named_weights(method.networks).items()
    }
    scalars = method.local_step(weights, batch, noise).scalars

    def loss(theta, records, utility, sensitive, drawn):
        own = {**weights, FILTER: theta}
        return method.local_step(own, Batch(records, utility, sensitive), drawn, scalars).losses[
            FILTER
        ]

    parts = [
        value.reshape(8, 32, *value.shape[1:])
        for value in (batch.records, batch.utility, batch.sensitive, noise)
    ]
    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0, 0, 0))(
        weights[FILTER], *parts
    )
    together = gradients(method, batch, noise)
    assert torch.allclose(each["theta"].mean(0).flatten(), together, atol=1e-6)


def test_local_squares_would_add_the_variance_between_users():
    """Why the scalars are shared: without them the users' gradients do not average to it."""
    method = privatizer(Objective(0.4, leak="label"))
    batch, noise = points(), draw_noise(method, 256, seeded(5))
    order = batch.sensitive.argsort()
    alone = []
    for rows in order.split(32):
        part = Batch(batch.records[rows], batch.utility[rows], batch.sensitive[rows])
        alone.append(gradients(method, part, noise[rows]))
    together = gradients(method, batch, noise)
    assert not torch.allclose(torch.stack(alone).mean(0), together, rtol=0.05, atol=1e-4)


def test_halves_are_unbiased_where_the_square_of_a_batch_mean_is_not():
    net = LinearFilter(2, scale=0.0, generator=seeded())
    square, halves = (
        privatizer(Objective(1.0, leak="label", halves=h), net=net) for h in (False, True)
    )
    batch = points(4096)
    noise = draw_noise(square, 4096, seeded(5))
    whole = gradients(square, batch, noise)
    found = {}
    for name, method in (("square", square), ("halves", halves)):
        parts = []
        for rows in torch.arange(4096).split(8):
            part = Batch(batch.records[rows], batch.utility[rows], batch.sensitive[rows])
            parts.append(gradients(method, part, noise[rows]))
        found[name] = float((torch.stack(parts).mean(0) - whole).norm())
    assert found["halves"] < 0.5 * found["square"]


def test_exclusive_terms_take_the_utility_of_some_and_the_sensitive_attribute_of_the_others():
    method = privatizer(Objective(0.5, exclusive=True), algorithm=3)
    batch, noise = points(), draw_noise(method, 256, seeded(5))
    hides = (torch.arange(256) % 2).float().unsqueeze(1)
    mixed = Batch(batch.records, batch.utility, batch.sensitive, choice=hides)
    lost, leaked = method.local_step(named_weights(method.networks), mixed, noise).scalars
    everybody = privatizer(Objective(0.5), algorithm=3)
    for rows, place, found in ((slice(0, None, 2), 0, lost), (slice(1, None, 2), 1, leaked)):
        part = Batch(batch.records[rows], batch.utility[rows], batch.sensitive[rows])
        wanted = everybody.local_step(named_weights(everybody.networks), part, noise[rows])
        assert float(found) == pytest.approx(float(wanted.scalars[place]), abs=1e-6)
    with pytest.raises(PrivatizerError, match="choice"):
        method.local_step(named_weights(method.networks), batch, noise)


def test_who_hides_nothing_pulls_at_no_sensitive_attribute():
    method = privatizer(Objective(1.0), algorithm=2, net=MlpFilter(2, generator=seeded()))
    batch, noise = points(), draw_noise(method, 256, seeded(5))
    nothing_hidden = Batch(
        batch.records, batch.utility, batch.sensitive, choice=torch.zeros(256, 1)
    )
    assert float(gradients(method, nothing_hidden, noise).abs().max()) == 0
    assert float(gradients(method, batch, noise).abs().max()) > 0


@pytest.mark.parametrize("columns", [2, 0])
def test_a_choice_of_other_than_one_sensitive_attribute_is_refused(columns):
    batch, noise = points(8), torch.zeros(8, 2)
    bits = Batch(batch.records, batch.utility, batch.sensitive, choice=torch.ones(8, columns))
    method = privatizer(net=LinearFilter(2))
    for step in (lambda: method.local_step(named_weights(method.networks), bits, noise),
                 lambda: method.report(bits, noise)):  # fmt: skip
        with pytest.raises(PrivatizerError, match=rf"choice.*\(8, {columns}\).*one column"):
            step()


def test_a_filter_is_told_its_owners_choice():
    net = UNet((1, 8, 8), 2, choices=1, generator=seeded())
    classifiers = {
        "fixed_utility": ConvClassifier((1, 8, 8), 2, 2, generator=seeded(1)),
        "adversary": ConvClassifier((1, 8, 8), 2, 2, generator=seeded(2)),
    }
    method = InformationPrivatizer(net, HALF, **classifiers)
    images = torch.rand(2, 1, 8, 8, generator=seeded(3))
    noise = draw_noise(method, 2, seeded(4))
    assert not torch.equal(
        method.filter(images, noise, torch.zeros(2, 1)), method.filter(images, noise)
    )


def test_a_step_draws_nothing_and_changes_no_network():
    method = privatizer()
    before = {name: value.clone() for name, value in named_weights(method.networks)[FILTER].items()}
    state = torch.random.get_rng_state()
    gradients(method, points(), draw_noise(method, 256, seeded()))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(before["theta"], method.networks[FILTER].theta)


def test_fixed_networks_are_never_trained():
    net = Mlp(2, 2, (4,), generator=seeded())
    InformationPrivatizer(LinearFilter(2), HALF, fixed_utility=net, fixed_adversary=Mlp(2, 2))
    assert not any(value.requires_grad for value in net.parameters())


@pytest.mark.parametrize("alpha", [-0.1, 1.5, math.nan])
def test_an_alpha_outside_the_interval_is_refused(alpha):
    with pytest.raises(PrivatizerError, match=r"alpha=.* \[0, 1\]"):
        Objective(alpha)


@pytest.mark.parametrize(
    "prior", [torch.ones(1), torch.tensor([1.0, 0.0]), torch.tensor([0.5, 0.4])]
)
def test_a_sensitive_attribute_with_one_class_is_refused(prior):
    with pytest.raises(PrivatizerError, match="prior"):
        privatizer(prior=prior)


def test_the_prior_of_labels_is_their_shares():
    assert prior_of(torch.tensor([0, 1, 1, 1]), 2).tolist() == [0.25, 0.75]
    with pytest.raises(PrivatizerError, match="does not occur"):
        prior_of(torch.tensor([1, 1]), 2)


def test_a_network_of_another_shape_is_refused_before_training():
    image = torch.zeros(1, 1, 28, 28)
    with pytest.raises(PrivatizerError, match=r"utility does not take .* \(1, 28, 28\)"):
        check_reads(ConvClassifier((3, 32, 32), 10), image, 10, "utility")
    with pytest.raises(PrivatizerError, match="for 2 classes"):
        check_reads(ConvClassifier((1, 28, 28), 10), image, 2, "adversary")
    method = privatizer(prior=torch.ones(3) / 3)
    with pytest.raises(PrivatizerError, match="2 answers, the prior 3"):
        method.report(points(), draw_noise(method, 256, seeded()))


def test_networks_missing_or_given_twice_are_refused():
    net, classifier = LinearFilter(2), Mlp(2, 2)
    with pytest.raises(PrivatizerError, match="fixed_utility"):
        InformationPrivatizer(net, HALF, adversary=classifier)
    with pytest.raises(PrivatizerError, match="fixed_utility"):
        InformationPrivatizer(
            net, HALF, utility=classifier, fixed_utility=classifier, adversary=classifier
        )
    with pytest.raises(PrivatizerError, match="fixed_adversary"):
        InformationPrivatizer(net, HALF, fixed_utility=classifier)
    with pytest.raises(PrivatizerError, match="noise_shape"):
        InformationPrivatizer(nn.Linear(2, 2), HALF, fixed_utility=classifier, adversary=classifier)
