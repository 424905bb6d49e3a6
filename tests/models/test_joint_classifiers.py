"""Several classifiers as one: their logits add up, and all of them learn."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from fedlens.models.classifiers import ConvClassifier, JointClassifiers, Mlp
from fedlens.models.shapes import ShapeError


def a_pair() -> tuple[ConvClassifier, Mlp]:
    return ConvClassifier((1, 12, 12), 3, width=2), Mlp(144, 3, hidden=(8,))


def test_logits_add_up() -> None:
    convolutions, dense = a_pair()
    images = torch.randn(5, 1, 12, 12, generator=torch.Generator().manual_seed(0))
    both = JointClassifiers(convolutions, dense)(images)
    assert torch.allclose(both, convolutions(images) + dense(images))
    assert torch.equal(JointClassifiers(dense)(images), dense(images))


def test_every_classifier_learns() -> None:
    convolutions, dense = a_pair()
    joint = JointClassifiers(convolutions, dense)
    images = torch.randn(5, 1, 12, 12, generator=torch.Generator().manual_seed(0))
    F.cross_entropy(joint(images), torch.tensor([0, 1, 2, 0, 1])).backward()
    assert all(float(p.grad.abs().sum()) > 0 for p in joint.parameters() if p.grad is not None)
    assert all(p.grad is not None for p in joint.parameters())


def test_no_classifier_is_refused() -> None:
    with pytest.raises(ShapeError, match="at least one"):
        JointClassifiers()
