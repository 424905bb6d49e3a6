"""The library of faults: pure functions with a public seed, and how they are written down."""

from __future__ import annotations

import pytest
import torch

from fedlens.foundation.errors import WrongUse
from fedlens.models.faults import FAULTS
from fedlens.models.faults.library import find_faults
from fedlens.models.faults.planting import parse_faults
from fedlens.models.faults.protocol import FaultSetting

EACH = pytest.mark.parametrize("name", list(FAULTS))


def records(channels=3):
    source = torch.Generator().manual_seed(1)
    images = torch.rand(12, channels, 28, 28, generator=source) * 2 - 1
    return images, torch.arange(12) % 4


@EACH
@pytest.mark.parametrize("channels", [1, 3])
def test_a_fault_is_a_pure_function_of_records_and_a_seed(name, channels):
    fault, (images, labels) = FAULTS[name], records(channels)
    before = images.clone(), labels.clone()
    for variant in fault.variants(4):
        setting = FaultSetting(4, variant.chosen, variant.amount, seed=5)
        changed, named = fault.applied(images, labels, setting)
        again, named_again = fault.applied(images, labels, setting)
        assert torch.equal(changed, again) and torch.equal(named, named_again)
        assert changed.shape[1:] == images.shape[1:] and len(changed) == len(named)
        assert changed.abs().max() <= 1 and changed.dtype == torch.float32
        assert int(named.min()) >= 0 and int(named.max()) < 4
    assert torch.equal(images, before[0]) and torch.equal(labels, before[1])


@EACH
def test_a_fault_changes_something_and_says_what_it_is(name):
    fault, (images, labels) = FAULTS[name], records()
    assert fault.name == name and fault.says
    for variant in fault.variants(4):
        setting = FaultSetting(4, variant.chosen, variant.amount, seed=5)
        changed, named = fault.applied(images, labels, setting)
        assert len(named) != len(labels) or not (
            torch.equal(changed, images) and torch.equal(named, labels)
        )
        assert fault.kind == "label" or torch.equal(named, labels)


@EACH
def test_a_user_without_records_stays_one(name):
    fault = FAULTS[name]
    variant = fault.variants(4)[0]
    images, labels = torch.zeros(0, 1, 28, 28), torch.zeros(0, dtype=torch.int64)
    found = fault.applied(images, labels, FaultSetting(4, variant.chosen, variant.amount))
    assert len(found[1]) == 0


def test_image_faults_touch_the_chosen_classes_alone():
    images, labels = records()
    changed, _ = FAULTS["invert"].applied(images, labels, FaultSetting(4, chosen=(2,)))
    assert torch.equal(changed[labels == 2], -images[labels == 2])
    assert torch.equal(changed[labels != 2], images[labels != 2])


def test_quarter_turns_and_tilts_turn_the_same_way():
    images, labels = records(1)
    quarter, _ = FAULTS["rotate90"].applied(images, labels, FaultSetting(4))
    tilted, _ = FAULTS["tilt"].applied(images, labels, FaultSetting(4, amount=90.0))
    assert torch.allclose(quarter, tilted, atol=1e-4)


def test_a_planted_fault_is_read_from_its_text():
    turned, swapped = parse_faults("tilt:0.3:amount=-15 swap_labels:0.1:classes=1,7")
    assert (turned.fault.name, turned.share, turned.amount) == ("tilt", 0.3, -15.0)
    assert (swapped.fault.name, swapped.share, swapped.chosen) == ("swap_labels", 0.1, (1, 7))
    assert parse_faults("") == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rotate90", "NAME:SHARE"),
        ("rotate91:0.3", "did you mean 'rotate90'"),
        ("rotate90:0", "above 0 and at most 1"),
        ("rotate90:nan", "is no number"),
        ("rotate90:0.3:amount=2", "is not understood"),
        ("rotate90:0.7 mirror:0.7", "add up to 1"),
        ("swap_labels:0.3", "name 2 class"),
        ("swap_labels:0.3:classes=1,1", "name 2 class"),
        ("missing_class:0.3", "name 1 class"),
        ("mirror:0.3:classes=-1", "numbers from 0"),
        ("random_labels:0.3:classes=1", "leave :classes= out"),
    ],
)
def test_what_cannot_be_planted_is_refused_with_the_fix(text, said):
    with pytest.raises(WrongUse, match=said):
        parse_faults(text)


def test_faults_of_colour_or_of_classes_that_there_are_not_are_refused():
    with pytest.raises(WrongUse, match="these images are grey"):
        parse_faults("saturation:0.3")[0].check((1, 28, 28), 10)
    with pytest.raises(WrongUse, match="there is no class 12"):
        parse_faults("mirror:0.3:classes=12")[0].check((1, 28, 28), 10)


def test_faults_come_one_after_the_other_by_name():
    both, (images, labels) = FAULTS["rotate90+dim"], records(1)
    changed, named = both.applied(images, labels, FaultSetting(4))
    turned = torch.rot90(images, 1, (2, 3))
    assert torch.allclose(changed, (turned + 1) * 0.4 - 1) and torch.equal(named, labels)
    assert both.says.startswith("turned left by 90 degrees, then too dark")
    assert "rotate90+dim" in FAULTS and "rotate90+dim" not in list(FAULTS)
    assert "rotate90+nothing" not in FAULTS
    assert parse_faults("rotate90+dim:0.3")[0].fault is both
    with pytest.raises(WrongUse, match="swap_labels is not about images of all classes alike"):
        FAULTS["rotate90+swap_labels"]
    with pytest.raises(WrongUse, match="no fault 'nothing'"):
        FAULTS["rotate90+nothing"]


def test_a_file_describes_faults_of_ones_own(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from fedlens.models.faults.protocol import Fault\n"
        "FADED = Fault('faded', 'faded', image=lambda images, _: 0.8 * images)\n"
    )
    (faded, both) = find_faults([file, "mirror+dim"])
    assert faded.name == "faded" and both.name == "mirror+dim"
    file.write_text(file.read_text().replace("'faded', 'f", "'mirror', 'f"))
    with pytest.raises(WrongUse, match="has this name already"):
        list(find_faults([file]))
    file.write_text("1 / 0")
    with pytest.raises(WrongUse, match="ZeroDivisionError"):
        list(find_faults([file]))
    file.write_text("")
    with pytest.raises(WrongUse, match="defines none"):
        list(find_faults([file]))
    with pytest.raises(WrongUse, match="looked for anyway"):
        list(find_faults(["mirror"]))
