"""What synthetic images are worth: a student trained on them, tested on real ones.

For simulations only. The real test set takes part in no release, and neither may this accuracy:
it is measured outside the privacy budget, which only someone who owns the test data can do.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import fedlens.models.students
from fedlens.models.shapes import ShapeError, as_seen, check_shape, from_bytes
from fedlens.models.students import build_student

ARCHITECTURES = tuple(fedlens.models.students.ARCHITECTURES)
"""Names of the students that can be trained."""
BATCH, LARGE_BATCH = 128, 256
LARGE_SET = 40_000
"""From this many images on a step takes the larger batch: about a third faster on a CPU."""
PEAK_RATE = 3e-3
EVALUATION_CHUNK = 1000

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class StudentResult:
    """A trained student and how it did on the test images.

    Attributes:
        accuracy: share of the test images classified right, in [0, 1].
        per_class: the same within each class; nan for a class with no test images.
        seconds: wall time of training and test.
        model: the student, in evaluation mode.
        architecture: which of ``ARCHITECTURES`` it is.
    """

    accuracy: float
    per_class: tuple[float, ...]
    seconds: float
    model: nn.Module
    architecture: str = "cnn"


def train_student(
    images: Tensor,
    targets: Tensor,
    test_images: Tensor,
    test_labels: Tensor,
    *,
    classes: int,
    architecture: str = "cnn",
    epochs: int = 2,
    seed: int = 0,
    progress: Progress | None = None,
) -> StudentResult:
    """Train a student and test it.

    Adam with a one-cycle learning rate on the cross-entropy with the targets, hard or soft. On the
    CPU the result is the same for the same arguments and number of threads; the global random
    state is neither read nor moved.

    Args:
        images: float32 [n, c, h, w] in [-1, 1], typically synthetic; or what
            `fedlens.models.shapes.as_seen` made of such; or either as bytes.
        targets: labels int64 [n], or probabilities float32 [n, classes] whose rows sum to 1.
        test_images: float32 [m, c, h, w], real.
        test_labels: int64 [m].
        classes: number of classes.
        architecture: one of ``ARCHITECTURES``.
        epochs: passes over ``images``.
        seed: decides weights and batches.
        progress: called as ``progress(step, steps)`` after each step.

    Raises:
        ShapeError: when the images' shape is not supported or differs from the test images'.
        ValueError: when a set is empty, a label is missing or outside [0, classes), a row of
            probabilities is none, or the architecture is unknown.
    """
    started = time.perf_counter()
    _check("images", images, targets, classes)
    _check("test_images", test_images, test_labels, classes)
    if epochs < 1:
        raise ValueError(f"epochs={epochs} must be at least 1")
    channels, height, width = test_images.shape[1:]
    shape = check_shape((channels, height, width))
    if images.shape[1:] not in (test_images.shape[1:], as_seen(test_images[:1]).shape[1:]):
        raise ShapeError(f"training images are {tuple(images.shape[1:])}, test images {shape}")
    generator = torch.Generator().manual_seed(seed)
    model = build_student(architecture, shape, classes, generator=generator).to(images.device)
    fit_classifier(model, images, targets, epochs=epochs, generator=generator, progress=progress)
    right = predict(model, test_images).argmax(1) == test_labels
    return StudentResult(
        accuracy=float(right.float().mean()),
        per_class=tuple(float(right[test_labels == c].float().mean()) for c in range(classes)),
        seconds=time.perf_counter() - started,
        model=model,
        architecture=architecture,
    )


def _check(name: str, images: Tensor, targets: Tensor, classes: int) -> None:
    if len(images) == 0 or len(images) != len(targets):
        raise ValueError(
            f"{name}: {len(images)} images and {len(targets)} labels; need as many, >0"
        )
    if images.ndim != 4:
        raise ShapeError(f"{name} has shape {tuple(images.shape)}; give [n, channels, h, w]")
    if targets.is_floating_point():
        _check_probabilities(name, targets, classes)
        return
    low, high = int(targets.min()), int(targets.max())
    if low < 0 or high >= classes:
        raise ValueError(f"{name}: labels run from {low} to {high}, outside 0..{classes - 1}")


def _check_probabilities(name: str, targets: Tensor, classes: int) -> None:
    if targets.shape != (len(targets), classes):
        raise ValueError(
            f"{name}: soft labels have shape {tuple(targets.shape)}; give [n, {classes}]"
        )
    sums = targets.sum(1)
    if not bool(((targets >= 0).all(1) & ((sums - 1).abs() < 1e-3)).all()):
        raise ValueError(f"{name}: a row of soft labels is no probability; make each sum to 1")


def fit_classifier(
    model: nn.Module,
    images: Tensor,
    targets: Tensor,
    *,
    epochs: int,
    generator: torch.Generator,
    progress: Progress | None = None,
) -> None:
    """Train any classifier as `train_student` does, in place; it ends in evaluation mode.

    Args:
        model: images [n, c, h, w] to logits [n, classes].
        images: float32 [n, c, h, w], or the same as bytes.
        targets: labels int64 [n] or probabilities float32 [n, classes].
        epochs: passes over ``images``.
        generator: CPU generator of the batches.
        progress: called as ``progress(step, steps)`` after each step.
    """
    size = BATCH if len(images) < LARGE_SET else LARGE_BATCH
    starts = range(0, len(images), size)
    steps = epochs * len(starts)
    # Channels last makes small convolutions faster on a CPU; the network is the same.
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimiser = torch.optim.Adam(model.parameters(), lr=PEAK_RATE, fused=True)
    # A cycle needs a rise and a fall; fewer steps than that keep the peak rate.
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimiser, PEAK_RATE, total_steps=max(steps, 4))
    model.train()
    for epoch in range(epochs):
        order = torch.randperm(len(images), generator=generator).to(images.device)
        for batch, start in enumerate(starts):
            rows = order[start : start + size]
            optimiser.zero_grad()
            loss = F.cross_entropy(model(from_bytes(images[rows])), targets[rows])
            torch.autograd.backward(loss)
            optimiser.step()
            cycle.step()
            if progress is not None:
                progress(epoch * len(starts) + batch + 1, steps)
    model.eval()


@torch.no_grad()
def predict(model: nn.Module, images: Tensor) -> Tensor:
    """Logits float32 [n, classes] of images [n, c, h, w], computed in parts."""
    return torch.cat([model(part) for part in torch.split(images, EVALUATION_CHUNK)])
