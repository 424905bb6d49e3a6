"""Distortions: bounded, reproducible, and what they say they are."""

from __future__ import annotations

import pytest
import torch

from simulations.distortion import NONE, Distortion, distort, distortion_for, patched, shaded


def source(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def images():
    return torch.rand(40, 1, 28, 28, generator=source(3)) * 2 - 1


def test_nothing_changes_without_settings(images):
    assert distort(images, NONE, source()) is images
    assert distortion_for("a set nobody knows") == NONE


@pytest.mark.parametrize("settings", [Distortion(0.5), Distortion(patching=1.0), Distortion(1, 1)])
def test_images_stay_images_and_equal_seeds_give_equal_ones(images, settings):
    first, again = (distort(images, settings, source(1)) for _ in range(2))
    assert torch.equal(first, again)
    assert first.shape == images.shape
    assert first.abs().max() <= 1
    assert not torch.equal(first, distort(images, settings, source(2)))


def test_shading_leaves_the_background_and_varies_smoothly(images):
    images[:, :, :10] = -1
    changed = shaded(images, 1.0, source())
    assert torch.equal(changed[:, :, :10], images[:, :, :10])
    flat = shaded(torch.full_like(images, -0.5), 1.0, source())
    steps = (flat[..., 1:] - flat[..., :-1]).abs()
    assert steps.mean() < 0.5 * flat.std()


def test_a_patch_comes_from_another_image_and_the_share_is_kept():
    values = torch.linspace(-1, 1, 2000)[:, None, None, None].expand(-1, 1, 28, 28)
    changed = patched(values, 0.3, source())
    touched = (changed != values).flatten(1).any(1).float().mean()
    assert 0.25 < touched < 0.35
    whole = patched(values, 1.0, source())
    partners = torch.randperm(2000, generator=source())
    low, high = torch.minimum(values, values[partners]), torch.maximum(values, values[partners])
    assert bool(((whole >= low - 1e-6) & (whole <= high + 1e-6)).all())


@pytest.mark.parametrize("name", ["shading", "patching"])
@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_strengths_outside_their_range_are_refused(name, value):
    with pytest.raises(ValueError, match=name):
        Distortion(**{name: value})
