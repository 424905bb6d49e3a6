"""Readers of few pictures: whichever kind suits them is found, without looking at the test."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedlens.models.few_readers import PrincipalLine, _held_back, read_few, shifted
from fedlens.models.shapes import ShapeError

SIDE, STEPS = 16, 150


def _spots(n, seed):
    """A bright cross somewhere, or as much light in a plain square: only its form tells."""
    source = np.random.default_rng(seed)
    labels = torch.arange(n) % 2
    images = torch.from_numpy(source.normal(-0.5, 0.1, (n, 1, SIDE, SIDE))).float()
    for image, label in zip(images, labels, strict=True):
        y, x = source.integers(2, SIDE - 4, 2)
        if label:
            image[0, y, x - 1 : x + 4] = image[0, y - 2 : y + 3, x + 1] = 1.0
        else:
            image[0, y - 1 : y + 2, x : x + 3] = 1.0
    return images, labels


def _tilted(n, seed):
    """Much noise, and a faint pattern over the whole picture: a line through all pixels tells."""
    pattern = np.random.default_rng(0).normal(0, 0.12, (1, SIDE, SIDE))
    source = np.random.default_rng(seed)
    labels = torch.arange(n) % 2
    noise = source.normal(0, 1, (n, 1, SIDE, SIDE)) * 0.4
    return torch.from_numpy(noise).float() + torch.from_numpy(pattern).float() * (
        2 * labels[:, None, None, None] - 1
    ), labels


def _right(net, pictures):
    images, labels = pictures
    return float((net(images).argmax(1) == labels).double().mean())


def test_what_may_be_anywhere_is_read_by_convolutions():
    net = read_few((*_spots(240, 1), None), 2, STEPS, 0)
    assert not isinstance(net, PrincipalLine)
    assert _right(net, _spots(200, 2)) > 0.9


def test_a_pattern_that_lies_still_is_read_by_a_line():
    net = read_few((*_tilted(160, 1), None), 2, 20, 0)
    assert isinstance(net, PrincipalLine)
    assert _right(net, _tilted(400, 2)) > 0.8


def test_one_seed_gives_one_reader():
    images, labels = _spots(60, 1)
    first, again = (read_few((images, labels, None), 2, 10, 5) for _ in range(2))
    assert torch.equal(first(images), again(images))


def test_people_are_held_back_whole():
    owners = torch.from_numpy(np.random.default_rng(0).integers(0, 30, 200))
    apart = _held_back(200, owners, 1)
    assert not set(owners[apart].tolist()) & set(owners[~apart].tolist())
    assert len(set(owners[apart].tolist())) == 3


def test_one_person_alone_leaves_no_choice():
    images, labels = _spots(20, 1)
    found = read_few((images, labels, torch.zeros(20, dtype=torch.int64)), 2, 2, 0)
    assert found(images).shape == (20, 2)


def test_pictures_below_eight_pixels_are_refused():
    with pytest.raises(ShapeError):
        read_few((torch.zeros(4, 1, 5, 5), torch.zeros(4, dtype=torch.int64), None), 2, 2, 0)


def test_a_shifted_copy_is_the_picture_moved_with_its_edges_drawn_out():
    images = torch.arange(3 * 2 * 8 * 8).float().view(3, 2, 8, 8)
    found = shifted(images, 2, torch.Generator().manual_seed(0))
    for image, moved in zip(images.numpy(), found.numpy(), strict=True):
        wide = np.pad(image, ((0, 0), (2, 2), (2, 2)), mode="edge")
        all_moves = [wide[:, y : y + 8, x : x + 8] for y in range(5) for x in range(5)]
        assert any(np.array_equal(moved, one) for one in all_moves)
    assert len({tuple(one.flatten()[:3].tolist()) for one in found - images}) > 1
