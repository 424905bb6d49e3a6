"""Distortions: bounded, reproducible, and what they say they are."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from fedlens.data.spec import Distortion
from fedlens.simulations.students.distortion import _field, distort, patched, shaded, warped


def source(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def images():
    return torch.rand(40, 1, 28, 28, generator=source(3)) * 2 - 1


def test_nothing_changes_without_settings(images):
    assert distort(images, Distortion(), source()) is images


@pytest.mark.parametrize(
    "settings",
    [Distortion(0.5), Distortion(patching=1.0), Distortion(warping=0.1), Distortion(1, 1, 1)],
)
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


def test_a_warp_moves_pixels_as_far_as_it_is_asked_to_and_smoothly():
    ramp = torch.linspace(-1, 1, 28).expand(500, 1, 28, 28)  # a pixel's value is where it stands
    across = warped(ramp, 0.1, source()) - ramp
    down = (warped(ramp.mT, 0.1, source()) - ramp.mT).mT  # by the same fields
    assert not torch.allclose(across, down.mT, atol=0.1)
    for changed in (across, down):
        moved = changed[..., 10:18, 10:18] * 27 / 2 / 28  # shares of the side, far from edges
        assert moved.square().mean().sqrt() == pytest.approx(0.1 / 3**0.5 * 0.8, rel=0.25)
        each = moved.flatten(1).square().mean(1).sqrt()
        assert each.min() < 0.01 < 0.06 < each.max(), "every image has its own strength"
        assert (moved[..., 1:] - moved[..., :-1]).abs().max() < moved.flatten(1).std(1).max()
    assert torch.allclose(warped(ramp, 1e-9, source()), ramp, atol=1e-5)


def test_a_warp_of_an_empty_image_is_empty_and_the_background_comes_in_at_the_edges():
    empty = torch.full((20, 1, 28, 28), -1.0)
    assert torch.equal(warped(empty, 1.0, source()), empty)
    full = warped(-empty, 1.0, source())
    assert full.min() == -1
    assert full.max() <= 1


@pytest.mark.parametrize("cells", [4, 5, 14])
def test_fields_are_a_bicubic_interpolation_of_normal_draws(cells):
    drawn = torch.randn(30, 1, cells, cells, generator=source())
    whole = F.interpolate(drawn, (28, 28), mode="bicubic", align_corners=False)
    assert torch.allclose(_field(30, cells, 28, source()), whole, atol=1e-5)


@pytest.mark.parametrize("name", ["shading", "patching", "warping"])
@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_strengths_outside_their_range_are_refused(name, value):
    with pytest.raises(ValueError, match=name):
        Distortion(**{name: value})


def test_scenes_take_the_place_of_colour_images_alone():
    images = torch.rand(200, 3, 20, 20) * 2 - 1
    found = distort(images, Distortion(scenes=0.5), torch.Generator().manual_seed(1))
    kept = (found == images).flatten(1).all(1)
    assert 60 < int(kept.sum()) < 140
    made = found[~kept]
    assert made.abs().max() <= 1 and len(made.flatten(1).unique(dim=0)) == len(made)
    again = distort(images, Distortion(scenes=0.5), torch.Generator().manual_seed(1))
    assert torch.equal(found, again)
    grey = images[:, :1]
    assert distort(grey, Distortion(scenes=0.5), torch.Generator()) is grey
