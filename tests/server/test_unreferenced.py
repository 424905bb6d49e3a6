"""The statistic that needs no reference: what it names, and where it says that it cannot tell."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedlens.data.registry import load
from fedlens.diagnosis.unreferenced import (
    DIGITS,
    FAMILIES,
    FamilyHint,
    _judged,
    levels_of,
    unreferenced,
)
from fedlens.foundation.errors import WrongUse
from fedlens.models.faults import FAULTS
from fedlens.models.faults.protocol import FaultSetting
from fedlens.models.shapes import from_pixels

COUNT = 800


@pytest.fixture(scope="module")
def digits():
    """Embedded digits stand for samples of a perfect generator."""
    found = load("embedded", None)
    rows = np.random.default_rng(2).permutation(len(found.train_labels))[:COUNT]
    return from_pixels(found.train_images[rows]), torch.from_numpy(found.train_labels[rows])


@pytest.fixture(scope="module")
def levels():
    found = load("embedded", None)
    rows = np.random.default_rng(3).permutation(len(found.test_labels))[:COUNT]
    return levels_of(
        from_pixels(found.test_images[rows]), torch.from_numpy(found.test_labels[rows])
    )


def mixed(digits, name, share=0.3):
    images, labels = digits
    faulty, _ = FAULTS[name].applied(
        images, labels, FaultSetting(10, amount=FAULTS[name].amounts[0])
    )
    touched = torch.rand(len(labels), generator=torch.Generator().manual_seed(4)) < share
    return torch.where(touched[:, None, None, None], faulty, images), labels


@pytest.mark.parametrize(
    ("fault", "family"),
    [
        ("rotate90", "quarter turn"),
        ("rotate270", "quarter turn"),
        ("mirror", "mirror"),
        ("invert", "inversion"),
        ("shift_right", "sideways shift"),
        ("shift_down", "vertical shift"),
    ],
)
def test_a_fault_in_three_of_ten_is_named_by_its_family(digits, levels, fault, family):
    found = unreferenced(*mixed(digits, fault), levels)
    assert found.named == family and fault in found.hints[0].faults


def test_of_sound_images_nothing_is_said(digits, levels):
    found = unreferenced(*digits, levels)
    assert found.named == "" and "no family stands out" in found.says


def test_of_faults_that_no_transformation_undoes_none_is_named(digits, levels):
    for fault in ("blur", "dim", "tilt"):
        assert unreferenced(*mixed(digits, fault), levels).named == "", fault


def test_two_families_that_show_alike_are_left_open():
    hints = [FamilyHint(name, (name,), share, 0.02) for name, share in (("a", 0.05), ("b", 0.04))]
    found = _judged(tuple(hints))
    assert found.named == "" and "cannot be told whether it is a a or a b" in found.says
    assert _judged((hints[0], FamilyHint("b", ("b",), 0.03, 0.02))).named == "a"


def test_too_few_samples_and_odd_levels_are_refused(digits):
    images, labels = digits
    with pytest.raises(WrongUse, match="samples: give 20"):
        unreferenced(images[:50], labels[:50])
    with pytest.raises(WrongUse, match="levels"):
        unreferenced(images, labels, {"mirror": 0.1})
    assert set(DIGITS) == set(FAMILIES)
