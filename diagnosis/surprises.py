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

from fedlens.diagnosis.hypotheses import Hypothesis
from fedlens.models.faults.protocol import Fault, FaultSetting, Variant

UNNAMED = ""
"""Name of what is no fault of the library."""
DARK, BRIGHT = 4, 7
"""An image is cut into so many parts a side, to be dark or to be bright."""
COARSE = 4
"""Points a side between which a smooth bend is drawn."""
BENDS, FILTERS = 12, 8
BEND = 0.25
"""Largest step of a smooth bend, in half sides."""
_SEED = 21


def surprises() -> list[Hypothesis]:
    """The changes, in a fixed order; all are public and the same each time."""
    changes: list[Callable[[Tensor], Tensor]] = []
    for parts, tone in ((DARK, -1.0), (BRIGHT, 1.0)):
        changes += [_covered(place, parts, tone) for place in range(parts * parts)]
    changes += [_bent(number) for number in range(BENDS)]
    changes += [_filtered(number) for number in range(FILTERS)]
    return [_as_hypothesis(one, number) for number, one in enumerate(changes)]


def _as_hypothesis(change: Callable[[Tensor], Tensor], number: int) -> Hypothesis:
    def image(images: Tensor, _: FaultSetting) -> Tensor:
        return change(images)

    return Hypothesis(Fault(UNNAMED, "something else", image=image), Variant((), float(number)))


def _covered(place: int, parts: int, tone: float) -> Callable[[Tensor], Tensor]:
    """One part of the image all of one tone."""

    def change(images: Tensor) -> Tensor:
        rows, columns = (torch.arange(side) * parts // side for side in images.shape[2:])
        inside = (rows == place // parts)[:, None] & (columns == place % parts)
        return torch.where(inside, tone, images)

    return change


def _bent(number: int) -> Callable[[Tensor], Tensor]:
    """Moved along a smooth field of steps; what is outside is black."""

    def change(images: Tensor) -> Tensor:
        source = torch.Generator().manual_seed(_SEED + number)
        coarse = torch.rand((1, 2, COARSE, COARSE), generator=source) * 2 - 1
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
