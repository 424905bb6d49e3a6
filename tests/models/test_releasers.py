"""Releasers and adversaries of series and images: causality, noise as an argument, limits."""

from __future__ import annotations

import math

import pytest
import torch
from torch.func import functional_call, grad, vmap

from fedlens.models.shapes import ShapeError
from fedlens.privatizers.networks.adversaries import CodeAdversary, LstmAdversary
from fedlens.privatizers.networks.information import InformationError, gaussian_capacity
from fedlens.privatizers.networks.releasers import ConvReleaser, LstmReleaser


def _noise(net: ConvReleaser | LstmReleaser, records: int) -> torch.Tensor:
    return torch.randn(records, *(net.noise_shape or (0,)), generator=torch.Generator())


def _series(records: int = 3) -> torch.Tensor:
    return torch.rand(records, 24, 1, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("step", [0, 7, 22])
def test_a_released_step_depends_on_the_past_alone(step: int) -> None:
    net = LstmReleaser(hidden=8, layers=2)
    series, noise = _series(), _noise(net, 3)
    changed, other = series.clone(), noise.clone()
    changed[:, step + 1 :] += 1.0
    other[:, step + 1 :] -= 1.0
    before, after = net(series, noise), net(changed, other)
    assert torch.equal(before[:, : step + 1], after[:, : step + 1])
    assert not torch.allclose(before[:, step + 1 :], after[:, step + 1 :])


def test_a_released_step_depends_on_each_earlier_one() -> None:
    net = LstmReleaser(hidden=8, layers=2)
    series, noise = _series(1).requires_grad_(), _noise(net, 1).requires_grad_()
    slopes = torch.autograd.grad(net(series, noise)[0, 23, 0], [series, noise])
    assert all(bool((slope[0, :, 0] != 0).all()) for slope in slopes)


def test_the_adversary_is_causal_and_uses_what_else_it_knows() -> None:
    net = LstmAdversary(1, 2, hidden=8, side=5)
    series, side = _series(), torch.rand(3, 5, generator=torch.Generator())
    changed = series.clone()
    changed[:, 12:] = 0
    assert torch.equal(net(series, side)[:, :12], net(changed, side)[:, :12])
    assert not torch.allclose(net(series, side), net(series, side + 1))
    each = side.unsqueeze(1).expand(-1, 24, -1)
    torch.testing.assert_close(net(series, side), net(series, each))


def test_images_without_an_opt_in_bit_go_out_as_they_are() -> None:
    net = ConvReleaser((1, 8, 8), 2, code=4, output_noise_std=0.1, choices=1)
    images, noise = torch.rand(3, 1, 8, 8) * 2 - 1, _noise(net, 3)
    sent = net(images, noise, torch.tensor([[1.0], [0.0], [1.0]]))
    everybody = net(images, noise)
    assert torch.equal(sent[1], images[1]) and torch.equal(sent[[0, 2]], everybody[[0, 2]])
    deaf = ConvReleaser((1, 8, 8), 2, code=4, output_noise_std=0.1)
    assert not torch.equal(deaf(images, noise, torch.zeros(3, 1)), images)


def test_an_adversary_that_reads_both_ways_uses_what_came_later() -> None:
    net = LstmAdversary(1, 2, hidden=8, both_ways=True)
    series = _series(1).requires_grad_()
    (slope,) = torch.autograd.grad(net(series)[0, 11, 0], [series])
    assert bool((slope != 0).all())


def test_a_releaser_that_waits_for_the_day_uses_what_came_later() -> None:
    net = LstmReleaser(hidden=8, layers=2, both_ways=True)
    series = _series(1).requires_grad_()
    (slope,) = torch.autograd.grad(net(series, _noise(net, 1))[0, 11, 0], [series])
    assert bool((slope != 0).all())


@pytest.mark.parametrize("keep", [0.0, 1.0])
def test_a_gate_lets_steps_out_as_they_are_whatever_their_height(keep: float) -> None:
    """Closed or open by its bias alone; at the start it says next to nothing."""
    net = LstmReleaser(2, hidden=8, layers=1, keep=keep, level=0.5, gated=True)
    series = 1000 * torch.rand(3, 24, 2, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        at_first = net(series, _noise(net, 3))
        assert float((at_first - 0.5 - keep * (series - 0.5)).abs().max()) < 0.5 * 1000
        net.correct.weight.zero_()
        net.correct.bias.copy_(torch.tensor([0.0, 0.0, 40.0, -40.0]))
        released = net(series, _noise(net, 3))
    shares = torch.tensor([keep + 1, keep - 1])
    torch.testing.assert_close(released, 0.5 + shares * (series - 0.5))


@pytest.mark.parametrize("keep", [0.0, 0.5, 1.0])
def test_how_much_is_kept_at_the_start_is_chosen(keep: float) -> None:
    net = LstmReleaser(hidden=8, layers=2, keep=keep, level=0.5)
    with torch.no_grad():
        net.correct.weight.zero_()
        released = net(_series(), _noise(net, 3))
    torch.testing.assert_close(released, 0.5 + keep * (_series() - 0.5))
    with pytest.raises(ShapeError, match="keep"):
        LstmReleaser(keep=1.5)


def test_output_noise_is_noise_of_its_size_on_each_step() -> None:
    net = LstmReleaser(2, hidden=8, layers=1, steps=24, output_noise_std=0.3)
    series, noise = torch.rand(400, 24, 2, generator=torch.Generator()), _noise(net, 400)
    assert noise.shape == (400, 24, 3)
    plain = noise.clone()
    plain[..., 1:] = 0
    output_noise_std = net(series, noise) - net(series, plain)
    torch.testing.assert_close(output_noise_std, 0.3 * noise[..., 1:], atol=1e-6, rtol=1e-5)
    with pytest.raises(ShapeError, match="output_noise_std=-1"):
        LstmReleaser(output_noise_std=-1.0)


def test_sizes_are_the_papers() -> None:
    assert sum(p.numel() for p in LstmReleaser().parameters()) == 117_314
    assert sum(p.numel() for p in LstmAdversary(1, 2).parameters()) == 21_442


@pytest.mark.parametrize("noisy", [False, True])
def test_images_keep_their_space(noisy: bool) -> None:
    net = ConvReleaser((3, 32, 28), 4, noisy=noisy, low=0.0, high=1.0)
    images = torch.rand(2, 3, 32, 28, generator=torch.Generator())
    released = net(images, _noise(net, 2))
    assert released.shape == images.shape
    assert bool(((released > 0) & (released < 1)).all())
    changed = net(images, _noise(net, 2) + 1)
    assert torch.equal(changed, released) is not noisy


def test_cut_values_keep_their_gradient() -> None:
    net = LstmReleaser(hidden=8, layers=1, low=0.0, high=0.5)
    series = _series() - 2
    released = net(series, _noise(net, 3))
    assert bool((released == 0).all())
    (slope,) = torch.autograd.grad(released.sum(), [net.correct.bias])
    assert float(slope) == pytest.approx(3 * 24)


def test_weights_come_from_the_generator_alone() -> None:
    torch.manual_seed(5)
    first = LstmReleaser(generator=torch.Generator().manual_seed(3))
    state = torch.random.get_rng_state()
    second = LstmReleaser(generator=torch.Generator().manual_seed(3))
    assert torch.equal(torch.random.get_rng_state(), state)
    for name, value in first.state_dict().items():
        assert torch.equal(value, second.state_dict()[name]), name
    other = LstmReleaser(generator=torch.Generator().manual_seed(4))
    assert not torch.equal(first.lstm.weight_ih_l0, other.lstm.weight_ih_l0)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_gradients_of_users_at_once_are_those_of_each() -> None:
    net = LstmReleaser(hidden=6, layers=2)
    weights = {name: value.detach() for name, value in net.named_parameters()}
    series, noise = _series(6).reshape(3, 2, 24, 1), _noise(net, 6).reshape(3, 2, 24, 1)

    def loss(own: dict[str, torch.Tensor], x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = functional_call(net, own, (x, z))
        return answer.square().mean()

    together = vmap(grad(loss), in_dims=(None, 0, 0))(weights, series, noise)
    for user in range(3):
        alone = torch.autograd.grad(
            net(series[user], noise[user]).square().mean(), list(net.parameters())
        )
        for (name, _), slope in zip(net.named_parameters(), alone, strict=True):
            torch.testing.assert_close(together[name][user], slope)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: ConvReleaser((1, 30, 28)), "multiples of 4"),
        (lambda: ConvReleaser((0, 28, 28)), "channel"),
        (lambda: ConvReleaser((28, 28)), "channels, height, width"),  # type: ignore[arg-type]
        (lambda: LstmReleaser(0), "channels=0"),
        (lambda: LstmReleaser(steps=0), "steps=0"),
        (lambda: LstmReleaser(hidden=0), "hidden"),
        (lambda: LstmAdversary(1, 0), "classes=0"),
    ],
)
def test_impossible_networks_are_refused(make: object, text: str) -> None:
    with pytest.raises(ShapeError, match=text):
        make()  # type: ignore[operator]


