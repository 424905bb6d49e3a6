"""Every network takes every side from 16 to 128 pixels, grey and colour."""

from __future__ import annotations

import pytest
import torch

from fedlens.models.annotators import FEATURES, Annotator
from fedlens.models.critics import WganCritic
from fedlens.models.features import PatchFeatures
from fedlens.models.generators import Generator
from fedlens.models.shapes import SIDES, ShapeError, check_shape
from fedlens.models.students import ARCHITECTURES, build_student

SHAPES = [(channels, side, side) for side in (16, 20, 44, 64, 96, 104, 128) for channels in (1, 3)]


@pytest.mark.parametrize("shape", SHAPES)
def test_networks_of_every_size_fit_together(shape):
    labels = torch.tensor([0, 1, 2])
    images = Generator(shape, 3, 8)(torch.randn(3, 64), labels)
    assert images.shape == (3, *shape)
    rows = PatchFeatures(shape, 1, global_waves=8, small_waves=2, large_waves=2)(images)
    assert float(rows.norm(dim=1).max()) <= 1
    assert WganCritic(shape, 3)(images, labels).shape == (3,)
    for architecture in ARCHITECTURES:
        assert build_student(architecture, shape, 3)(images).shape == (3, 3)
    for features in FEATURES:
        annotator = Annotator(shape, 3, 4, features)
        annotator.fit_frame(images.detach(), 0.5)
        norms = annotator.rows(images).norm(dim=1)
        assert float(norms.max()) <= 1


def test_sides_are_multiples_of_four():
    assert (*range(16, 65, 4), *range(72, 129, 8)) == SIDES
    for side in (12, 15, 30, 68, 136):
        with pytest.raises(ShapeError, match="multiple of 4 from 16 to 64"):
            check_shape((1, side, side))


def test_large_images_take_no_more_memory_at_once():
    small, large = PatchFeatures((1, 28, 28), 1), PatchFeatures((3, 64, 64), 1)
    assert small.chunk == 1000
    assert large.chunk * large.dim <= 8_000_000 < (large.chunk + 1) * large.dim
