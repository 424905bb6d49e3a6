"""Oriented-gradient features and the annotator on them: bounds, gradients, travel, usefulness."""

import pytest
import torch
from torch.nn import functional as F

from fedlens.data.embedded import load_embedded
from fedlens.models.annotators import CONSTANT, FEATURES, Annotator
from fedlens.models.orientations import BINS, FINE, OrientationFeatures
from fedlens.models.shapes import ShapeError
from fedlens.models.weights import load_vector, to_vector

SHAPES = [(channels, side, side) for channels in (1, 3) for side in (28, 32)]


def _images(shape, n=8, seed=0):
    return torch.rand((n, *shape), generator=torch.Generator().manual_seed(seed)) * 2 - 1


def _hostile(shape):
    flat = [torch.full((1, *shape), v) for v in (-1.0, 0.0, 1.0, 1e6, -1e30, torch.inf, torch.nan)]
    half_broken = _images(shape, 1)
    half_broken[..., 0, :] = torch.nan
    return torch.cat([*flat, half_broken, _images(shape) * 1e6, _images(shape).sign()])


def _annotator(shape=(1, 28, 28), components=20, features="orientations"):
    return Annotator(shape, 10, components, features)


def _digits(n):
    dataset = load_embedded()
    scaled = torch.from_numpy(dataset.train_images[:n].copy()).float() / 127.5 - 1
    return scaled, torch.from_numpy(dataset.train_labels[:n].copy())


@pytest.mark.parametrize("shape", SHAPES)
def test_features_have_the_promised_size_and_stay_finite(shape):
    features = OrientationFeatures(shape)
    rows = features(_hostile(shape))
    assert rows.shape == (len(_hostile(shape)), features.dim)
    assert bool(torch.isfinite(rows).all())
    assert f"{features.dim:,} for {shape}" in OrientationFeatures.__doc__.replace("\n    ", " ")
    assert list(features.state_dict()) == []


def _stripes(angle):
    """A brightness that rises towards ``angle`` (radians), dark to bright."""
    across = torch.linspace(-1, 1, 28)
    ramp = across[None, :] * torch.cos(angle) + across[:, None] * torch.sin(angle)
    return (ramp / 2)[None, None]