def test_output_noise_is_noise_on_every_pixel_and_stays_within_the_limits() -> None:
    net = ConvReleaser((1, 12, 12), 2, code=3, output_noise_std=0.2)
    assert net.noise_shape == (3 + 144,)
    images = torch.zeros(200, 1, 12, 12)
    noise = torch.randn(200, 147, generator=torch.Generator().manual_seed(0))
    noise[:, :3] = 0
    with torch.no_grad():
        released = net(images, noise)
        smooth = net(images, torch.zeros_like(noise))
    assert float(released.abs().max()) <= 1
    assert float((released - smooth).std()) == pytest.approx(0.2, rel=0.05)
    bare = ConvReleaser((1, 12, 12), 2, code=3, noisy=False, output_noise_std=0.2)
    assert bare.noise_shape == (144,)
    with pytest.raises(ShapeError, match="output_noise_std=-1"):
        ConvReleaser((1, 12, 12), 2, output_noise_std=-1)


@pytest.mark.parametrize("scale", [0.0, 1.0, 1e6, 1e30, math.inf])
@pytest.mark.law("7: a filter's certificate holds by construction")
def test_no_weights_and_no_record_make_a_code_longer_than_its_radius(scale: float) -> None:
    net = ConvReleaser((1, 8, 8), 2, code=5, capacity=3.0)
    with torch.no_grad():
        for value in net.parameters():
            value.mul_(scale)
        code = net.channel(1e3 * torch.randn(50, 1, 8, 8), torch.zeros(50, 5))
    assert bool((code.norm(dim=1) <= net.radius * (1 + 1e-6)).all())
    assert gaussian_capacity(net.radius, 5) == pytest.approx(3.0)


