"""Students taught by the private annotator: it labels synthetic images softly, they learn from it.

Images are changed first and labelled after, so that labels say what is seen. All of it is
post-processing of what was released and costs no privacy; only the test images are real, and their
use is outside every budget.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.nn import functional as F

from fedlens.data.spec import Augmentation, Distortion
from fedlens.foundation.memory import give_back_memory
from fedlens.models.shapes import as_bytes, as_seen
from fedlens.simulations.students.augmentation import augment, mixup, moved
from fedlens.simulations.students.distortion import distort
from fedlens.simulations.students.students import Progress, StudentResult, train_student

IMAGES, EPOCHS = 120_000, 4
UNDISTORTED = Distortion()
SHARPNESS = 1.5
"""The annotator's logits are multiplied by it: its noise keeps it less sure than it may be."""
CHUNK = 5000
PART_VALUES, LEAST_PART = 24_000_000, 1000
"""Values of images that are made at once, at most, and images at least."""
PART_SEED = 10_007
"""Between the seeds of two parts."""


class Source(Protocol):
    """Where images of a class come from; `fedlens.server.generation.sampler.Sampler` is one."""

    @property
    def classes(self) -> int:
        """How many classes there are, numbered from 0."""

    def draw(self, labels: Tensor, seed: int) -> Tensor:
        """Images [n, c, h, w] in [-1, 1] of the classes int64 [n]."""


class Teacher(Source, Protocol):
    """A source that can label images too."""

    def label(self, images: Tensor) -> Tensor:
        """Probabilities [n, classes] of images [n, c, h, w]."""


@runtime_checkable
class Between(Source, Protocol):
    """A source that can draw between classes too."""

    def between(self, shares: Tensor, seed: int) -> Tensor:
        """Images [n, c, h, w] by shares of classes, float32 [n, classes]."""


def taught_student(
    sampler: Teacher,
    test_images: Tensor,
    test_labels: Tensor,
    *,
    images: int = IMAGES,
    epochs: int = EPOCHS,
    architecture: str = "cnn",
    seed: int = 0,
    augmentation: Augmentation | None = None,
    distortion: Distortion = UNDISTORTED,
    progress: Progress | None = None,
) -> StudentResult:
    """Train a student on synthetic images with the annotator's soft labels, test it on real ones.

    Args:
        sampler: draws the images and labels them.
        test_images: float32 [m, c, h, w], real.
        test_labels: int64 [m].
        images: how many to train on in total: samples, changed samples and mixtures of samples in
            equal parts, and as many between classes where the sampler can draw such.
        epochs: passes over them.
        architecture: one of `fedlens.simulations.students.students.ARCHITECTURES`.
        seed: decides samples, changes, weights and batches.
        augmentation: which changes; affine maps and mixtures by default.
        distortion: further changes, of all of them before they are labelled.
        progress: called as ``progress(step, steps)`` after each training step.

    Raises:
        ValueError: the sampler has no annotator, or an argument is out of range.
    """
    pictures, targets = training_set(
        sampler, images=images, seed=seed, augmentation=augmentation, distortion=distortion
    )
    return train_student(
        pictures,
        targets,
        test_images,
        test_labels,
        classes=targets.shape[1],  # the annotator's: the sampler may know of none
        architecture=architecture,
        epochs=epochs,
        seed=seed,
        progress=progress,
    )


def training_set(
    sampler: Teacher,
    *,
    images: int,
    seed: int,
    augmentation: Augmentation | None = None,
    distortion: Distortion = UNDISTORTED,
) -> tuple[Tensor, Tensor]:
    """What a taught student learns from: bytes [n, c, h, w] and probabilities [n, classes].

    Large images come as students see them (`fedlens.models.shapes.as_seen`), and are made in parts,
    so that those of any size take about as much memory.

    Where the sampler can draw between classes, a half are such images, plain and changed: they are
    where classes part, which the annotator knows and samples of one class rarely show.
    """
    values = sampler.draw(torch.zeros(1, dtype=torch.int64), seed).numel()
    room, targets = Room(images), []
    for count, own in parts_of(images, values, seed):
        pictures, labels = _labelled(sampler, count, own, augmentation, distortion)
        room.put(as_bytes(as_seen(pictures)))
        targets.append(labels)
        del pictures  # or two parts are in memory while the next is made
    return room.images, torch.cat(targets)


