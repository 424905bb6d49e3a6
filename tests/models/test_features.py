"""Frozen features: the norm bound that privacy rests on, determinism, and usefulness."""

import math

import pytest
import torch

from models.features import PatchFeatures, class_embedding
from models.shapes import ShapeError

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


def test_embedding_is_sums_per_class_over_all_records():
    rows = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]])
    embedding = class_embedding(rows, torch.tensor([2, 0, 2, 2]), 3)
    expected = torch.tensor([[3.0, 4.0], [0.0, 0.0], [13.0, 16.0]]) / 4
    torch.testing.assert_close(embedding, expected)


@pytest.mark.parametrize("labels", [[0, 0, 0, 0, 0], [0, 1, 2, 3, 4], [0, 0, 1, 1, 1]])
def test_one_users_contribution_has_norm_at_most_one_and_tells_class_shares(labels):
    features = PatchFeatures((1, 28, 28), seed=4)
    labels = torch.tensor(labels)
    embedding = class_embedding(features(_images((1, 28, 28))), labels, 5)
    assert float(embedding.double().norm()) <= 1.0
    shares = torch.bincount(labels, minlength=5) / 5
    torch.testing.assert_close(embedding[:, -1] / features.mass, shares)


def test_embedding_refuses_what_would_break_its_bound():
    rows = torch.ones(2, 3)
    with pytest.raises(ValueError, match=r"0 to 3, outside 0\.\.2"):
        class_embedding(rows, torch.tensor([0, 3]), 3)
    with pytest.raises(ValueError, match="2 feature rows and 1 labels"):
        class_embedding(rows, torch.tensor([0]), 3)
    with pytest.raises(ValueError, match="0 feature rows"):
        class_embedding(rows[:0], torch.tensor([], dtype=torch.int64), 3)


@pytest.mark.parametrize("shape", SHAPES)
def test_each_coordinate_is_the_cosine_it_is_said_to_be(shape):
    features, images = PatchFeatures(shape, seed=6), _images(shape, n=3)
    pixels = (images + 1) / 2
    angles = pixels.flatten(1) @ features.global_weight
    banks = [torch.cat([angles.cos(), angles.sin()], 1) / math.sqrt(768)]
    for name, stride in (("small", 3), ("large", 4)):
        weight, phase = getattr(features, f"{name}_weight"), getattr(features, f"{name}_phase")
        waves = torch.conv2d(pixels, weight, phase, stride=stride, padding=stride).flatten(1).cos()
        banks.append(waves * math.sqrt(2 / waves.shape[1]))
    rows = torch.cat(banks, 1) / math.sqrt(3)
    longest = math.sqrt(1 - features.mass**2)
    rows = rows * (longest / rows.norm(dim=1, keepdim=True).clamp(min=1.0))
    torch.testing.assert_close(features(images)[:, :-1], rows, atol=1e-6, rtol=1e-4)
