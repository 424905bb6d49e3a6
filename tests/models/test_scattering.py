"""Scattering features: size, bounds on hostile images, gradients, and what they are good for."""

import math

import pytest
import torch

from fedlens.models.moduli import DIRECTIONS
from fedlens.models.scattering import ScatteringFeatures
from fedlens.models.shapes import ShapeError

SHAPES = [(channels, side, side) for channels in (1, 3) for side in (28, 32)]


def _images(shape, n=4, seed=0):
    return torch.rand((n, *shape), generator=torch.Generator().manual_seed(seed)) * 2 - 1


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_have_the_promised_size_and_stay_finite(shape):
    features = ScatteringFeatures(shape)
    hostile = torch.cat(
        [torch.full((1, *shape), v) for v in (-1.0, 0.0, 1.0, 1e30, torch.inf, torch.nan)]
    )
    rows = features(torch.cat([hostile, _images(shape)]))
    assert rows.shape == (10, features.dim)
    assert bool(torch.isfinite(rows).all())
    assert list(features.state_dict()) == []


def test_the_documented_sizes_are_right():
    assert ScatteringFeatures((1, 28, 28)).dim == 3969
    assert ScatteringFeatures((1, 32, 32)).dim == 5184
    assert ScatteringFeatures((3, 28, 28)).dim == 3969 + 2 * 49


def test_a_row_depends_on_its_own_image_alone():
    features = ScatteringFeatures((1, 28, 28), chunk=3)
    images = _images((1, 28, 28), 7)
    alone = torch.cat([features(image[None]) for image in images])
    assert torch.allclose(features(images), alone, atol=1e-5)


def test_gradients_reach_the_pixels_even_of_flat_images():
    images = torch.cat([torch.zeros(1, 1, 28, 28), _images((1, 28, 28))]).requires_grad_(True)
    ScatteringFeatures((1, 28, 28))(images).square().sum().backward()
    assert bool(torch.isfinite(images.grad).all())
    assert float(images.grad[1:].abs().sum()) > 0


@pytest.mark.parametrize("direction", range(DIRECTIONS))
def test_a_wave_is_strongest_in_its_own_direction(direction):
    angle = direction * math.pi / DIRECTIONS
    steps = torch.arange(28.0)
    along = steps[None, :] * math.cos(angle) + steps[:, None] * math.sin(angle)
    image = torch.cos(0.375 * math.pi * along)[None, None]
    features = ScatteringFeatures((1, 28, 28))
    first = features(image)[0, 49 : 49 + 2 * DIRECTIONS * 49].view(2, DIRECTIONS, 7, 7)
    assert int(first[1, :, 3, 3].argmax()) == direction  # the wide wavelets have its frequency


def test_a_small_shift_moves_rows_less_than_another_image_does():
    features = ScatteringFeatures((1, 28, 28))
    strokes = torch.full((2, 1, 28, 28), -1.0)
    strokes[0, 0, 6:22, 13:15] = 1.0
    strokes[1, 0, 13:15, 6:22] = 1.0
    rows = features(torch.cat([strokes, strokes[:1].roll(1, 3)]))
    assert (rows[0] - rows[2]).norm() < 0.5 * (rows[0] - rows[1]).norm()


def test_images_of_another_shape_are_refused():
    with pytest.raises(ValueError, match="expected"):
        ScatteringFeatures((1, 28, 28))(torch.zeros(2, 1, 32, 32))
    with pytest.raises(ShapeError):
        ScatteringFeatures((1, 30, 30))
