"""Moments of pairs from clipped, noised sums, and the releaser that is fitted on them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from models.shapes import ShapeError
from privatizers.networks.information import gaussian_capacity
from privatizers.networks.spectral import LowFrequencies, SpectralReleaser, _cosine
from privatizers.pair_moments import PairGaussians, contribution, looked_at, scaled_by
from privatizers.protocol import PrivatizerError
from studies.tradeoff.certified import certify

SHAPE = (1, 12, 10)


def source(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def unit(rows: Tensor) -> Tensor:
    return rows / rows.norm(dim=1, keepdim=True).clamp_min(1.0)


@pytest.mark.parametrize("records", [1, 3, 40])
def test_no_user_adds_more_than_the_clip(records: int) -> None:
    features, pairs = unit(torch.randn(records, 6, generator=source())), torch.zeros(records).long()
    for norm in (0.01, 2.0):
        vector = contribution(features, pairs, 4, norm)
        assert vector.shape == (4, 1 + 6 + 36) and float(vector.norm()) <= norm * (1 + 1e-6)
        assert float(looked_at(100 * features, norm).norm()) <= norm * (1 + 1e-6)
    assert not vector[1:].any(), "only the pairs that a user has"


def test_without_noise_or_clipping_moments_are_those_of_the_records() -> None:
    count, pairs = 6000, torch.arange(6000) % 2
    plain = 0.2 * torch.randn(count, 3, generator=source()) * torch.tensor([1.0, 2.0, 0.5])
    plain = unit(plain + 0.3 * (2 * pairs[:, None] - 1))
    total = contribution(plain, pairs, 2, 1e9)
    found = PairGaussians.of(total)
    drawn, asked = found.draw(60_000, source(1))
    for pair in (0, 1):
        own, other = plain[pairs == pair], drawn[asked == pair]
        torch.testing.assert_close(other.mean(0), own.mean(0), atol=0.01, rtol=0.02)
        # a tenth is the pooled covariance
        torch.testing.assert_close(torch.cov(other.T), torch.cov(own.T), atol=0.005, rtol=0.1)
    assert float((asked == 0).double().mean()) == pytest.approx(0.5, abs=0.01)


def test_a_release_that_is_noise_alone_gives_gaussians_all_the_same() -> None:
    noise = 3 * torch.randn(4, 1 + 5 + 25, generator=source())
    drawn, pairs = PairGaussians.of(noise).draw(500, source(1))
    assert bool(torch.isfinite(drawn).all()) and set(pairs.tolist()) <= set(range(4))
    with pytest.raises(PrivatizerError, match="no numbers"):
        PairGaussians.of(torch.full((4, 31), torch.nan))


def test_centre_and_scale_bring_records_to_length_about_one() -> None:
    features = LowFrequencies(SHAPE, 3)
    images = torch.randn(4000, *SHAPE, generator=source()) * 0.3 + 0.5
    raw = features.raw(images)
    centre, scale = scaled_by(torch.cat([raw.mean(0), raw.square().mean(0)]))
    features.centre.copy_(centre)
    features.scale.copy_(scale)
    found = features(images)
    assert float(found.norm(dim=1).max()) <= 1 + 1e-6
    assert float(found.mean(0).norm()) < 0.05 and 0.5 < float(found.norm(dim=1).mean()) < 0.8
    # of vectors that were not cut, the images with these features have them
    small = found * 0.5
    torch.testing.assert_close(features(features.images(small)), small, atol=1e-5, rtol=1e-4)
    with pytest.raises(ShapeError, match="highest=12"):
        LowFrequencies(SHAPE, 12)


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
