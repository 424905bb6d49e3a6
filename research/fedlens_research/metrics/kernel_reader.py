"""Readers of pictures that take seconds: kernels of principal components, and of few a network.

Of a few thousand aligned faces, ridge regression with a Gaussian kernel on whitened components
reads age group and gender at least as well as networks do that take ten times as long, whatever
noise or blur is on the pictures. Where people are few, some things are better read by convolutions
on shifted copies, such as glasses, which may be anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from fedlens.models.classifiers import ConvClassifier, check_image
from fedlens.models.few_readers import SHIFT_OF_SIDE, shifted
from fedlens.models.principal import principal

COMPONENTS = (50, 200)
RIDGES = (0.1, 1.0)
"""Each with each, and people held back choose."""
FEW, MOST = 800, 4000
"""Pictures up to which copies are shifted, a network learns, and everybody is held back once;
and those that are learned from at most, for a kernel has a number for each pair."""
FOLDS = 4
COPIES = 3
BATCH, RATE = 64, 2e-3
LEAST = 1e-4


@dataclass(frozen=True)
class Labels:
    """What is to be read: int64 [n], of so many classes."""

    values: Tensor
    classes: int


@dataclass(frozen=True)
class Pictures:
    """What is learned from: images float32 [n, c, h, w], and whose they are, int64 [n] or None."""

    images: Tensor
    owners: Tensor | None

    @property
    def few(self) -> bool:
        """Whether they are so few that copies help."""
        return len(self.images) <= FEW


def read(
    known: Pictures, labels: list[Labels], shown: Tensor, steps: int, seed: int
) -> list[list[Tensor]]:
    """Probabilities float32 [m, classes] for images [m, c, h, w], of each kind of label.

    Args:
        known: pictures with labels.
        labels: of them.
        shown: pictures without.
        steps: batches of 64 of the network, where there is one.
        seed: of folds, copies and the network.

    Returns:
        For each kind of label what each reader says: the kernels and, of few pictures, a network.
    """
    source = torch.Generator().manual_seed(seed)
    known, labels = _first(known, labels)
    found = []
    for label, place in zip(labels, _chosen(known, labels, source), strict=True):
        answers = _kernel(known, [label], shown, *place, source)
        if known.few:
            answers.append(_network(known, label, shown, steps, source))
        found.append(answers)
    return found


def _first(known: Pictures, labels: list[Labels]) -> tuple[Pictures, list[Labels]]:
    """As many as a kernel can take."""
    owners = None if known.owners is None else known.owners[:MOST]
    some = [replace(one, values=one.values[:MOST]) for one in labels]
    return Pictures(known.images[:MOST], owners), some


def _chosen(
    known: Pictures, labels: list[Labels], source: torch.Generator
) -> list[tuple[int, float]]:
    """Components and ridge of each kind of label, by what people held back are read right."""
    places = [(count, ridge) for count in COMPONENTS for ridge in RIDGES]
    right = torch.zeros(len(labels), len(places))
    for apart in _folds(known, source):
        rest = Pictures(known.images[~apart], None)
        own = [Labels(one.values[~apart], one.classes) for one in labels]
        for column, place in enumerate(places):
            found = _kernel(rest, own, known.images[apart], *place, source)
            for row, (answers, label) in enumerate(zip(found, labels, strict=True)):
                right[row, column] += (answers.argmax(1) == label.values[apart]).sum()
    return [places[best] for best in right.argmax(1).tolist()]


def _folds(known: Pictures, source: torch.Generator) -> Iterator[Tensor]:
    """Who is held back, bool [n]: of few pictures every owner once, else a quarter once."""
    owners = torch.arange(len(known.images)) if known.owners is None else known.owners
    people, who = torch.unique(owners, return_inverse=True)
    fold = torch.randperm(len(people), generator=source) % FOLDS
    for one in range(FOLDS if known.few else 1):
        yield fold[who] == one


def _kernel(
    known: Pictures,
    labels: list[Labels],
    shown: Tensor,
    components: int,
    ridge: float,
    source: torch.Generator,
) -> list[Tensor]:
    """Kernel ridge regression on one-hot labels; its width is the median distance."""
    images, repeats = known.images, 1
    if known.few:
        most = images.shape[2] // SHIFT_OF_SIDE
        images = torch.cat([images, *(shifted(images, most, source) for _ in range(COPIES))])
        repeats = 1 + COPIES
    rows = images.flatten(1)
    mean = rows.mean(0)
    count = max(1, min(components, len(rows) - 1, rows.shape[1]))
    variances, basis = principal(rows - mean, count)
    basis = basis * variances.clamp_min(1e-6).rsqrt()
    inside, asked = (rows - mean) @ basis, (shown.flatten(1) - mean) @ basis
    apart = torch.cdist(inside, inside).square()
    width = apart[: min(len(apart), 500)].median().clamp_min(1e-6)
    factor = torch.linalg.cholesky((-apart / width).exp() + ridge * torch.eye(len(rows)))
    near = (-torch.cdist(asked, inside).square() / width).exp()
    found = []
    for label in labels:
        hot = F.one_hot(label.values.repeat(repeats), label.classes).float()
        prior = hot.mean(0)
        answers = prior + near @ torch.cholesky_solve(hot - prior, factor)
        answers = answers.clamp_min(LEAST)
        found.append(answers / answers.sum(1, keepdim=True))
    return found


def _network(
    known: Pictures, label: Labels, shown: Tensor, steps: int, source: torch.Generator
) -> Tensor:
    """Convolutions on shifted copies."""
    images = known.images
    shape = check_image(tuple(images.shape[1:]))
    net = ConvClassifier(shape, label.classes, generator=source)
    optimiser = torch.optim.Adam(net.parameters(), lr=RATE)
    falling = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.1, total_iters=steps)
    most = images.shape[2] // SHIFT_OF_SIDE
    for _ in range(steps):
        rows = torch.randint(len(images), (BATCH,), generator=source)
        optimiser.zero_grad()
        seen = shifted(images[rows], most, source)
        torch.autograd.backward(F.cross_entropy(net(seen), label.values[rows]))
        optimiser.step()
        falling.step()
    with torch.no_grad():
        return torch.cat([net.eval()(part).softmax(1) for part in torch.split(shown, 500)])
