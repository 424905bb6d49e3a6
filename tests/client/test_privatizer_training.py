"""Central training: reproducible, in stages, and it moves what a stage names alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedlens.data.attributes import load_private
from fedlens.models.classifiers import Mlp
from fedlens.privatizers.information import InformationPrivatizer, Objective
from fedlens.privatizers.networks.fader import Chained, FaderNet
from fedlens.privatizers.networks.filters import LinearFilter, UNet
from fedlens.privatizers.private_data import PrivateData, PrivateDataError
from fedlens.privatizers.protocol import FILTER, PrivatizerError
from fedlens.privatizers.training import Stage, train_identity, train_privatizer
from fedlens_research.filters.fader import CODE, FaderPrivatizer
from fedlens_research.loaders.mixture import draw_mixture, mixture_joint

HALF = torch.tensor([0.5, 0.5])


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def built(alpha=0.5):
    classifiers = {
        name: Mlp(2, 2, (8,), generator=seeded(place))
        for place, name in enumerate(("raw_utility", "utility", "adversary"))
    }
    return InformationPrivatizer(
        LinearFilter(2, generator=seeded()), HALF, Objective(alpha), **classifiers
    )


def weights(method):
    return {
        f"{network}.{name}": value.detach().clone()
        for network, net in method.networks.items()
        for name, value in net.state_dict().items()
    }


@pytest.fixture(scope="module")
def points():
    return load_private("mixture:0.4", seed=3).train


ALL = {FILTER: 1e-2, "raw_utility": 3e-3, "utility": 3e-3, "adversary": 3e-3}


def trained(points, *stages, seed=0, **options):
    method = built()
    train_privatizer(method, points, stages, batch=64, seed=seed, **options)
    return weights(method)


@pytest.mark.parametrize("together", [False, True])
def test_equal_arguments_give_equal_bits_and_the_global_state_is_left_alone(points, together):
    stage = Stage("all", ALL, 15, 2, together=together)
    torch.manual_seed(1)
    state = torch.random.get_rng_state()
    first = trained(points, stage)
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.manual_seed(2)
    second = trained(points, stage)
    assert all(torch.equal(first[name], second[name]) for name in first)
    other = trained(points, stage, seed=1)
    assert not torch.equal(first["filter.theta"], other["filter.theta"])


def test_a_stage_moves_only_the_networks_it_names(points):
    before = weights(built())
    after = trained(points, Stage("classifiers", {"utility": 1e-3, "adversary": 1e-3}, 3))
    moved = {name.split(".")[0] for name in before if not torch.equal(before[name], after[name])}
    assert moved == {"utility", "adversary"}


def test_iterations_are_reported_across_stages(points):
    done, steps = [], []
    trained(
        points,
        Stage("classifiers", {"adversary": 1e-3}, 2),
        Stage("filter", {FILTER: 1e-3}, 3),
        progress=lambda now, of: done.append((now, of)),
        on_step=lambda step, scalars: steps.append((step, len(scalars))),
    )
    assert done == [(1, 5), (2, 5), (3, 5), (4, 5), (5, 5)]
    assert steps == [(1, 0), (2, 0), (3, 2), (4, 2), (5, 2)]


def test_rates_fall_to_their_last_share(points):
    held = trained(points, Stage("filter", {FILTER: 1e-2}, 20))
    faded = trained(points, Stage("filter", {FILTER: 1e-2}, 20, last_rate=0.0))
    start = weights(built())["filter.theta"]
    assert (faded["filter.theta"] - start).norm() < (held["filter.theta"] - start).norm()


def test_minibatches_carry_their_rows_choices_and_changes(points):
    seen = []

    class Looking(InformationPrivatizer):
        def local_step(self, weights, batch, noise, shared=None, *, filtering=True):
            seen.append(batch)
            return super().local_step(weights, batch, noise, shared, filtering=filtering)

    method = Looking(LinearFilter(2), HALF, fixed_utility=Mlp(2, 2), adversary=Mlp(2, 2))
    hides = points.sensitive.float().unsqueeze(1)

    def shifted(batch, generator):
        return replace(batch, records=batch.records + 100)

    train_privatizer(
        method,
        points,
        [Stage("s", {FILTER: 1e-3}, 1)],
        batch=32,
        seed=0,
        choice=hides,
        change=shifted,
    )
    assert torch.equal(seen[0].choice[:, 0], seen[0].sensitive.float())
    assert float(seen[0].records.min()) > 90


def test_what_cannot_be_trained_is_refused(points):
    method = built()
    with pytest.raises(PrivatizerError, match="names critic; the method's networks are filter"):
        train_privatizer(method, points, [Stage("s", {"critic": 1.0}, 1)], batch=4, seed=0)
    with pytest.raises(PrivatizerError, match="batch=0"):
        train_privatizer(method, points, [Stage("s", ALL, 1)], batch=0, seed=0)
    with pytest.raises(PrivatizerError, match="above 0"):
        Stage("s", {FILTER: 0.0}, 1)
    with pytest.raises(PrivatizerError, match="steps=0"):
        Stage("s", {FILTER: 1.0}, 0)


def test_a_loss_that_is_no_number_stops_training(points):
    method = built()
    with torch.no_grad():
        method.networks[FILTER].theta.fill_(float("nan"))
    with pytest.raises(PrivatizerError, match="lower its rate"):
        train_privatizer(method, points, [Stage("s", ALL, 1)], batch=16, seed=0)


def test_the_mixture_has_the_joint_table_it_says():
    points = draw_mixture(0.4, 40_000, np.random.default_rng(0))
    counts = torch.zeros(2, 2).index_put_(
        (points.utility, points.sensitive), torch.ones(40_000), accumulate=True
    )
    assert torch.allclose(counts.double() / 40_000, mixture_joint(0.4), atol=0.01)
    centres = torch.stack([points.utility, points.sensitive], 1)
    assert float((points.records - centres).std()) == pytest.approx(0.05, rel=0.02)


@pytest.mark.parametrize("k", ["much", "-0.1", "2.5", ""])
def test_a_mixture_that_is_none_is_refused(k):
    with pytest.raises(PrivateDataError, match=r"\[0, 2\]"):
        load_private(f"mixture:{k}")


def stripes(n=300, seed=0):
    """Images whose left half's brightness is the sensitive attribute, and whose right half's is
    another bit."""
    generator = seeded(seed)
    bits = torch.randint(2, (n, 2), generator=generator)
    images = 0.1 * torch.randn(n, 1, 8, 8, generator=generator)
    images[:, 0, :, :4] += (bits[:, 0] * 1.2 - 0.6)[:, None, None]
    images[:, 0, :, 4:] += (bits[:, 1] * 1.2 - 0.6)[:, None, None]
    return PrivateData("stripes", images, bits[:, 1], bits[:, 0], None, None, 2, 2, -1.0, 1.0)


def test_identity_training_brings_a_filter_back_to_its_record():
    net = UNet((1, 8, 8), 2, generator=seeded())
    with torch.no_grad():
        net.correct.bias.fill_(0.8)
    assert train_identity(net, stripes(), steps=150, rate=1e-2, batch=32, seed=0) < 0.15


def test_a_fader_paints_the_attribute_it_is_told_and_keeps_the_rest():
    data = stripes()
    net = FaderNet((1, 8, 8), HALF, 4, drawn=True, generator=seeded())
    method = FaderPrivatizer(net, Mlp(16 * 2 * 2, 2, (16,), generator=seeded(1)), weight=0.1)
    stages = [Stage("fader", {FILTER: 5e-3, CODE: 5e-3}, 500, 2, together=True)]
    train_privatizer(method, data, stages, batch=64, seed=0)
    report = method.report(data.batch(slice(None)), torch.zeros(300, 1))
    assert report["pixel_error"] < 0.15
    noise = torch.randn(300, 1, generator=seeded(3))
    shown = net.shown(noise).argmax(1)
    assert 0.4 < float(shown.float().mean()) < 0.6
    released = method.filter(data.records, noise)
    left, right = (released[:, 0, :, part].mean((1, 2)) > 0 for part in (slice(4), slice(4, 8)))
    assert float((left == shown.bool()).float().mean()) > 0.9
    assert float((right == data.utility.bool()).float().mean()) > 0.95
    read_sensitive = float((left == data.sensitive.bool()).float().mean())
    assert abs(read_sensitive - 0.5) < 0.1


def test_a_chain_trains_its_second_filter_alone():
    data = stripes()
    fader = FaderNet((1, 8, 8), HALF, 2, drawn=True, generator=seeded())
    net = Chained(fader, UNet((1, 8, 8), 2, generator=seeded(1)))
    assert net.noise_shape == (1 + 4 * 2 * 2,)
    method = InformationPrivatizer(
        net,
        HALF,
        fixed_utility=Mlp(64, 2, generator=seeded(2)),
        adversary=Mlp(64, 2, generator=seeded(3)),
    )
    before = {name: value.clone() for name, value in net.state_dict().items()}
    train_privatizer(
        method, data, [Stage("s", {FILTER: 1e-2, "adversary": 1e-2}, 3)], batch=16, seed=0
    )
    moved = {
        name.split(".")[0]
        for name, value in net.state_dict().items()
        if not torch.equal(before[name], value)
    }
    assert moved == {"second"}


def test_a_discriminator_of_another_shape_is_refused():
    with pytest.raises(PrivatizerError, match="code does not take"):
        FaderPrivatizer(FaderNet((1, 8, 8), HALF, 4), Mlp(5, 2))
    with pytest.raises(PrivatizerError, match="2 classes"):
        FaderPrivatizer(FaderNet((1, 8, 8), HALF, 4), Mlp(16 * 2 * 2, 3))
