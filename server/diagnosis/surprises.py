"""Changes of images that are in no library, so that what no one thought of is looked for too.

A fault that the library does not hold still changes where strokes lie, how bright parts are or how
sharp edges look. These changes span such things coarsely: parts of an image darker or brighter,
smooth bends, other filters. None is a finding. Together they say in which directions to look for
what is left once the findings are fitted.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from models.faults.protocol import Fault, FaultSetting, Variant
from server.diagnosis.hypotheses import Hypothesis

UNNAMED = ""
"""Name of what is no fault of the library."""
PARTS = 4
"""An image is cut into so many parts a side."""
BENDS, FILTERS = 8, 6
BEND = 0.25
"""Largest step of a smooth bend, in half sides."""
_SEED = 21


def surprises() -> list[Hypothesis]:
    """The changes, in a fixed order; all are public and the same each time."""
    changes: list[Callable[[Tensor], Tensor]] = []
    for place in range(PARTS * PARTS):
        changes += [_covered(place, -1.0), _covered(place, 1.0)]
    changes += [_bent(number) for number in range(BENDS)]
    changes += [_filtered(number) for number in range(FILTERS)]
    return [_as_hypothesis(one) for one in changes]


def _as_hypothesis(change: Callable[[Tensor], Tensor]) -> Hypothesis:
    def image(images: Tensor, _: FaultSetting) -> Tensor:
        return change(images)

    return Hypothesis(Fault(UNNAMED, "something else", image=image), Variant((), 0.0))


def _covered(place: int, tone: float) -> Callable[[Tensor], Tensor]:
    """One part of the image all of one tone."""

    def change(images: Tensor) -> Tensor:
        rows, columns = (torch.arange(side) * PARTS // side for side in images.shape[2:])
        inside = (rows == place // PARTS)[:, None] & (columns == place % PARTS)
        return torch.where(inside, tone, images)

    return change


def _bent(number: int) -> Callable[[Tensor], Tensor]:
    """Moved along a smooth field of steps; what is outside is black."""

    def change(images: Tensor) -> Tensor:
        source = torch.Generator().manual_seed(_SEED + number)
        coarse = torch.rand((1, 2, PARTS, PARTS), generator=source) * 2 - 1
        size = list(images.shape[2:])
        steps = F.interpolate(coarse, size=size, mode="bicubic", align_corners=True)
        still = F.affine_grid(torch.eye(2, 3)[None], [1, 1, *size], align_corners=False)
        field = (still + BEND * steps.permute(0, 2, 3, 1)).expand(len(images), -1, -1, -1)
        return F.grid_sample(images + 1, field, align_corners=False) - 1

    return change


def _filtered(number: int) -> Callable[[Tensor], Tensor]:
    """Each pixel a random mixture of its neighbours, its own share kept."""

    def change(images: Tensor) -> Tensor:
        source = torch.Generator().manual_seed(_SEED + BENDS + number)
        mixture = torch.randn((1, 1, 5, 5), generator=source) / 5
        mixture[..., 2, 2] += 1 - mixture.sum()
        channels = images.shape[1]
        weights = mixture.expand(channels, 1, 5, 5)
        return F.conv2d(images + 1, weights, padding=2, groups=channels) - 1

    return change