@pytest.mark.law("7: a filter's certificate holds by construction")
def test_the_release_is_made_from_the_code_alone() -> None:
    net = ConvReleaser((1, 8, 8), 2, code=3, output_noise_std=0.2)
    images, noise = torch.rand(4, 1, 8, 8) * 2 - 1, _noise(net, 4)
    code, released = net.coded_release(images, noise)
    assert torch.equal(code, net.channel(images, noise))
    assert torch.equal(released, net(images, noise))
    grain = 0.2 * noise[:, 3:].view_as(released)
    assert torch.equal((net.decoded(code) + grain).clamp(-1, 1), released)


@pytest.mark.parametrize("capacity", [0.0, -1.0, 81.0, math.nan])
def test_a_capacity_that_no_code_has_is_refused(capacity: float) -> None:
    with pytest.raises(InformationError, match="capacity="):
        ConvReleaser((1, 8, 8), 2, code=10, capacity=capacity)


def test_an_adversary_of_codes_takes_what_else_is_known() -> None:
    net = CodeAdversary(5, 3, generator=torch.Generator().manual_seed(0))
    codes, side = torch.randn(7, 3), torch.randn(7, 2)
    assert net(codes, side).shape == (7, 3)
    assert torch.equal(net(codes, side), net(torch.cat([codes, side], 1)))
    assert sum(p.numel() for p in CodeAdversary(10, 2).parameters()) == 67_714
