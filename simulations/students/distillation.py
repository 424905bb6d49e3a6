"""Students taught by the private annotator: it labels synthetic images softly, they learn from it.

Images are changed first and labelled after, so that labels say what is seen. All of it is
post-processing of what was released and costs no privacy; only the test images are real, and their
use is outside every budget.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.nn import functional as F

from client.datasets.spec import Augmentation, Distortion
from simulations.students.augmentation import augment, mixup, moved
from simulations.students.distortion import distort
from simulations.students.students import Progress, StudentResult, train_student

IMAGES, EPOCHS = 120_000, 4
UNDISTORTED = Distortion()
SHARPNESS = 1.5
"""The annotator's logits are multiplied by it: its noise keeps it less sure than it may be."""
CHUNK = 5000


class Source(Protocol):
    """Where images of a class come from; `server.sampler.Sampler` is one."""

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
        architecture: one of `simulations.students.students.ARCHITECTURES`.
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
        classes=sampler.classes,
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
    """What a taught student learns from: images [n, c, h, w] and probabilities [n, classes].

    Where the sampler can draw between classes, a half are such images, plain and changed: they are
    where classes part, which the annotator knows and samples of one class rarely show.
    """
    if isinstance(sampler, Between):
        half = images // 2
        clear, _ = varied_samples(
            sampler, images=images - half, seed=seed, augmentation=augmentation
        )
        pictures = torch.cat([clear, between_samples(sampler, half, seed, augmentation)])
    else:
        pictures, _ = varied_samples(sampler, images=images, seed=seed, augmentation=augmentation)
    source = torch.Generator().manual_seed(seed + 2)
    parts = [distort(part, distortion, source) for part in torch.split(pictures, CHUNK)]
    return torch.cat(parts), torch.cat([sharpened(sampler.label(part)) for part in parts])


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
    sampler: Source, *, images: int, seed: int, augmentation: Augmentation | None = None
) -> tuple[Tensor, Tensor]:
    """Samples, changed samples and mixtures of samples, with the classes they were asked for.

    Args:
        sampler: draws the samples, all classes equally often.
        images: how many images in total.
        seed: decides everything.
        augmentation: which changes; affine maps and mixtures by default.

    Returns:
        Images float32 [n, c, h, w], and probabilities float32 [n, classes] by requested class: one
        for a sample, two for a mixture.
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
    pictures, targets = [plain], [requested]
    if settings.kind != "none":
        pictures.append(augment(samples, settings, generator))
        targets.append(requested)
    if settings.mixing > 0:
        mixed, partners, weights = mixup(plain, settings.mixing, generator)
        pictures.append(mixed)
        targets.append(torch.lerp(requested, requested[partners], weights[:, None]))
    return torch.cat(pictures)[:images], torch.cat(targets)[:images]


def sharpened(probabilities: Tensor, sharpness: float = SHARPNESS) -> Tensor:
    """Probabilities [n, classes] as if their logits had been multiplied by ``sharpness``."""
    logits = probabilities.float().clamp_min(1e-12).log() * sharpness
    return torch.softmax(logits, 1)
