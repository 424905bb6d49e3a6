"""A user's card against plain loops over pixels, and its bound whatever a user holds."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import ndimage

from fedlens.foundation.errors import WrongUse
from fedlens.models.cards.expectations import parse_expectations
from fedlens.models.cards.measures import copies, equal_pictures, measure_pictures, thumbnails
from fedlens.models.cards.statistics import RECORDS_NORM, card_layout
from fedlens.models.cards.vectors import card_vector
from fedlens.models.shapes import from_pixels
from fedlens.server.config.card import CardConfig

GREY, COLOUR = (1, 28, 28), (3, 32, 32)


def pictures(count, shape=GREY, seed=0):
    """Blobs of several sizes and places, as bytes."""
    source = np.random.default_rng(seed)
    noise = source.integers(0, 256, (count, *shape)).astype(float)
    smooth = ndimage.gaussian_filter(noise, (0, 0, 2, 2))
    places = np.linspace(0, 1, shape[1 + 1])
    across = np.exp(-((places - source.uniform(0.3, 0.7, (count, 1, 1, 1))) ** 2) / 0.05)
    return np.clip((smooth - 90) * 4 * across, 0, 255).astype(np.uint8)


def measured(pixels):
    return {k: v.double().numpy() for k, v in measure_pictures(from_pixels(pixels)).items()}


@pytest.mark.parametrize("shape", [GREY, COLOUR])
def test_pictures_are_measured_as_numpy_and_scipy_do(shape):
    pixels = pictures(6, shape)
    found = measured(pixels)
    for i, picture in enumerate(pixels):
        grey = picture.mean(0) / 255
        side = shape[1]
        assert found["brightness"][i] == pytest.approx(grey.mean(), abs=1e-5)
        assert found["contrast"][i] == pytest.approx(np.std(grey), abs=1e-5)
        assert found["highest"][i] == picture.max()
        levels = np.rint(np.float32(picture.astype(np.float32).mean(0) / 255) * 255)
        assert found["levels"][i] == len(np.unique(levels))
        counted, _ = np.histogram(levels, np.arange(0, 257, 16))
        np.testing.assert_allclose(found["pixels"][i], counted / grey.size, atol=1e-6)
        row, column = ndimage.center_of_mass(grey + 1e-6)
        assert found["centre_down"][i] == pytest.approx((row + 0.5) / side, abs=1e-4)
        assert found["centre_across"][i] == pytest.approx((column + 0.5) / side, abs=1e-4)
        wide = round(side / 14)
        inner = np.pad(np.ones((side - 2 * wide,) * 2), wide)
        assert found["border"][i] == pytest.approx(grey[inner == 0].mean(), abs=1e-5)
        rough = ndimage.laplace(grey)[1:-1, 1:-1]
        steps = math.sqrt((np.diff(grey) ** 2).mean() + (np.diff(grey.T) ** 2).mean())
        assert found["gradients"][i] == pytest.approx(steps, rel=1e-4)
        sharp = math.sqrt((rough**2).mean()) / (2 * steps)
        assert found["sharpness"][i] == pytest.approx(sharp, rel=1e-4)
        if shape is COLOUR:
            for name, channel in zip(("red", "green", "blue"), picture, strict=True):
                beyond = (channel.mean() - picture.mean()) / 255
                assert found[name][i] == pytest.approx(beyond, abs=1e-5)


@pytest.mark.parametrize("degrees", [-60, -20, 0, 35, 80])
def test_the_turn_is_that_of_a_bar(degrees):
    down, across = np.mgrid[:28, :28] - 13.5
    angle = math.radians(degrees)
    off = across * math.cos(angle) - down * math.sin(angle)
    bar = np.exp(-(off**2) / 4 - (across**2 + down**2) / 60)
    found = measured((bar * 255).astype(np.uint8)[None, None])
    assert found["turn"][0] == pytest.approx(degrees, abs=1)
    spread = (bar * (across**2 + down**2)).sum() / bar.sum()
    assert found["size"][0] == pytest.approx(math.sqrt(spread) / 28, abs=0.01)


def test_copies_are_told_from_what_is_nearly_alike_and_from_absent_records():
    one, other = pictures(2, seed=3)
    nearly = np.clip(one.astype(int) + 3, 0, 255).astype(np.uint8)
    images = from_pixels(np.stack([one, other, one, nearly, other]))
    present = torch.tensor([True, True, True, True, False])
    exact, near = copies(equal_pictures(images), thumbnails(images), present)
    assert exact.tolist() == [False, False, True, False, False]
    assert near.tolist() == [False, False, False, True, False]


def vector(pixels, labels, classes=10, records=12):
    shape = pixels.shape[1:]
    images = torch.zeros(records, *shape)
    images[: len(pixels)] = from_pixels(pixels)
    named = torch.zeros(records, dtype=torch.int64)
    named[: len(labels)] = torch.tensor(labels)
    layout = card_layout(shape, classes)
    return card_vector(images, named, torch.arange(records) < len(pixels), layout), layout


def test_a_users_bins_are_counted_by_hand():
    found, layout = vector(pictures(4), [3, 3, 7, 1])
    own = {
        one.name: (one, found[layout.places[one.name]] / one.weight) for one in layout.statistics
    }
    cut = float(own["classes"][1].sum())  # all histograms of records are cut alike
    np.testing.assert_allclose(own["classes"][1] / cut, np.eye(10)[[3, 3, 7, 1]].mean(0), atol=1e-6)
    numbers = measured(pictures(4))
    for name in ("brightness", "contrast", "levels", "turn", "centre_down"):
        one, bins = own[name]
        counted, _ = np.histogram(numbers[name], one.edges)
        np.testing.assert_allclose(bins / cut, counted / 4, atol=1e-6)
    assert own["records"][1].nonzero().flatten().tolist() == [2]  # 3 to 4
    assert own["user_classes"][1].nonzero().flatten().tolist() == [2]  # 3
    assert own["largest_share"][1].nonzero().flatten().tolist() == [5]  # 0.5 to 0.6
    assert float(own["duplicates"][1].abs().sum()) == 0.0


def test_one_who_holds_one_picture_many_times_holds_copies():
    found, layout = vector(np.repeat(pictures(1), 10, 0), [2] * 10)
    assert found[layout.places["duplicates"]].tolist() == pytest.approx([1.25, 0.0])


def test_one_without_records_adds_nothing():
    found, _ = vector(pictures(0), [])
    assert float(found.abs().sum()) == 0.0


@pytest.mark.law("1: one user moves a sum by at most the clip")
@given(
    st.integers(0, 12),
    st.sampled_from(["blobs", "alike", "black", "white", "noise"]),
    st.sampled_from([(GREY, 10), (GREY, 1), (COLOUR, 4), (COLOUR, 1)]),
)
def test_no_user_exceeds_the_bound_or_sends_a_number_below_zero(held, kind, data):
    shape, classes = data
    pixels = {
        "blobs": pictures(held, shape),
        "alike": np.repeat(pictures(1, shape), held, 0),
        "black": np.zeros((held, *shape), np.uint8),
        "white": np.full((held, *shape), 255, np.uint8),
        "noise": np.random.default_rng(1).integers(0, 256, (held, *shape)).astype(np.uint8),
    }[kind]
    found, layout = vector(pixels, [0] * held, classes)
    of_users = next(layout.places[one.name].start for one in layout.statistics if one.of_users)
    assert len(found) == layout.size and bool(torch.isfinite(found).all())
    assert float(found.min()) >= 0
    assert float(found[:of_users].norm()) <= RECORDS_NORM * (1 + 1e-6)
    assert float(found.norm()) <= layout.longest * (1 + 1e-6)
    assert layout.longest <= CardConfig().clipping_norm


@pytest.mark.parametrize(
    "text",
    ["duplicates", "sharks < 1%", "duplicates = 2", "classes[3] = uniform", "brightness < x"],
)
def test_what_is_expected_in_another_form_is_refused(text):
    with pytest.raises(WrongUse, match="expect"):
        parse_expectations(text)


def test_expectations_are_read():
    found = parse_expectations("classes = uniform, duplicates < 2%,classes[3]>.05")
    assert [(one.name, one.sign, one.limit, one.place) for one in found] == [
        ("classes", "=", 0.0, None),
        ("duplicates", "<", 0.02, None),
        ("classes", ">", 0.05, 3),
    ]
