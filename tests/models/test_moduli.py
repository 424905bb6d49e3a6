"""Strength of waves: what a convolution with every wavelet says, gradients, precision."""

import math

import pytest
import torch
from torch.nn import functional as F

from fedlens.models.moduli import DIRECTIONS, LEAST, Waves, _wavelet, moduli

BANKS = [
    Waves(28, 1, 7, 0.8, 0.75 * math.pi),
    Waves(28, 2, 11, 1.6, 0.375 * math.pi),
    Waves(14, 1, 7, 0.8, 0.75 * math.pi),
    Waves(22, 1, 7, 0.8, 0.75 * math.pi),
]


def maps_of(waves, count=3):
    source = torch.Generator().manual_seed(waves.side)
    return torch.rand(count, waves.side, waves.side, generator=source)


def by_convolution(maps, waves):
    """Each of the wavelets, of all angles, over double-precision maps; rows come before angles."""
    kernels = torch.stack([_wavelet(waves, i * math.pi / DIRECTIONS) for i in range(DIRECTIONS)])
    bank = torch.cat([kernels.real, kernels.imag])[:, None]
    found = F.conv2d(maps.double()[:, None], bank, stride=waves.stride, padding=waves.size // 2)
    real, imaginary = found.chunk(2, 1)
    return (real.square() + imaginary.square() + LEAST).sqrt().transpose(1, 2)


@pytest.mark.parametrize("waves", BANKS, ids=str)
def test_it_is_the_modulus_of_a_convolution_with_every_wavelet(waves):
    maps = maps_of(waves)
    found = moduli(maps, waves)
    assert found.shape == (3, waves.places, DIRECTIONS, waves.places)
    torch.testing.assert_close(found.double(), by_convolution(maps, waves), atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("waves", BANKS, ids=str)
def test_its_gradient_is_that_of_the_convolution(waves):
    maps = maps_of(waves)
    weight = torch.randn(3, waves.places, DIRECTIONS, waves.places, generator=torch.Generator())
    found, expected = maps.clone().requires_grad_(), maps.clone().requires_grad_()
    (moduli(found, waves) * weight).sum().backward()
    (by_convolution(expected, waves) * weight).sum().backward()
    torch.testing.assert_close(found.grad, expected.grad, atol=1e-4, rtol=1e-3)


def test_upside_down_the_mirrored_directions_change_places():
    waves = BANKS[0]
    maps = maps_of(waves)
    upright, turned = moduli(maps, waves), moduli(maps.flip(1), waves)
    mirrored = [-number % DIRECTIONS for number in range(DIRECTIONS)]
    torch.testing.assert_close(turned.flip(1), upright[:, :, mirrored], atol=2e-6, rtol=1e-5)


def test_who_asks_first_in_bfloat16_spoils_it_for_no_one_in_float32():
    """As a run does that goes on in its guided steps."""
    waves = Waves(20, 1, 7, 0.8, 0.75 * math.pi)  # of no other test
    low, maps = maps_of(waves).requires_grad_(), maps_of(waves)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        moduli(low, waves).sum().backward()
    found = moduli(maps, waves)
    torch.testing.assert_close(found.double(), by_convolution(maps, waves), atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("waves", BANKS, ids=str)
def test_in_bfloat16_it_and_its_gradient_are_as_exact_as_that_type(waves):
    maps = maps_of(waves)
    found, expected = maps.clone().requires_grad_(), maps.clone().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        strength = moduli(found, waves)
    exact = by_convolution(expected, waves)
    assert strength.dtype == torch.bfloat16
    strength.float().square().sum().backward()
    exact.square().sum().backward()
    assert (strength.double() - exact).norm() < 0.01 * exact.norm()
    assert (found.grad - expected.grad).norm() < 0.03 * expected.grad.norm()
