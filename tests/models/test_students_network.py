"""The student network: sizes and explicit randomness."""

import re

import pytest
import torch

from models.students import StudentCnn

SHAPES = [(channels, side, side) for channels in (1, 3) for side in (28, 32)]


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_for_every_class(shape):
    assert StudentCnn(shape, 7)(torch.zeros(3, *shape)).shape == (3, 7)


def test_docstring_tells_the_parameter_counts():
    told = [int(n.replace(",", "")) for n in re.findall(r"\d{3},\d{3}", StudentCnn.__doc__)]
    counts = [
        sum(p.numel() for p in StudentCnn(shape, 10).parameters())
        for shape in ((1, 28, 28), (3, 32, 32))
    ]
    assert told == counts


def test_training_mode_hides_no_randomness():
    student = StudentCnn((1, 28, 28), 10).train()
    images = torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    before = torch.random.get_rng_state()
    assert torch.equal(student(images), student(images))
    assert torch.equal(torch.random.get_rng_state(), before)
