"""Moments of pairs from clipped, noised sums, and the releaser that is fitted on them."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from fedlens.models.shapes import ShapeError
from fedlens.privatizers.networks.information import gaussian_capacity
from fedlens.privatizers.networks.spectral import LowFrequencies, SpectralReleaser, _cosine
from fedlens.privatizers.pair_moments import (
    SQUARES,
    WEIGHTS,
    PairGaussians,
    contribution,
    looked_at,
    scaled_by,
    width_of,
)
from fedlens.privatizers.protocol import PrivatizerError
from fedlens_research.tradeoff.certified import certify

SHAPE = (1, 12, 10)


def source(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def unit(rows: Tensor) -> Tensor:
    return rows / rows.norm(dim=1, keepdim=True).clamp_min(1.0)


def summed(features: Tensor, pairs: Tensor, count: int) -> Tensor:
    return contribution(features, pairs, torch.ones(len(pairs)), count)


def test_a_block_is_as_long_as_the_whole_matrix_of_products() -> None:
    features, pairs = unit(torch.randn(3, 6, generator=source())), torch.tensor([1, 1, 3])
    vector = summed(features, pairs, 4)
    assert vector.shape == (4, width_of(6)) and not vector[[0, 2]].any()
    first, second, third = WEIGHTS
    own = features[:2]
    whole = torch.cat([torch.tensor([2 * first]), second * own.sum(0),
                       third * (own.mT @ own).flatten()])  # fmt: skip
    assert float(vector[1].norm()) == pytest.approx(float(whole.norm()), rel=1e-5)
    most = math.sqrt(first**2 + second**2 + third**2)
    assert float(summed(own[:1], pairs[:1], 4).norm()) <= most


def test_a_record_that_is_not_there_adds_nothing() -> None:
    features, pairs = unit(torch.randn(3, 6, generator=source())), torch.tensor([1, 1, 3])
    padded = contribution(features, pairs, torch.tensor([1.0, 0.0, 0.0]), 4)
    assert torch.equal(padded, summed(features[:1], pairs[:1], 4))
    frequencies = unit(torch.randn(3, 6, generator=source()))
    shares = torch.tensor([0.5, 0.5, 0.0])
    seen = looked_at(frequencies, shares)
    torch.testing.assert_close(seen, looked_at(frequencies[:2], shares[:2]))
    assert float(seen.norm()) <= math.sqrt(1 + SQUARES**2)


def test_without_noise_or_clipping_moments_are_those_of_the_records() -> None:
    count, pairs = 6000, torch.arange(6000) % 2
    plain = 0.2 * torch.randn(count, 3, generator=source()) * torch.tensor([1.0, 2.0, 0.5])
    plain = unit(plain + 0.3 * (2 * pairs[:, None] - 1))
    found = PairGaussians.of(summed(plain, pairs, 2), 3, 0.0)
    drawn, asked = found.draw(60_000, source(1))
    for pair in (0, 1):
        own, other = plain[pairs == pair], drawn[asked == pair]
        torch.testing.assert_close(other.mean(0), own.mean(0), atol=0.01, rtol=0.02)
        # a tenth is the pooled covariance
        torch.testing.assert_close(torch.cov(other.T), torch.cov(own.T), atol=0.005, rtol=0.1)
    assert float((asked == 0).double().mean()) == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("deviation", [0.0, 3.0])
def test_a_release_that_is_noise_alone_gives_gaussians_all_the_same(deviation: float) -> None:
    noise = 3 * torch.randn(4, width_of(5), generator=source())
    drawn, pairs = PairGaussians.of(noise, 5, deviation).draw(500, source(1))
    assert bool(torch.isfinite(drawn).all()) and set(pairs.tolist()) <= set(range(4))
    with pytest.raises(PrivatizerError, match="no numbers"):
        PairGaussians.of(torch.full((4, width_of(5)), torch.nan), 5, deviation)


def test_centre_and_scale_bring_records_to_length_about_one() -> None:
    features = LowFrequencies(SHAPE, 3)
    images = (torch.randn(4000, *SHAPE, generator=source()) * 0.3 + 0.5).clamp(-1, 1)
    raw = features.raw(images) / features.reach
    assert float(raw.norm(dim=1).max()) <= 1
    seen = looked_at(raw, torch.full((4000,), 1 / 4000))
    for name, value in zip(("centre", "scale"), scaled_by(seen, features.reach), strict=True):
        getattr(features, name).copy_(value)
    found = features(images)
    assert float(found.norm(dim=1).max()) <= 1 + 1e-6
    assert float(found.mean(0).norm()) < 0.05 and 0.5 < float(found.norm(dim=1).mean()) < 0.8
    # of vectors that were not cut, the images with these features have them
    small = found * 0.5
    torch.testing.assert_close(features(features.images(small)), small, atol=1e-5, rtol=1e-4)
    with pytest.raises(ShapeError, match="highest=12"):
        LowFrequencies(SHAPE, 12)


@pytest.mark.parametrize("release", [torch.zeros(8), torch.full((8,), -5.0), torch.randn(8) * 100])
def test_any_release_gives_a_finite_centre_and_scales_above_0(release: Tensor) -> None:
    centre, scale = scaled_by(release, 28.0)
    assert bool(torch.isfinite(centre).all()) and bool(torch.isfinite(scale).all())
    assert bool((scale > 0).all())


def test_a_spectral_releaser_sees_low_frequencies_through_a_bounded_code() -> None:
    net = SpectralReleaser(LowFrequencies(SHAPE, 3), 8, code=4, capacity=2.0, choices=1)
    images, noise = torch.rand(3, *SHAPE, generator=source()), torch.randn(3, 4)
    code, released = net.coded_release(images, noise)
    assert released.shape == images.shape and float(released.abs().max()) <= 1
    # a frequency that is not kept
    rough = torch.outer(_cosine(6, 12), _cosine(1, 10))
    torch.testing.assert_close(net.channel(images + rough, noise), code, atol=1e-4, rtol=0)
    smooth = torch.outer(_cosine(1, 12), _cosine(1, 10))
    assert not torch.allclose(net.channel(images + smooth, noise), code, atol=1e-2)
    assert bool(((code - noise).norm(dim=1) <= net.radius * (1 + 1e-6)).all())
    assert certify(net, images).nats == pytest.approx(2.0)
    assert gaussian_capacity(net.radius, 4) == pytest.approx(2.0)
    choice = torch.tensor([[0.0], [1.0], [1.0]])
    sent = net(images, noise, choice)
    assert torch.equal(sent[0], images[0]) and torch.equal(sent[1:], released[1:])
