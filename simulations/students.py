"""What synthetic images are worth: a student trained on them, tested on real ones.

For simulations only. The real test set takes part in no release, and neither may this accuracy:
it is measured outside the privacy budget, which only someone who owns the test data can do.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from models.shapes import ShapeError, check_shape
from models.students import StudentCnn

BATCH = 128
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
    """

    accuracy: float
    per_class: tuple[float, ...]
    seconds: float
    model: StudentCnn


def train_student(
    images: Tensor,
    labels: Tensor,
    test_images: Tensor,
    test_labels: Tensor,
    *,
    classes: int,
    epochs: int = 2,
    seed: int = 0,
    progress: Progress | None = None,
) -> StudentResult:
    """Train a :class:`StudentCnn` and test it.

    Adam with a one-cycle learning rate. On the CPU the result is the same for the same arguments
    and number of threads; the global random state is neither read nor moved.

    Args:
        images: float32 [n, c, h, w] in [-1, 1], typically synthetic.
        labels: int64 [n].
        test_images: float32 [m, c, h, w], real.
        test_labels: int64 [m].
        classes: number of classes.
        epochs: passes over ``images``.
        seed: decides weights and batches.
        progress: called as ``progress(step, steps)`` after each step.

    Raises:
        ShapeError: when the images' shape is not supported or differs from the test images'.
        ValueError: when a set is empty, or a label is missing or outside [0, classes).
    """
    started = time.perf_counter()
    _check("images", images, labels, classes)
    _check("test_images", test_images, test_labels, classes)
    if epochs < 1:
        raise ValueError(f"epochs={epochs} must be at least 1")
    channels, height, width = images.shape[1:]
    shape = check_shape((channels, height, width))
    if test_images.shape[1:] != images.shape[1:]:
        raise ShapeError(f"test images are {tuple(test_images.shape[1:])}, training images {shape}")
    generator = torch.Generator().manual_seed(seed)
    model = StudentCnn(shape, classes, generator=generator).to(images.device)
    _fit(model, images, labels, epochs, generator, progress)
    right = _predict(model, test_images) == test_labels
    return StudentResult(
        accuracy=float(right.float().mean()),
        per_class=tuple(float(right[test_labels == c].float().mean()) for c in range(classes)),
        seconds=time.perf_counter() - started,
        model=model,
    )


def _check(name: str, images: Tensor, labels: Tensor, classes: int) -> None:
    if len(images) == 0 or len(images) != len(labels):
        raise ValueError(f"{name}: {len(images)} images and {len(labels)} labels; need as many, >0")
    if images.ndim != 4:
        raise ShapeError(f"{name} has shape {tuple(images.shape)}; give [n, channels, h, w]")
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        raise ValueError(f"{name}: labels run from {low} to {high}, outside 0..{classes - 1}")


def _fit(
    model: StudentCnn,
    images: Tensor,
    labels: Tensor,
    epochs: int,
    generator: torch.Generator,
    progress: Progress | None,
) -> None:
    starts = range(0, len(images), BATCH)
    steps = epochs * len(starts)
    optimiser = torch.optim.Adam(model.parameters(), lr=PEAK_RATE)
    # A cycle needs a rise and a fall; fewer steps than that keep the peak rate.
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimiser, PEAK_RATE, total_steps=max(steps, 4))
    model.train()
    for epoch in range(epochs):
        order = torch.randperm(len(images), generator=generator).to(images.device)
        for batch, start in enumerate(starts):
            rows = order[start : start + BATCH]
            optimiser.zero_grad()
            loss = F.cross_entropy(model(images[rows]), labels[rows])
            torch.autograd.backward(loss)
            optimiser.step()
            cycle.step()
            if progress is not None:
                progress(epoch * len(starts) + batch + 1, steps)
    model.eval()


@torch.no_grad()
def _predict(model: StudentCnn, images: Tensor) -> Tensor:
    return torch.cat([model(part).argmax(1) for part in torch.split(images, EVALUATION_CHUNK)])
