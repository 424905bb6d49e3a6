"""Taught students: labelled after the change, by the annotator and by nothing else."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from fedlens.data.registry import load
from fedlens.data.spec import Augmentation
from fedlens.models.shapes import as_bytes
from fedlens.simulations.students import distillation
from fedlens.simulations.students.distillation import (
    sharpened,
    taught_student,
    training_set,
    varied_samples,
)
from fedlens.simulations.students.students import predict, train_student


class Replay:
    """Stands in for a sampler: real digits under their classes, labels by a given function."""

    classes = 10

    def __init__(self, images, labels, teach):
        self._images, self._labels, self._teach = images, labels, teach
        self.labelled = []

    def draw(self, labels, seed):
        source = torch.Generator().manual_seed(seed)
        found = torch.zeros(len(labels), *self._images.shape[1:])
        for c in range(self.classes):
            mine, there = labels == c, (self._labels == c).nonzero()[:, 0]
            picked = torch.randint(len(there), (int(mine.sum()),), generator=source)
            found[mine] = self._images[there[picked]]
        return found

    def label(self, images):
        self.labelled.append(images)
        return self._teach(images)


@pytest.fixture(scope="module")
def digits():
    sample = load("embedded")
    scaled = [
        torch.from_numpy(a.copy()).float() / 127.5 - 1
        for a in (sample.train_images, sample.test_images)
    ]
    return (
        scaled[0],
        torch.from_numpy(sample.train_labels.copy()),
        scaled[1],
        torch.from_numpy(sample.test_labels.copy()),
    )


def bright(images):
    """Certain of class 1 where an image has more ink than most, else of class 0."""
    return F.one_hot((images.mean((1, 2, 3)) > -0.75).long(), 10).float()


def test_a_student_learns_what_the_teacher_says_not_what_was_asked_for(digits):
    images, labels, test_images, test_labels = digits
    teacher = train_student(*digits, classes=10, epochs=3).model
    shifted = Replay(
        images, labels, lambda x: torch.softmax(predict(teacher, x), 1).roll(1, dims=1)
    )
    result = taught_student(
        shifted, test_images, (test_labels + 1) % 10, images=9000, epochs=4, seed=5
    )
    assert result.accuracy > 0.95


def test_labels_are_given_after_the_change(digits):
    replay = Replay(*digits[:2], bright)
    pictures, targets = training_set(replay, images=900, seed=1)
    assert torch.equal(as_bytes(torch.cat(replay.labelled)), pictures)
    assert torch.equal(targets.argmax(1), bright(torch.cat(replay.labelled)).argmax(1))


def test_the_parts_are_samples_changed_samples_and_mixtures(digits):
    replay = Replay(*digits[:2], bright)
    pictures, requested = varied_samples(replay, images=600, seed=2)
    plain, _ = varied_samples(
        replay, images=200, seed=2, augmentation=Augmentation(kind="none", mixing=0.0)
    )
    assert torch.equal(pictures[:200], plain)
    assert not torch.equal(pictures[200:400], plain)
    assert torch.equal(requested[:200], requested[200:400])
    assert torch.equal(requested[:200].argmax(1), torch.arange(200) % 10)
    assert torch.allclose(requested.sum(1), torch.ones(600))
    mixed = requested[400:]
    assert float(mixed.max(1).values.min()) >= 0.5
    assert int(((mixed > 0).sum(1) == 2).sum()) > 100


def test_samples_that_bear_being_moved_are_moved_in_every_part(digits):
    still, moving = Augmentation("none"), Augmentation("none", moving=0.1)
    replay = Replay(*digits[:2], bright)
    plain, _ = varied_samples(replay, images=400, seed=2, augmentation=still)
    shaken, targets = varied_samples(replay, images=400, seed=2, augmentation=moving)
    changed = (plain - shaken).abs().amax((1, 2, 3)) > 0.05
    assert float(changed[:200].float().mean()) > 0.9, "samples"
    assert float(changed[200:].float().mean()) > 0.9, "mixtures"
    assert torch.equal(targets[:200].argmax(1), torch.arange(200) % 10)


@pytest.mark.parametrize(("kind", "mixing"), [("affine", 0.5), ("flips", 0.0), ("none", 0.0)])
@pytest.mark.parametrize("images", [1, 10, 101])
def test_there_are_as_many_images_as_asked_for(digits, kind, mixing, images):
    settings = Augmentation(kind=kind, mixing=mixing)
    pictures, targets = training_set(
        Replay(*digits[:2], bright), images=images, seed=0, augmentation=settings
    )
    assert len(pictures) == len(targets) == images


def test_the_seed_decides_the_student(digits):
    def taught(seed):
        replay = Replay(*digits[:2], bright)
        few = digits[2][:100], digits[3][:100]
        return taught_student(replay, *few, images=300, epochs=1, seed=seed).model.head.weight

    assert torch.equal(taught(1), taught(1)) and not torch.equal(taught(1), taught(2))


def test_sharpening_multiplies_logits():
    logits = torch.randn(50, 10, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(
        sharpened(torch.softmax(logits, 1), 1.5), torch.softmax(1.5 * logits, 1), atol=1e-6
    )
    certain = F.one_hot(torch.arange(10), 10).float()
    assert torch.allclose(sharpened(certain), certain, atol=1e-6)


def test_no_images_are_refused(digits):
    with pytest.raises(ValueError, match="images=0"):
        varied_samples(Replay(*digits[:2], bright), images=0, seed=0)


def test_large_images_are_learned_from_as_they_are_seen_part_by_part(monkeypatch):
    """Of all of a large picture a student sees the smaller copy, whatever part it was made in."""
    large = Replay(torch.rand(40, 1, 64, 64) * 2 - 1, torch.arange(40) % 10, bright)
    monkeypatch.setattr(distillation, "LEAST_PART", 8)
    monkeypatch.setattr(distillation, "PART_VALUES", 1)
    pictures, targets = training_set(large, images=20, seed=1)
    assert pictures.shape == (20, 1, 32, 32) and len(targets) == 20
    assert len(pictures.flatten(1).unique(dim=0)) > 8, "parts have samples of their own"
