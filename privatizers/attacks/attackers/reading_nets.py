"""Fresh networks that read the utility of records: what a fixed service would be."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedlens.models.classifiers import ConvClassifier, JointClassifiers, Mlp, check_image
from fedlens.models.few_readers import read_few
from fedlens.models.students import StudentCnn
from fedlens.privatizers.private_data import PrivateData

CHUNK = 500
FEW = 10_000
"""Records up to which several readers are tried."""


def learn(
    net: nn.Module, records: Tensor, labels: Tensor, *, steps: int, rate: float, seed: int
) -> nn.Module:
    """Train a classifier by cross-entropy with Adam, in place; its rate falls along a line."""
    generator = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.Adam(net.parameters(), lr=rate)
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = rate * (1 - 0.9 * step / steps)
        rows = torch.randint(len(records), (128,), generator=generator)
        optimiser.zero_grad()
        torch.autograd.backward(F.cross_entropy(net(records[rows]), labels[rows]))
        optimiser.step()
    return net


@torch.no_grad()
def accuracy(net: nn.Module, records: Tensor, labels: Tensor) -> float:
    """Share of records whose likeliest class is the label."""
    answers = torch.cat([net(part).argmax(-1) for part in torch.split(records, CHUNK)])
    return float((answers == labels).double().mean())


def small_reader(shape: Sequence[int], classes: int, generator: torch.Generator) -> nn.Module:
    """A strided student network where the images' size suits it, else a small LeNet."""
    image = check_image(shape)
    if image[1] == image[2] and image[1] in (28, 32) and image[0] in (1, 3):
        return StudentCnn(image, classes, generator=generator)
    return ConvClassifier(image, classes, generator=generator)


def joint_adversary(train: PrivateData, generator: torch.Generator) -> nn.Module:
    """Convolutions beside a dense network: hidden from the first alone, trees still read it."""
    classes = train.sensitive_classes
    return JointClassifiers(
        small_reader(train.shape, classes, generator),
        Mlp(math.prod(train.shape), classes, generator=generator),
    )


def read_images(data: PrivateData, steps: int, seed: int) -> nn.Module:
    """A reader of the utility of images, fitted on ``data``: images to logits.

    Of many records a network; of few the best of several (`fedlens.models.few_readers`), by people
    held back, or a filter would be called harmless because a reader of the raw pictures is weak.
    """
    if len(data) <= FEW:
        return read_few(
            (data.records, data.utility, data.owners), data.utility_classes, steps, seed
        )
    generator = torch.Generator().manual_seed(seed)
    net = small_reader(data.shape, data.utility_classes, generator)
    return learn(net, data.records, data.utility, steps=steps, rate=2e-3, seed=seed).eval()


def read_points(data: PrivateData, steps: int, seed: int) -> nn.Module:
    """The same of points."""
    generator = torch.Generator().manual_seed(seed)
    net = Mlp(math.prod(data.shape), data.utility_classes, generator=generator)
    return learn(net, data.records, data.utility, steps=steps, rate=5e-3, seed=seed).eval()
