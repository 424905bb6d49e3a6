"""The students' networks: sizes and explicit randomness."""

import re

import pytest
import torch

from fedlens.models.shapes import ShapeError
from fedlens.models.students import ARCHITECTURES, build_student

SHAPES = [(channels, side, side) for channels in (1, 3) for side in (28, 32)]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("shape", SHAPES)
def test_logits_for_every_class(architecture, shape):
    student = build_student(architecture, shape, 7)
    assert student(torch.zeros(3, *shape)).shape == (3, 7)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_docstring_tells_the_parameter_counts(architecture):
    kind = ARCHITECTURES[architecture]
    told = [int(n.replace(",", "")) for n in re.findall(r"\d{2,3},\d{3}", kind.__doc__)]
    counts = [
        sum(p.numel() for p in kind(shape, 10).parameters()) for shape in ((1, 28, 28), (3, 32, 32))
    ]
    assert told == counts


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_weights_come_from_the_generator_alone(architecture):
    before = torch.random.get_rng_state()

    def built(seed):
        source = torch.Generator().manual_seed(seed)
        return build_student(architecture, (1, 28, 28), 10, generator=source).state_dict()

    one, two, other = built(1), built(1), built(2)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert all(torch.isfinite(value).all() for value in one.values())
    assert not torch.equal(one["head.weight"], other["head.weight"])


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_an_answer_depends_on_its_image_alone(architecture):
    student = build_student(architecture, (1, 28, 28), 10).train()
    images = torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    before = torch.random.get_rng_state()
    assert torch.equal(student(images), student(images))
    assert torch.allclose(student(images)[:1], student(images[:1]), atol=1e-5)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_what_cannot_be_built_is_named():
    with pytest.raises(ValueError, match="architecture='vgg' is unknown: choose one of cnn"):
        build_student("vgg", (1, 28, 28), 10)
    with pytest.raises(ShapeError):
        build_student("residual", (1, 30, 30), 10)
