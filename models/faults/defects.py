"""Images that are not what they should be: parts stuck or covered, or of no known class."""

from __future__ import annotations

import torch
from torch import Tensor

from models.faults.protocol import Fault, FaultSetting

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


def unknown_shapes(images: Tensor, _: FaultSetting) -> Tensor:
    """Upper halves joined to mirrored lower halves of other records: drawn as all are, of no class.

    What a class looks like that no one named cannot be known; these stand for it.
    """
    half = images.shape[2] // 2
    lower = images.roll(len(images) // 2, 0).flip(3)
    return torch.cat([images[:, :, :half], lower[:, :, half:]], 2)


STUCK_COLUMN = Fault(
    "stuck_column",
    "a stuck column",
    image=lambda images, setting: stuck(images, setting.amount, 3),
    amounts=(0.36, 0.14, 0.57, 0.79),
    measure="of the width",
)
STUCK_ROW = Fault(
    "stuck_row",
    "a stuck row",
    image=lambda images, setting: stuck(images, setting.amount, 2),
    amounts=(0.36, 0.14, 0.57, 0.79),
    measure="of the height",
)
OCCLUDE = Fault(
    "occlude",
    "partly covered",
    image=occluded,
    amounts=(0.5, -0.5, 0.3, -0.3),
    measure="of the height, from below",
)
NEW_CLASS = Fault(
    "new_class", "shapes of no class under a class's name", image=unknown_shapes, takes="class"
)