@pytest.mark.parametrize("step", range(BINS))
def test_a_slope_fills_the_bin_of_its_direction(step):
    angle = torch.tensor(step * 2 * torch.pi / BINS)
    fine = OrientationFeatures((1, 28, 28))(_stripes(angle))[0, : BINS * FINE.places(28) ** 2]
    middle = fine.view(BINS, FINE.places(28), FINE.places(28))[:, 4, 4]
    assert int(middle.argmax()) == step
    assert float(middle[step]) > 0.3
    assert float(middle[(step + BINS // 2) % BINS]) < 1e-3


def test_cells_scale_their_strength_away_but_keep_it_beside():
    features = OrientationFeatures((1, 28, 28))
    full, half = features(_images((1, 28, 28), 1)), features(_images((1, 28, 28), 1) / 2)
    fine = BINS * FINE.places(28) ** 2
    inner = torch.zeros(BINS, FINE.places(28), FINE.places(28), dtype=torch.bool)
    inner[:, 1:-1, 1:-1] = True  # at the rim the dark outside weighs in
    of_fine = inner.flatten()
    ratio = half[0, :fine][of_fine].norm() / full[0, :fine][of_fine].norm()
    assert float(ratio) > 0.8
    strength = slice(-fine - 64, -64)
    kept = half[0, strength][of_fine].norm() / full[0, strength][of_fine].norm()
    assert float(kept) == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("shape", SHAPES)
def test_features_are_differentiable_flat_images_included(shape):
    images = torch.cat([_images(shape, 2), torch.full((1, *shape), -1.0)]).requires_grad_()
    OrientationFeatures(shape)(images).square().sum().backward()
    assert bool(torch.isfinite(images.grad).all())
    assert bool((images.grad.flatten(1).abs().sum(1) > 0)[:2].all())


def test_the_gradient_is_that_of_the_values():
    features = OrientationFeatures((1, 28, 28)).double()
    images = (_images((1, 28, 28), 2) * 0.9).double().requires_grad_()
    target = torch.randn(2, features.dim, generator=torch.Generator().manual_seed(1)).double()
    (features(images) * target).sum().backward()
    way = _images((1, 28, 28), 2, seed=3).double() * 1e-6
    with torch.no_grad():
        ahead, behind = features(images + way), features(images - way)
    slope = float(((ahead - behind) / 2 * target).sum())
    assert float((images.grad * way).sum()) == pytest.approx(slope, rel=1e-3)


def test_chunks_change_nothing():
    images = _images((1, 28, 28), 7)
    parts = OrientationFeatures((1, 28, 28), chunk=3)(images)
    torch.testing.assert_close(OrientationFeatures((1, 28, 28))(images), parts)


@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("shape", [SHAPES[0], SHAPES[-1]])
def test_rows_are_bounded_whatever_comes_in(shape, features):
    annotator = _annotator(shape, features=features)
    for images in (_images(shape, 40), torch.zeros(5, *shape)):
        annotator.fit_frame(images, 0.5)
        rows = annotator.rows(_hostile(shape))
        assert bool(torch.isfinite(rows).all())
        assert float(rows.double().norm(dim=1).max()) <= 1.0
        assert torch.equal(rows[:, -1], torch.full((len(rows),), CONSTANT))


def test_rows_without_a_frame_and_of_the_frames_own_center_are_the_constant_alone():
    annotator = _annotator()
    assert float(annotator.rows(_images((1, 28, 28)))[:, :-1].abs().max()) == 0
    image = _images((1, 28, 28), 1)
    annotator.fit_frame(image.repeat(3, 1, 1, 1), 1.0)
    own = image.clone().requires_grad_()
    annotator.rows(own).sum().backward()
    assert bool(torch.isfinite(own.grad).all())


def test_a_hostile_frame_cannot_lift_the_bound():
    annotator = _annotator()
    annotator.projection.fill_(3e38)
    annotator.scale.fill_(torch.inf)
    rows = annotator.rows(_images((1, 28, 28)))
    assert bool(torch.isfinite(rows).all())
    assert float(rows.double().norm(dim=1).max()) <= 1.0


def test_the_frame_centers_and_decorrelates():
    images = _digits(600)[0]
    annotator = _annotator(components=30)
    spreads = {}
    for p in (0.0, 0.5, 1.0):
        annotator.fit_frame(images, p)
        standard = annotator._standardised(annotator.features(images))
        turned = standard @ annotator.projection
        variances = turned.var(0)
        spreads[p] = float(variances.max() / variances.min())
        shared = torch.corrcoef(turned.mT) - torch.eye(30)
        assert float(shared.abs().max()) < 0.1
    assert spreads[0.0] > 3 * spreads[0.5] > 9 * spreads[1.0] / 3
    assert spreads[1.0] < 2


@pytest.mark.parametrize("features", FEATURES)
def test_the_whole_annotator_travels_as_one_vector(features):
    annotator = _annotator(features=features)
    annotator.fit_frame(_images((1, 28, 28), 30), 0.5)
    annotator.weight.copy_(torch.randn(10, 21, generator=torch.Generator().manual_seed(1)))
    vector = to_vector(annotator)
    assert len(vector) == annotator.features.dim * (2 + 20) + 10 * 21
    other = _annotator(features=features)
    assert other.frame_digest() != annotator.frame_digest()
    load_vector(other, vector)
    assert other.frame_digest() == annotator.frame_digest()
    images = _images((1, 28, 28), 3, seed=5)
    assert torch.equal(other(images), annotator(images))
    with pytest.raises(ValueError, match="a vector of shape"):
        load_vector(_annotator(components=21, features=features), vector)


def test_the_digest_tells_frames_apart_but_not_weights():
    annotator = _annotator()
    annotator.fit_frame(_images((1, 28, 28), 30), 0.5)
    digest = annotator.frame_digest()
    annotator.weight.fill_(1.0)
    assert annotator.frame_digest() == digest
    annotator.fit_frame(_images((1, 28, 28), 30, seed=1), 0.5)
    assert annotator.frame_digest() != digest


def test_a_few_hundred_digits_teach_it_the_others():
    images, labels = _digits(1400)
    annotator = _annotator(components=60)
    annotator.fit_frame(images[:400], 0.5)
    rows = annotator.rows(images)
    for _ in range(60):
        errors = torch.softmax(rows[:400] @ annotator.weight.mT, 1) - F.one_hot(labels[:400], 10)
        annotator.weight.sub_(60 * errors.mT @ rows[:400] / 400)
    right = (annotator(images[400:]).argmax(1) == labels[400:]).float().mean()
    assert float(right) > 0.85


def test_logits_are_differentiable_in_the_images():
    annotator = _annotator()
    annotator.fit_frame(_digits(100)[0], 0.5)
    annotator.weight.copy_(torch.randn(10, 21, generator=torch.Generator().manual_seed(1)))
    images = _images((1, 28, 28), 4).requires_grad_()
    F.cross_entropy(annotator(images), torch.arange(4)).backward()
    assert bool(torch.isfinite(images.grad).all())
    assert bool((images.grad.flatten(1).abs().sum(1) > 0).all())


def test_wrong_arguments_are_named():
    with pytest.raises(ShapeError, match="30 x 30"):
        OrientationFeatures((1, 30, 30))
    with pytest.raises(ValueError, match="expected"):
        OrientationFeatures((1, 28, 28))(torch.zeros(2, 1, 32, 32))
    for components in (0, 1489):
        with pytest.raises(ValueError, match=f"components={components} .* 1488"):
            _annotator(components=components)
    with pytest.raises(ValueError, match="features='pixels' must be one of"):
        _annotator(features="pixels")
    annotator = _annotator()
    with pytest.raises(ValueError, match="2 synthetic images or more, not 1"):
        annotator.fit_frame(torch.zeros(1, 1, 28, 28), 0.5)
    with pytest.raises(ValueError, match=r"decorrelation=-0\.5"):
        annotator.fit_frame(torch.zeros(2, 1, 28, 28), -0.5)
