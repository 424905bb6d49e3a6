"""The critic: sizes, independence of examples, per-example gradients, explicit randomness."""

import re

import pytest
import torch
from torch.func import functional_call, grad, vmap

from fedlens.models.critics import WganCritic
from fedlens.models.shapes import ShapeError

SHAPES = [(channels, side, side) for channels in (1, 3) for side in (28, 32)]


def _batch(shape, n=6, classes=5):
    source = torch.Generator().manual_seed(3)
    images = torch.rand((n, *shape), generator=source) * 2 - 1
    return images, torch.arange(n) % classes


def _count(module):
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize("shape", SHAPES)
def test_scores_one_number_per_image(shape):
    scores = WganCritic(shape, 5)(*_batch(shape))
    assert scores.shape == (6,)
    assert scores.dtype == torch.float32


def test_docstring_tells_the_parameter_counts():
    told = [int(n.replace(",", "")) for n in re.findall(r"\d\d,\d{3}", WganCritic.__doc__)]
    assert told == [_count(WganCritic((1, 28, 28), 10)), _count(WganCritic((3, 32, 32), 10))]


def test_an_image_is_scored_alike_alone_and_in_a_batch():
    critic = WganCritic((1, 28, 28), 5)
    images, labels = _batch((1, 28, 28))
    alone = torch.cat([critic(images[i : i + 1], labels[i : i + 1]) for i in range(6)])
    torch.testing.assert_close(critic(images, labels), alone)


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32)])
def test_vmapped_gradients_equal_one_at_a_time(shape):
    critic = WganCritic(shape, 5)
    images, labels = _batch(shape, n=3)
    weights = dict(critic.named_parameters())

    def score(weights, image, label):
        return functional_call(critic, weights, (image[None], label[None]))[0]

    together = vmap(grad(score), in_dims=(None, 0, 0))(weights, images, labels)
    for i in range(3):
        critic.zero_grad()
        critic(images[i : i + 1], labels[i : i + 1]).sum().backward()
        for name, weight in critic.named_parameters():
            torch.testing.assert_close(together[name][i], weight.grad, rtol=1e-4, atol=1e-5)


def test_the_label_changes_the_score_and_only_its_own_head_learns():
    critic = WganCritic((1, 28, 28), 5)
    images, _ = _batch((1, 28, 28), n=1)
    scores = torch.stack([critic(images, torch.tensor([c])) for c in range(5)])
    assert len(scores.unique()) == 5
    critic(images, torch.tensor([2])).sum().backward()
    touched = critic.head.weight.grad.abs().sum(1) > 0
    assert touched.tolist() == [True, False, False, True, False, False]


def test_weights_come_from_the_generator_alone():
    before = torch.random.get_rng_state()
    first = WganCritic((1, 28, 28), 10, generator=torch.Generator().manual_seed(1))
    again = WganCritic((1, 28, 28), 10, generator=torch.Generator().manual_seed(1))
    other = WganCritic((1, 28, 28), 10, generator=torch.Generator().manual_seed(2))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(first.conv1.weight, again.conv1.weight)
    assert not torch.equal(first.conv1.weight, other.conv1.weight)
    plain = WganCritic((1, 28, 28), 10)
    assert torch.equal(plain.dense.weight, WganCritic((1, 28, 28), 10).dense.weight)


def test_signal_keeps_its_size_through_the_selu_layers():
    critic = WganCritic((1, 28, 28), 10, width=32, hidden=256)
    images = torch.randn(64, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    scores = critic(images, torch.arange(64) % 10)
    assert 0.3 < float(scores.detach().std()) < 5


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ((2, 28, 28), "2 channels"),
        ((1, 28, 32), "28 x 32"),
        ((1, 68, 68), "68 x 68"),
        ((1, 30, 30), "multiple of 4"),
    ],
)
def test_other_shapes_are_refused_with_the_fix(shape, said):
    with pytest.raises(ShapeError, match=said):
        WganCritic(shape, 10)


def test_a_shape_needs_three_numbers_and_a_class_is_needed():
    with pytest.raises(ShapeError, match="channels, height, width"):
        WganCritic((28, 28), 10)
    with pytest.raises(ShapeError, match="classes=0"):
        WganCritic((1, 28, 28), 0)
