"""Probes: bounded whatever is asked, refused without a range, telling what they say."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest
import torch

from fedlens.foundation import registry
from fedlens.foundation.errors import FedlensError, WrongUse
from fedlens.models.annotators import Annotator
from fedlens.models.faults import FAULTS
from fedlens.models.probes import PROBES
from fedlens.models.probes.asking import parse_probe
from fedlens.models.probes.protocol import Argument, Probe, ProbedRecords

SHAPE, CLASSES, MOST = (1, 28, 28), 10, 6
EXAMPLES = [
    "dark_border",
    "intensity",
    "tilt",
    "unchanged:occlude",
    "repeats",
    "label_share:3",
    "lacks_label:3",
    "better_after:rotate270",
    "better_after:swap_labels:classes=1,7",
    "confidence",
    "recognised",
]


@pytest.fixture(scope="module")
def annotator():
    source = torch.Generator().manual_seed(1)
    made = Annotator(SHAPE, CLASSES, 20, "orientations")
    images = torch.rand(60, *SHAPE, generator=source) * 2 - 1
    made.fit_frame(images, 0.5)
    made.weight.copy_(torch.randn(made.weight.shape, generator=source))
    return made


def records(annotator=None, images=None, labels=None, held=MOST):
    source = torch.Generator().manual_seed(2)
    images = torch.rand(MOST, *SHAPE, generator=source) * 2 - 1 if images is None else images
    labels = torch.arange(len(images)) % CLASSES if labels is None else labels
    present = torch.arange(len(images)) < held
    return ProbedRecords(images, labels, present, CLASSES, annotator)


def answer(text, own):
    question = parse_probe(text)
    return float(question.probe.of_user(own, question.argument))


def test_every_probe_of_the_library_has_an_example():
    assert {parse_probe(text).probe.name for text in EXAMPLES} == set(PROBES)


@pytest.mark.parametrize("text", EXAMPLES)
@pytest.mark.parametrize("spoilt", ["as it is", "nan", "huge", "none held"])
@pytest.mark.law("1: the server checks every reply")
def test_a_users_number_is_in_its_range_whatever_is_held(annotator, text, spoilt):
    images = records().images.clone()
    if spoilt == "nan":
        images[0] = torch.nan
    if spoilt == "huge":
        images *= 1e30
    found = answer(text, records(annotator, images, held=0 if spoilt == "none held" else MOST))
    assert 0 <= found <= 1
    if spoilt == "none held":
        assert found == 0


def test_what_is_absent_does_not_count(annotator):
    whole = records(annotator)
    for text in EXAMPLES:
        images = whole.images.clone()
        images[3:] = 0.7
        part = ProbedRecords(images, whole.labels, whole.present, CLASSES, annotator)
        part = ProbedRecords(part.images, part.labels, torch.arange(MOST) < 3, CLASSES, annotator)
        alone = ProbedRecords(
            whole.images, whole.labels, torch.arange(MOST) < 3, CLASSES, annotator
        )
        assert answer(text, part) == pytest.approx(answer(text, alone), abs=1e-6), text


def test_values_outside_the_declared_range_are_moved_to_its_ends_and_odd_ones_count_as_least():
    values = torch.tensor([9.0, -9.0, torch.nan, torch.inf, 0.5, 0.5])
    probe = Probe("odd", "odd", lambda own, argument: values, 0, 1)
    assert float(probe.of_user(records(), Argument())) == pytest.approx((1 + 0 + 0 + 1 + 1) / 6)


@pytest.mark.parametrize(("low", "high"), [(0, float("nan")), (0, float("inf")), (1, 1), (2, 1)])
def test_a_probe_that_declares_no_range_is_refused(low, high):
    with pytest.raises(WrongUse, match="bound nothing"):
        Probe("odd", "odd", lambda own, argument: own.labels, low, high)
    with pytest.raises(WrongUse, match="bound nothing"):
        Probe("odd", "odd", lambda own, argument: own.labels)


def test_a_probe_of_another_package_is_found_and_one_without_a_range_is_refused(monkeypatch):
    monkeypatch.setattr(PROBES, "_loaded", {})
    points = [
        EntryPoint("bright", "outside_probe:BRIGHT", "fedlens.probes"),
        EntryPoint("boundless", "outside_probe:boundless", "fedlens.probes"),
    ]
    monkeypatch.setattr(registry, "installed", lambda group: points)
    assert answer("bright", records(images=torch.ones(MOST, *SHAPE))) == 1
    with pytest.raises(FedlensError, match=r"no fedlens\.models\.probes\.protocol\.Probe"):
        parse_probe("boundless")
    monkeypatch.setattr(
        registry,
        "installed",
        lambda group: [EntryPoint("bare", "outside_probe_without_range:BARE", "fedlens.probes")],
    )
    with pytest.raises(FedlensError, match="bound nothing"):
        parse_probe("bare")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("darkborder", "there is no probe 'darkborder'.*did you mean 'dark_border'"),
        ("dark_border:3", "takes no argument"),
        ("label_share", "give a class"),
        ("label_share:-1", "give a class"),
        ("better_after", "name a transformation"),
        ("better_after:rotate45", "there is no fault 'rotate45'"),
        (
            "better_after:tilt:amount=x",
            r"^probe 'better_after:tilt:amount=x'.*no number; write NAME or",
        ),
        ("better_after:rotate90:0.3", "'0.3' is not understood; write NAME or NAME:ARGUMENT"),
        ("better_after:tilt:slice=app=2", "'slice=app=2' is not understood"),
        ("better_after:missing_class:classes=3", "takes records away"),
    ],
)
def test_a_question_that_is_not_understood_is_refused_with_the_fix(text, said):
    with pytest.raises(WrongUse, match=said):
        parse_probe(text)


def test_a_question_is_held_against_the_data():
    with pytest.raises(WrongUse, match="there is no class 12"):
        parse_probe("label_share:12").check(SHAPE, CLASSES)
    with pytest.raises(WrongUse, match="grey"):
        parse_probe("better_after:swap_channels").check(SHAPE, CLASSES)


def test_pictures_are_measured_as_the_probe_says():
    dark, bright = -torch.ones(4, *SHAPE), torch.ones(4, *SHAPE)
    assert answer("dark_border", records(images=dark)) == 1
    assert answer("dark_border", records(images=bright)) == 0
    assert answer("intensity", records(images=(dark + bright))) == pytest.approx(0.5)
    line = -torch.ones(4, *SHAPE)
    line[:, :, 4:24, 14] = 1
    assert answer("tilt", records(images=line)) == pytest.approx(0.5)
    tilted, _ = FAULTS["tilt"].applied(
        line,
        torch.zeros(4, dtype=torch.int64),
        parse_probe("unchanged:tilt").argument.fault.setting(10, 0),
    )
    assert abs(answer("tilt", records(images=tilted)) - 0.5) * 180 == pytest.approx(20, abs=2)


def test_votes_tell_users_with_a_fault_from_others():
    own = records()
    covered = own.images.clone()
    covered[:, :, 14:] = -1
    assert answer("unchanged:occlude", own) == 0
    assert answer("unchanged:occlude", records(images=covered)) == 1
    assert answer("repeats", own) == 0
    assert answer("repeats", records(images=own.images[:1].expand(MOST, -1, -1, -1))) == 1
    assert answer("repeats", records(held=1)) == 0
    assert answer("label_share:3", own) == pytest.approx(1 / 6)
    assert answer("lacks_label:9", own) == 1 and answer("lacks_label:3", own) == 0
