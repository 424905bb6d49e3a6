"""The generator: range, shapes, conditioning, no randomness of its own, and that it learns."""

import re

import pytest
import torch
from torch.nn import functional as F

from fedlens.models.generators import LANES, Generator

SHAPES = [(channels, side, side) for channels in (1, 3) for side in (28, 32)]


def _noise(n, latent=64, seed=0):
    return torch.randn(n, latent, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", SHAPES)
def test_images_have_the_shape_and_stay_in_range(shape):
    images = Generator(shape, 4)(_noise(8) * 10, torch.arange(8) % 4)
    assert images.shape == (8, *shape)
    assert float(images.detach().abs().max()) <= 1.0


def test_docstring_tells_the_parameter_counts():
    told = [int(n.replace(",", "")) for n in re.findall(r"\d{3},\d{3}", Generator.__doc__)]
    counts = [
        sum(p.numel() for p in Generator(shape, 10).parameters())
        for shape in ((1, 28, 28), (3, 32, 32))
    ]
    assert told == counts


def test_forward_has_no_randomness_and_the_class_matters():
    generator = Generator((1, 28, 28), 10).eval()
    noise = _noise(1)
    first = generator(noise, torch.tensor([3]))
    assert torch.equal(first, generator(noise, torch.tensor([3])))
    assert not torch.allclose(first, generator(noise, torch.tensor([4])))


def test_weights_and_statistics_come_from_the_generator_alone():
    before = torch.random.get_rng_state()
    one, two = Generator((3, 32, 32), 10), Generator((3, 32, 32), 10)
    assert torch.equal(torch.random.get_rng_state(), before)
    for name, value in one.state_dict().items():
        assert torch.equal(value, two.state_dict()[name]), name
        assert bool(torch.isfinite(value.float()).all()), name
    assert one.norm1.running_mean.abs().max() == 0
    assert torch.equal(one.norm1.running_var, torch.ones(48))


def test_it_can_learn_a_pattern_per_class():
    generator = Generator((1, 28, 28), 2, generator=torch.Generator().manual_seed(1))
    target = torch.full((2, 1, 28, 28), -1.0)
    target[0, :, :14] = 1.0
    target[1, :, :, :14] = 1.0
    labels = torch.arange(16) % 2
    optimiser = torch.optim.Adam(generator.parameters(), 1e-2)
    for step in range(60):
        optimiser.zero_grad()
        loss = F.mse_loss(generator(_noise(16, seed=step), labels), target[labels])
        loss.backward()
        optimiser.step()
    images = generator(_noise(16, seed=99), labels)
    assert float(F.mse_loss(images, target[labels]).detach()) < 0.15
    assert float(F.mse_loss(images, target[1 - labels]).detach()) > 1.0


@pytest.mark.parametrize("width", [1, 8, 48, 64, 96, 128])
def test_widths_up_and_down_have_whole_lanes(width):
    generator = Generator((1, 28, 28), 3, width)
    assert generator(_noise(6), torch.arange(6) % 3).shape == (6, 1, 28, 28)
    norms = generator.norm1, generator.norm2, generator.norm3, generator.norm4
    kept = [norm.num_features for norm in norms]
    assert kept[0] == width and all(channels % LANES == 0 for channels in kept[1:])
    assert kept[1] >= width / 2 and kept[2] >= width / 4 and kept[3] <= max(LANES, width / 8)


def test_an_image_does_not_depend_on_its_neighbours_in_evaluation_mode():
    generator = Generator((3, 32, 32), 4).eval()
    together = generator(_noise(6), torch.arange(6) % 4)
    alone = torch.cat([generator(_noise(6)[i : i + 1], torch.tensor([i % 4])) for i in range(6)])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-4)
