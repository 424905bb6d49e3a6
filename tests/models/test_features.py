"""Frozen features: the norm bound that privacy rests on, determinism, and usefulness."""

import math

import pytest
import torch

from fedlens.models.features import PatchFeatures
from fedlens.models.shapes import ShapeError

SHAPES = [(channels, side, side) for channels in (1, 3) for side in (28, 32)]


def _images(shape, n=5, seed=0):
    return torch.rand((n, *shape), generator=torch.Generator().manual_seed(seed)) * 2 - 1


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_have_the_promised_size_norm_and_mass(shape):
    features = PatchFeatures(shape, seed=1)
    hard = torch.cat(
        [
            _images(shape),
            torch.full((1, *shape), -1.0),
            torch.full((1, *shape), 1.0),
            _images(shape, seed=2).sign(),
            _images(shape) * 1e6,
        ]
    )
    rows = features(hard)
    assert rows.shape == (len(hard), features.dim)
    norms = rows.double().norm(dim=1)
    assert float(norms.max()) <= 1.0
    assert float(norms.min()) > 0.9
    assert torch.equal(rows[:, -1], torch.full((len(hard),), features.mass))


def test_dimensions_told_in_the_docstring():
    assert PatchFeatures((1, 28, 28), 0).dim == 6433
    assert PatchFeatures((3, 32, 32), 0).dim == 7873
    assert "6,433 for 28" in PatchFeatures.__doc__
    assert "7,873 for 32" in PatchFeatures.__doc__


def test_the_seed_alone_decides_and_nothing_is_trainable():
    before = torch.random.get_rng_state()
    images = _images((1, 28, 28))
    one = PatchFeatures((1, 28, 28), seed=5)(images)
    assert torch.equal(one, PatchFeatures((1, 28, 28), seed=5)(images))
    other = PatchFeatures((1, 28, 28), seed=6)(images)
    assert float((one - other)[:, :-1].norm(dim=1).min()) > 1.0
    assert torch.equal(torch.random.get_rng_state(), before)
    assert list(PatchFeatures((1, 28, 28), seed=5).parameters()) == []


def test_chunks_change_nothing():
    images = _images((1, 28, 28), n=7)
    whole = PatchFeatures((1, 28, 28), seed=5)(images)
    parts = PatchFeatures((1, 28, 28), seed=5, chunk=2)(images)
    torch.testing.assert_close(whole, parts)
    assert PatchFeatures((1, 28, 28), seed=5)(images[:0]).shape == (0, 6433)


def test_the_global_waves_approximate_a_gaussian_kernel():
    waves = 4000
    features = PatchFeatures((1, 28, 28), seed=3, global_waves=waves, small_waves=1, large_waves=1)
    left = _images((1, 28, 28), n=1)
    right = (left + 0.2 * _images((1, 28, 28), n=1, seed=9)).clamp(-1, 1)
    part = slice(0, 2 * waves)
    rows = features(torch.cat([left, right]))[:, part]
    rows = rows / rows.norm(dim=1, keepdim=True)
    kernel = math.exp(-float(((left - right) / 2).square().sum()) / (2 * 5.0**2))
    assert float(rows[0] @ rows[1]) == pytest.approx(kernel, abs=0.03)
    assert kernel < 0.98


def test_gradients_reach_the_images():
    images = _images((3, 32, 32), n=2).requires_grad_()
    PatchFeatures((3, 32, 32), seed=1)(images)[:, :50].sum().backward()
    assert float(images.grad.abs().sum()) > 0


def test_wrong_arguments_are_named():
    with pytest.raises(ShapeError, match="30 x 30"):
        PatchFeatures((1, 30, 30), 0)
    with pytest.raises(ValueError, match=r"mass=1\.0"):
        PatchFeatures((1, 28, 28), 0, mass=1.0)
    with pytest.raises(ValueError, match="at least 1"):
        PatchFeatures((1, 28, 28), 0, small_waves=0)
    with pytest.raises(ValueError, match="expected"):
        PatchFeatures((1, 28, 28), 0)(torch.zeros(2, 1, 32, 32))


def test_the_gradient_is_that_of_the_rows_by_finite_differences():
    """Of rows that are cut to the norm and of rows that are not."""
    waves = {"global_waves": 3, "small_waves": 1, "large_waves": 1}
    features = PatchFeatures((1, 16, 16), seed=1, **waves).double()
    images = _images((1, 16, 16), n=3).double()
    step, source = 1e-6, torch.Generator().manual_seed(4)
    weight = torch.randn(3, features.dim, generator=source, dtype=torch.float64)
    towards = torch.randn(images.shape, generator=source, dtype=torch.float64)
    grown = images.clone().requires_grad_()
    (features(grown) * weight).sum().backward()
    ahead, behind = features(images + step * towards), features(images - step * towards)
    slope = float(((ahead - behind) * weight).sum()) / (2 * step)
    assert float((grown.grad * towards).sum()) == pytest.approx(slope, rel=1e-5)
