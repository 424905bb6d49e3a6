"""Readers of few pictures: several kinds, and of them the one that reads people held back best.

With a few hundred pictures no kind is best everywhere: shifted copies help convolutions to find
what may be anywhere, such as glasses; a line through a hundred principal components is better where
pictures are aligned and a network learns them by heart.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedlens.models.classifiers import ConvClassifier, check_image
from fedlens.models.principal import principal

Pictures = tuple[Tensor, Tensor, Tensor | None]
"""Images float32 [n, c, h, w], classes int64 [n], and owners int64 [n] where they are known."""
Fit = Callable[[Tensor, Tensor], nn.Module]

HELD_BACK = 0.1
"""Share of the people, or of the pictures where nobody is named, who choose the reader."""
VERY_FEW = 2000
"""Pictures up to which those held back are worth fitting again for."""
BATCH, CHUNK = 128, 500
WIDTH, RATE = 16, 2e-3
SHIFT_OF_SIDE = 14
"""Copies are shifted by at most a side's so manieth part."""
COMPONENTS = 100
PENALTIES = (1e-2, 1e-3)
"""On squared weights of whitened components, relative to the mean cross-entropy."""
ITERATIONS = 100


def read_few(pictures: Pictures, classes: int, steps: int, seed: int) -> nn.Module:
    """The reader that is best on people held back; of very few pictures fitted again on everybody.

    Args:
        pictures: what it learns from.
        classes: number of classes.
        steps: batches of 128 of the network among them.
        seed: of who is held back, weights and shifts.

    Returns:
        A network of images to logits, in evaluation mode.

    Raises:
        ShapeError: the pictures are no images, or below 8 pixels.
    """
    images, labels, owners = pictures
    check_image(tuple(images.shape[1:]))
    fits: list[Fit] = [partial(_convolutions, classes=classes, steps=steps, seed=seed)]
    fits += [partial(_line, classes=classes, penalty=penalty) for penalty in PENALTIES]
    apart = _held_back(len(images), owners, seed)
    if not 0 < int(apart.sum()) < len(images):
        return fits[0](images, labels)
    nets = [fit(images[~apart], labels[~apart]) for fit in fits]
    found = [_right(net, images[apart], labels[apart]) for net in nets]
    best = found.index(max(found))
    return fits[best](images, labels) if len(images) <= VERY_FEW else nets[best]


def _held_back(count: int, owners: Tensor | None, seed: int) -> Tensor:
    """Which pictures choose, bool [n]: those of some people, whole."""
    people, who = torch.unique(
        torch.arange(count) if owners is None else owners, return_inverse=True
    )
    order = torch.randperm(len(people), generator=torch.Generator().manual_seed(seed))
    held: Tensor = order[who] < HELD_BACK * len(people)
    return held


@torch.no_grad()
def _right(net: nn.Module, images: Tensor, labels: Tensor) -> float:
    answers = torch.cat([net(part).argmax(-1) for part in torch.split(images, CHUNK)])
    return float((answers == labels).double().mean())


def _convolutions(
    images: Tensor, labels: Tensor, *, classes: int, steps: int, seed: int
) -> nn.Module:
    """Convolutions with pooling, on shifted copies."""
    source = torch.Generator().manual_seed(seed)
    shape = check_image(tuple(images.shape[1:]))
    net = ConvClassifier(shape, classes, WIDTH, generator=source)
    optimiser = torch.optim.Adam(net.parameters(), lr=RATE)
    falling = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.1, total_iters=steps)
    most = shape[1] // SHIFT_OF_SIDE
    for _ in range(steps):
        rows = torch.randint(len(images), (BATCH,), generator=source)
        optimiser.zero_grad()
        seen = shifted(images[rows], most, source)
        torch.autograd.backward(F.cross_entropy(net(seen), labels[rows]))
        optimiser.step()
        falling.step()
    return net.eval()


def shifted(images: Tensor, most: int, source: torch.Generator) -> Tensor:
    """Each image [n, c, h, w] moved by up to ``most`` pixels either way; edges are drawn out."""
    count, _, height, width = images.shape
    wide = F.pad(images, (most, most, most, most), mode="replicate")
    down, right = torch.randint(0, 2 * most + 1, (2, count, 1), generator=source)
    rows, columns = down + torch.arange(height), right + torch.arange(width)
    each = torch.arange(count)[:, None, None]
    return wide[each, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


class PrincipalLine(nn.Module):
    """Logits linear in whitened principal components of flattened records."""

    def __init__(self, mean: Tensor, directions: Tensor, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.mean = nn.Buffer(mean)
        self.weight = nn.Buffer(directions @ weight)
        self.bias = nn.Buffer(bias)

    def forward(self, records: Tensor) -> Tensor:
        """Logits float32 [n, classes] of records [n, ...]."""
        return (records.flatten(1) - self.mean) @ self.weight + self.bias


def _line(images: Tensor, labels: Tensor, *, classes: int, penalty: float) -> nn.Module:
    """Multinomial logistic regression on principal components."""
    rows = images.flatten(1)
    mean = rows.mean(0)
    count = max(1, min(COMPONENTS, len(rows) - 1, rows.shape[1]))
    centred = rows - mean
    variances, basis = principal(centred, count)
    basis = basis / variances.clamp_min(1e-6).sqrt()
    inside = centred @ basis
    weight = torch.zeros(count, classes, requires_grad=True)
    bias = torch.zeros(classes, requires_grad=True)
    optimiser = torch.optim.LBFGS([weight, bias], max_iter=ITERATIONS)

    def loss() -> Tensor:
        optimiser.zero_grad()
        found = F.cross_entropy(inside @ weight + bias, labels) + penalty * weight.square().sum()
        torch.autograd.backward(found)
        return found

    optimiser.step(loss)  # type: ignore[no-untyped-call]
    return PrincipalLine(mean, basis, weight.detach(), bias.detach()).eval()
