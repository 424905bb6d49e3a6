"""Filters keep the space, take their noise as an argument, and start near the identity."""

from __future__ import annotations

import pytest
import torch
from torch.func import functional_call, vmap

from fedlens.models.classifiers import ConvClassifier, Mlp
from fedlens.models.shapes import ShapeError
from fedlens.privatizers.networks.filters import LinearFilter, MlpFilter, UNet


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (1, 56, 46), (1, 9, 31)])
def test_a_unet_keeps_any_image_shape_and_starts_near_the_identity(shape):
    net = UNet(shape, 4, generator=seeded())
    images = torch.rand(5, *shape, generator=seeded(1)) * 2 - 1
    noise = torch.randn(5, *net.noise_shape, generator=seeded(2))
    released = net(images, noise)
    assert released.shape == images.shape
    assert float((released - images).abs().mean()) < 0.05


def test_a_unets_noise_changes_its_answer_and_equal_noise_does_not():
    net = UNet((1, 16, 16), 4, generator=seeded())
    images = torch.rand(2, 1, 16, 16, generator=seeded(1))
    first, second = torch.randn(2, 2, *net.noise_shape, generator=seeded(2))
    assert torch.equal(net(images, first), net(images, first))
    assert not torch.equal(net(images, first), net(images, second))


def test_a_records_answer_depends_on_that_record_alone():
    net = UNet((1, 16, 16), 4, generator=seeded())
    images = torch.rand(4, 1, 16, 16, generator=seeded(1))
    noise = torch.randn(4, *net.noise_shape, generator=seeded(2))
    together = net(images, noise)
    apart = torch.cat([net(images[i : i + 1], noise[i : i + 1]) for i in range(4)])
    assert torch.allclose(together, apart, atol=1e-6)


def test_opt_in_bits_are_seen_and_none_given_means_all_hidden():
    net = UNet((1, 16, 16), 4, choices=2, generator=seeded())
    images = torch.rand(3, 1, 16, 16, generator=seeded(1))
    noise = torch.randn(3, *net.noise_shape, generator=seeded(2))
    hidden = net(images, noise, torch.ones(3, 2))
    assert torch.equal(net(images, noise), hidden)
    assert not torch.equal(net(images, noise, torch.tensor([[1.0, 0.0]] * 3)), hidden)


def test_limits_hold_released_pixels_in_the_datas_range():
    net = UNet((1, 16, 16), 4, limits=(-1.0, 1.0), generator=seeded())
    with torch.no_grad():
        net.correct.bias.fill_(5.0)
    released = net(torch.zeros(1, 1, 16, 16), torch.zeros(1, *net.noise_shape))
    assert float(released.max()) == 1.0


def test_weights_come_from_the_generator_alone():
    torch.manual_seed(1)
    first = UNet((1, 16, 16), 4, generator=seeded(5)).state_dict()
    torch.manual_seed(2)
    state = torch.random.get_rng_state()
    second = UNet((1, 16, 16), 4, generator=seeded(5)).state_dict()
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_linear_filter_is_a_matrix_and_its_noise():
    net = LinearFilter(2)
    points, noise = torch.randn(2, 7, 2, generator=seeded(3))
    assert torch.allclose(net(points, noise), points @ net.theta.T + noise)


def test_an_mlp_filters_outer_noise_is_added_and_its_inner_noise_is_not():
    net = MlpFilter(2, inner=1, generator=seeded())
    points, outer = torch.randn(2, 7, 2, generator=seeded(3))
    inner = torch.randn(7, 1, generator=seeded(4))
    released = net(points, torch.cat([outer, inner], 1))
    assert torch.allclose(released - outer, net.means(points, inner), atol=1e-6)
    assert not torch.allclose(net.means(points, inner), net.means(points, -inner))


@pytest.mark.parametrize(
    "net",
    [
        UNet((1, 12, 12), 2, generator=torch.Generator().manual_seed(0)),
        ConvClassifier((1, 12, 12), 3, 2, generator=torch.Generator().manual_seed(0)),
        Mlp(144, 3, generator=torch.Generator().manual_seed(0)),
    ],
)
def test_networks_run_under_vmap_over_users_weights(net):
    images = torch.rand(3, 2, 1, 12, 12, generator=seeded(1))
    weights = {
        name: torch.stack([value, value * 1.1, value * 0.9])
        for name, value in net.state_dict().items()
    }
    noise = () if not hasattr(net, "noise_shape") else (torch.zeros(2, *net.noise_shape),)

    def answer(own, records):
        return functional_call(net, own, (records, *noise))

    together = vmap(answer)(weights, images)
    alone = answer({name: value[1] for name, value in weights.items()}, images[1])
    assert torch.allclose(together[1], alone, atol=1e-5)


def test_side_information_reaches_the_classifiers():
    images = torch.rand(4, 1, 12, 12, generator=seeded(1))
    side = torch.randn(4, 3, generator=seeded(2))
    for net in (Mlp(144, 5, side=3), ConvClassifier((1, 12, 12), 5, 2, side=3)):
        answers = net(images, side)
        assert answers.shape == (4, 5)
        assert not torch.allclose(answers, net(images, -side))


def test_shapes_that_no_network_is_built_for_are_refused():
    with pytest.raises(ShapeError, match="sides of 8 pixels"):
        UNet((1, 7, 28))
    with pytest.raises(ShapeError, match="channels, height, width"):
        ConvClassifier((28, 28), 10)
    with pytest.raises(ShapeError, match="inputs=0"):
        Mlp(0, 2)
    with pytest.raises(ShapeError, match="classes=0"):
        Mlp(3, 0)
