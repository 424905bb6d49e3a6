"""Faults that are in no library, to learn whether a diagnosis says that something is there."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from fedlens.data.registry import load
from fedlens.diagnosis.hypotheses import Hypothesis
from fedlens.models.faults import FAULTS
from fedlens.models.faults.protocol import Fault, FaultSetting, Variant
from fedlens.models.shapes import from_pixels
from fedlens_research.bugs.changes import CHANGES
from fedlens_research.bugs.plan import CLASSES, NEW

EDGE, LOST, SPECKLED = 2, 2, 0.05
"""Pixels of a frame; every so-manyth row is lost; share of pixels white, and as many black."""
AMPLITUDE = 0.2
"""Of a wave, in half sides."""
POOL = 1000
"""Images of another data set that stand for a class that is new."""


def framed(images: Tensor, _: FaultSetting) -> Tensor:
    """A white frame."""
    inside = F.pad(torch.zeros([side - 2 * EDGE for side in images.shape[2:]]), [EDGE] * 4, value=1)
    return torch.where(inside > 0, 1.0, images)


def waved(images: Tensor, _: FaultSetting) -> Tensor:
    """Rows moved along a wave."""
    size = [1, 1, *images.shape[2:]]
    field = F.affine_grid(torch.eye(2, 3)[None], size, align_corners=False).clone()
    field[..., 0] += AMPLITUDE * torch.sin(2 * math.pi * field[..., 1])
    field = field.expand(len(images), -1, -1, -1)
    return F.grid_sample(images + 1, field, align_corners=False) - 1


def rows_lost(images: Tensor, _: FaultSetting) -> Tensor:
    """Every other row black."""
    lost = torch.arange(images.shape[2]) % LOST == 0
    return torch.where(lost[:, None], -1.0, images)


def speckled(images: Tensor, setting: FaultSetting) -> Tensor:
    """Single pixels black or white."""
    drawn = torch.rand(images.shape, generator=setting.generator())
    return torch.where(drawn < SPECKLED, 1.0, torch.where(drawn > 1 - SPECKLED, -1.0, images))


def doubled(images: Tensor, _: FaultSetting) -> Tensor:
    """A weaker copy beside each picture."""
    return torch.maximum(images, 0.6 * (images.roll(5, 3) + 1) - 1)


def replaced(images: Tensor, setting: FaultSetting, *, pool: Tensor) -> Tensor:
    """Pictures of another data set's class."""
    return pool[torch.randint(len(pool), (len(images),), generator=setting.generator())]


OUTSIDERS: dict[str, Callable[[Tensor, FaultSetting], Tensor]] = {
    "a frame": framed,
    "a wave": waved,
    "lost rows": rows_lost,
    "speckles": speckled,
    "double pictures": doubled,
    "diagonal mirror": lambda images, _: images.mT,
    **CHANGES,
}
"""Of the images, in all classes."""


def planted(fault: str, data_dir: str = "") -> Hypothesis:
    """What users have, by its name in a plan.

    A real new class has the library's name of it, for that is what it should be called.

    Raises:
        DatasetError: the data of a new class is not there.
    """
    if fault in OUTSIDERS:
        return Hypothesis(Fault(fault, fault, image=OUTSIDERS[fault]), Variant((), 0.0))
    if fault in NEW:
        name, own, number = NEW[fault]
        found = load(name, data_dir or None)
        pool = from_pixels(found.train_images[found.train_labels == own][:POOL])
        image = partial(replaced, pool=pool)
        return Hypothesis(Fault("new_class", fault, image=image), Variant((number,), 0.0))
    variant = Variant(CLASSES.get(FAULTS[fault].takes, ()), FAULTS[fault].amounts[0])
    return Hypothesis(FAULTS[fault], variant)