def parts_of(images: int, values: int, seed: int) -> Iterator[tuple[int, int]]:
    """How many images of so many values are made at once, and by which seed, one pair a part.

    What a part no longer needs is given back before the next.
    """
    size = max(LEAST_PART, PART_VALUES // values)
    for number, start in enumerate(range(0, images, size)):
        yield min(size, images - start), seed + PART_SEED * number
        give_back_memory()


def _labelled(
    sampler: Teacher,
    images: int,
    seed: int,
    augmentation: Augmentation | None,
    distortion: Distortion,
) -> tuple[Tensor, Tensor]:
    half = images // 2 if isinstance(sampler, Between) else 0
    room = Room(images)
    varied_samples(sampler, images=images - half, seed=seed, augmentation=augmentation, room=room)
    if isinstance(sampler, Between) and half:
        room.put(between_samples(sampler, half, seed, augmentation))
    source, labels = torch.Generator().manual_seed(seed + 2), []
    for part in torch.split(room.images, CHUNK):  # in place: they may be most of the memory
        part.copy_(distort(part, distortion, source))
        labels.append(sharpened(sampler.label(part)))
    return room.images, torch.cat(labels)


def between_samples(
    sampler: Between, images: int, seed: int, augmentation: Augmentation | None = None
) -> Tensor:
    """Images of two classes each, float32 [images, c, h, w]; every other one is changed."""
    settings = augmentation if augmentation is not None else Augmentation()
    generator = torch.Generator().manual_seed(seed + 1)
    classes = torch.randint(sampler.classes, (2, images), generator=generator)
    first, second = F.one_hot(classes, sampler.classes).float()
    share = torch.rand(images, 1, generator=generator) / 2
    pictures = sampler.between(torch.lerp(first, second, share), seed + 1)
    pictures[::2] = augment(pictures[::2], settings, generator)
    return pictures


def varied_samples(
    sampler: Source,
    *,
    images: int,
    seed: int,
    augmentation: Augmentation | None = None,
    room: Room | None = None,
) -> tuple[Tensor, Tensor]:
    """Samples, changed samples and mixtures of samples, with the classes they were asked for.

    Args:
        sampler: draws the samples, all classes equally often.
        images: how many images in total.
        seed: decides everything.
        augmentation: which changes; affine maps and mixtures by default.
        room: where to put them; room of their own by default.

    Returns:
        Images float32 [n, c, h, w], all that are in the room, and probabilities float32
        [n, classes] by requested class: one for a sample, two for a mixture.
    """
    if images < 1:
        raise ValueError(f"images={images} must be at least 1")
    settings = augmentation if augmentation is not None else Augmentation()
    generator = torch.Generator().manual_seed(seed)
    kinds = 1 + (settings.kind != "none") + (settings.mixing > 0)
    each = -(-images // kinds)
    labels = torch.arange(each) % sampler.classes
    samples = sampler.draw(labels, seed)
    requested = F.one_hot(labels, sampler.classes).to(samples.dtype)
    plain = moved(samples, settings, generator)
    room, left, targets = room or Room(images), images, [requested]
    left -= room.put(plain[:left])
    if settings.kind != "none":
        left -= room.put(augment(samples, settings, generator)[:left])
        targets.append(requested)
    if settings.mixing > 0:
        mixed, partners, weights = mixup(plain, settings.mixing, generator)
        room.put(mixed[:left])
        targets.append(torch.lerp(requested, requested[partners], weights[:, None]))
    return room.images, torch.cat(targets)[:images]


class Room:
    """Images put one after the other into one tensor, so that they are never held twice."""

    def __init__(self, most: int) -> None:
        """Make room for ``most`` images."""
        self._most, self._held = most, 0
        self._whole: Tensor | None = None

    def put(self, images: Tensor) -> int:
        """Copy images [n, c, h, w] in behind those there; returns n."""
        if self._whole is None:
            self._whole = images.new_empty(self._most, *images.shape[1:])
        self._whole[self._held : self._held + len(images)] = images
        self._held += len(images)
        return len(images)

    @property
    def images(self) -> Tensor:
        """Those that were put in, [n, c, h, w]."""
        return torch.zeros(0) if self._whole is None else self._whole[: self._held]


def sharpened(probabilities: Tensor, sharpness: float = SHARPNESS) -> Tensor:
    """Probabilities [n, classes] as if their logits had been multiplied by ``sharpness``."""
    logits = probabilities.float().clamp_min(1e-12).log() * sharpness
    return torch.softmax(logits, 1)
