"""Images that are not what they should be: parts stuck or covered, or of no known class."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from fedlens.models.faults.protocol import Fault, FaultSetting

WIDTH = 2
"""Lines that are stuck together."""


def stuck(images: Tensor, place: float, axis: int) -> Tensor:
    """Two neighbouring lines all white, ``place`` of the way along an axis."""
    side = images.shape[axis]
    first = round(place * side)
    line = torch.arange(side)
    wanted = [1, 1, 1, 1]
    wanted[axis] = side
    return torch.where(((line >= first) & (line < first + WIDTH)).view(wanted), 1.0, images)


def occluded(images: Tensor, setting: FaultSetting) -> Tensor:
    """``amount`` of the image black, from below; where negative, from above."""
    side = images.shape[2]
    rows, line = round(abs(setting.amount) * side), torch.arange(side)
    covered = line >= side - rows if setting.amount > 0 else line < rows
    return torch.where(covered[:, None], -1.0, images)


JOINED, WHOLE, SOLID = 0.0, 1.0, 2.0
SPREAD = 7
"""Pixels over which the strokes of solid shapes are spread."""


def unknown_shapes(images: Tensor, setting: FaultSetting) -> Tensor:
    """Shapes of no class, in place of those of a class.

    What a class looks like that no one named cannot be known. Three kinds stand for it: upper
    halves joined to mirrored lower halves of other records, which are drawn as all are; whole
    pictures of other records, which say that the class is no longer what it was and no other class
    changed; and solid shapes. Pictures of other records lie a pixel aside: what no one named is no
    copy of what its holder has.
    """
    half, others = images.shape[2] // 2, images.roll(len(images) // 2, 0)
    if setting.amount == WHOLE:
        return others.roll(1, 3)
    joined = torch.cat([images[:, :, :half], others.flip(3)[:, :, half:]], 2)
    if setting.amount == SOLID:
        return F.max_pool2d(joined, SPREAD, 1, SPREAD // 2)
    return joined


STUCK_COLUMN = Fault(
    "stuck_column",
    "a stuck column",
    image=lambda images, setting: stuck(images, setting.amount, 3),
    amounts=(0.36, 0.14, 0.57, 0.79),
    measure="of the width",
    probe="unchanged:stuck_column:amount={amount}",
    otherwise="A frame or scan line that is in the scene itself.",
)
STUCK_ROW = Fault(
    "stuck_row",
    "a stuck row",
    image=lambda images, setting: stuck(images, setting.amount, 2),
    amounts=(0.36, 0.14, 0.57, 0.79),
    measure="of the height",
    probe="unchanged:stuck_row:amount={amount}",
    otherwise="A frame or scan line that is in the scene itself.",
)
OCCLUDE = Fault(
    "occlude",
    "partly covered",
    image=occluded,
    amounts=(0.5, -0.5, 0.3, -0.3),
    measure="of the height, from below",
    probe="unchanged:occlude:amount={amount}",
    otherwise="A finger, a logo or a time stamp in the same corner.",
)
NEW_CLASS = Fault(
    "new_class",
    "shapes of no class under a class's name",
    image=unknown_shapes,
    amounts=(JOINED, WHOLE, SOLID),
    takes="class",
    probe="confidence",
    otherwise="A class that the schema lacks, or images that were filed under the wrong task.",
)
