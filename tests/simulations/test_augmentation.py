"""Changes of images: within their bounds, from their generator, without touching the original."""

import pytest
import torch

from fedlens.data.spec import Augmentation
from fedlens.simulations.students.augmentation import affine, augment, flips, mixup, moved

SHAPES = [(1, 28, 28), (3, 32, 32)]
STILL = {"rotation": 0.0, "scale": 0.0, "shear": 0.0, "shift": 0.0}


def source(seed=0):
    return torch.Generator().manual_seed(seed)


def dots(count, shape=(1, 28, 28)):
    """Images with one bright square each, off the centre."""
    images = torch.full((count, *shape), -1.0)
    images[:, :, 6:10, 16:22] = 1.0
    return images


def centre(images):
    """Mean position (row, column) of the brightness of each image, in pixels from the middle."""
    mass = (images + 1).sum(1)
    across = torch.arange(images.shape[3]) - (images.shape[3] - 1) / 2
    total = mass.sum((1, 2))
    rows = (mass.sum(2) * across).sum(1) / total
    return rows, (mass.sum(1) * across).sum(1) / total


@pytest.mark.parametrize("kind", ["affine", "flips", "none"])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_generator_decides_and_nothing_else_moves(kind, shape):
    images = dots(50, shape)
    before, copy = torch.random.get_rng_state(), images.clone()
    settings = Augmentation(kind=kind)
    one, two = augment(images, settings, source(1)), augment(images, settings, source(1))
    other = augment(images, settings, source(2))
    assert one.shape == images.shape and one.dtype == images.dtype
    assert torch.equal(one, two) and torch.equal(images, copy)
    assert torch.equal(one, other) == (kind == "none")
    assert float(one.min()) >= -1 - 1e-5 and float(one.max()) <= 1 + 1e-5
    assert torch.equal(torch.random.get_rng_state(), before)


def test_an_affine_map_that_may_not_go_anywhere_stays():
    images = dots(5)
    assert torch.allclose(affine(images, Augmentation(**STILL), source()), images, atol=1e-5)


def test_shifts_keep_within_their_bound_and_reach_for_it():
    settings = Augmentation(**{**STILL, "shift": 0.2})
    before, after = centre(dots(300)), centre(affine(dots(300), settings, source()))
    for was, now in zip(before, after, strict=True):
        moved = (now - was).abs()
        assert 0.9 * 0.2 * 14 < float(moved.max()) <= 0.2 * 14 + 1e-3


def test_rotations_keep_the_distance_from_the_middle_and_within_their_angle():
    settings = Augmentation(**{**STILL, "rotation": 0.3})
    rows, columns = centre(dots(1))
    turned_rows, turned_columns = centre(affine(dots(300), settings, source()))
    assert torch.allclose(
        turned_rows.square() + turned_columns.square(), rows**2 + columns**2, rtol=0.05
    )
    turned = torch.atan2(turned_rows, turned_columns) - torch.atan2(rows, columns)
    assert 0.27 < float(turned.abs().max()) < 0.31 and abs(float(turned.mean())) < 0.05


def test_scales_change_the_area_within_their_bound():
    settings = Augmentation(**{**STILL, "scale": 0.1})
    areas = (affine(dots(300), settings, source()) + 1).sum((1, 2, 3)) / (dots(1) + 1).sum()
    assert float(areas.max()) < 1 / 0.9**2 * 1.02 and float(areas.min()) > 1 / 1.1**2 * 0.98
    assert float(areas.max()) > 1.1


def test_what_comes_in_from_outside_is_background():
    settings = Augmentation(**{**STILL, "shift": 0.9})
    moved = affine(torch.ones(100, 1, 28, 28), settings, source())
    assert float(moved.min()) == -1.0


def test_flips_mirror_about_half_of_the_images_and_leave_the_others():
    images = dots(400)
    turned = flips(images, source())
    mirrored = torch.tensor(
        [bool(torch.equal(a, b.flip(2))) for a, b in zip(turned, images, strict=True)]
    )
    same = torch.tensor([bool(torch.equal(a, b)) for a, b in zip(turned, images, strict=True)])
    assert bool((mirrored ^ same).all()) and 150 < int(mirrored.sum()) < 250


@pytest.mark.parametrize("kind", ["affine", "flips", "none"])
def test_whatever_the_kind_images_are_moved_a_little_where_asked(kind):
    images = dots(300)
    still = augment(images, Augmentation(kind, **STILL), source())
    shaken = augment(images, Augmentation(kind, **STILL, moving=0.1), source())
    for was, now in zip(centre(still), centre(shaken), strict=True):
        ways = (now - was).abs()
        assert 1 < float(ways.max()) < 4 and float((ways > 0.05).float().mean()) > 0.8
    assert moved(images, Augmentation(kind, **STILL), source()) is images


def test_mixtures_are_what_partners_and_weights_say():
    images = torch.rand(64, 1, 28, 28, generator=source(3)) * 2 - 1
    mixed, partners, weights = mixup(images, 0.5, source())
    assert sorted(partners.tolist()) == list(range(64))
    assert float(weights.min()) >= 0 and float(weights.max()) < 0.5
    share = weights[:, None, None, None]
    assert torch.allclose(mixed, (1 - share) * images + share * images[partners], atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"kind": "rotate"}, "kind='rotate': choose one of affine, flips, none"),
        ({"rotation": -0.1}, "rotation=-0.1"),
        ({"mixing": 1.0}, "mixing=1.0"),
        ({"moving": -0.1}, "moving=-0.1"),
        ({"shift": float("nan")}, "shift=nan"),
    ],
)
def test_wrong_settings_are_named(settings, said):
    with pytest.raises(ValueError, match=said):
        Augmentation(**settings)
