"""Faults of where things are in an image: turns, mirrors, shifts, sizes."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from fedlens.models.faults.protocol import Fault, FaultSetting


def _turned(quarters: int, otherwise: str) -> Fault:
    degrees = 90 * quarters
    return Fault(
        f"rotate{degrees}",
        "turned right by 90 degrees" if quarters == 3 else f"turned left by {degrees} degrees",
        image=lambda images, _: torch.rot90(images, quarters, (2, 3)),
        probe=f"better_after:rotate{360 - degrees}:{{classes}}",
        otherwise=otherwise,
    )


def warped(images: Tensor, *, degrees: float = 0.0, scale: float = 1.0) -> Tensor:
    """Images turned left about their centre and enlarged by ``scale``; what is outside is black."""
    angle = math.radians(degrees)
    cosine, sine = math.cos(angle) / scale, math.sin(angle) / scale
    matrix = torch.tensor([[cosine, -sine, 0.0], [sine, cosine, 0.0]]).expand(len(images), 2, 3)
    grid = F.affine_grid(matrix, list(images.shape), align_corners=False)
    return F.grid_sample(images + 1, grid, align_corners=False) - 1


def shifted(images: Tensor, pixels: float, axis: int) -> Tensor:
    """Images moved along an axis by whole pixels; what comes in is black."""
    steps, side = round(pixels), images.shape[axis]
    moved = torch.roll(images, steps, axis)
    place = torch.arange(side)
    empty = place < steps if steps > 0 else place >= side + steps
    wanted = [1, 1, 1, 1]
    wanted[axis] = side
    return torch.where(empty.view(wanted), -1.0, moved)


def cropped(images: Tensor, setting: FaultSetting) -> Tensor:
    """The middle of an image alone; a border of ``amount`` pixels is black."""
    border, side = round(setting.amount), images.shape[-1]
    place = torch.arange(side)
    kept = (place >= border) & (place < side - border)
    return torch.where(kept[:, None] & kept[None, :], images, -1.0)


ON_ITS_SIDE = (
    "Users who hold the device on its side, or photographs stored without their orientation tag, "
    "if the reference has none."
)
ROTATE90, ROTATE270 = _turned(1, ON_ITS_SIDE), _turned(3, ON_ITS_SIDE)
ROTATE180 = _turned(
    2, "Devices mounted upside down. In digits, 6 and 9 exchange places: look at them."
)
MIRROR = Fault(
    "mirror",
    "left and right exchanged",
    image=lambda images, _: images.flip(3),
    probe="better_after:mirror:{classes}",
    otherwise="A front camera that saves what its preview shows. Left-handed writing leans, but "
    "does not mirror.",
)
UPSIDE_DOWN = Fault(
    "upside_down",
    "top and bottom exchanged",
    image=lambda x, _: x.flip(2),
    probe="better_after:upside_down:{classes}",
    otherwise="Images whose rows are read from the bottom, as some formats store them.",
)
TILT = Fault(
    "tilt",
    "tilted",
    image=lambda images, setting: warped(images, degrees=setting.amount),
    amounts=(20.0, 10.0, 35.0, -10.0, -20.0, -35.0),
    measure="degrees to the left",
    continuous=True,
    probe="better_after:tilt:{classes}:amount={minus}",
    otherwise="Handwriting that leans more than the reference's: a population, not a defect.",
)
SHIFT_RIGHT = Fault(
    "shift_right",
    "moved sideways",
    image=lambda images, setting: shifted(images, setting.amount, 3),
    amounts=(4.0, 2.0, -2.0, -4.0),
    measure="pixels to the right",
    probe="better_after:shift_right:{classes}:amount={minus}",
    otherwise="Another way of centring the subject before it is stored.",
)
SHIFT_DOWN = Fault(
    "shift_down",
    "moved up or down",
    image=lambda images, setting: shifted(images, setting.amount, 2),
    amounts=(4.0, 2.0, -2.0, -4.0),
    measure="pixels down",
    probe="better_after:shift_down:{classes}:amount={minus}",
    otherwise="Another way of centring the subject before it is stored.",
)
SCALE = Fault(
    "scale",
    "of another size",
    image=lambda images, setting: warped(images, scale=setting.amount),
    amounts=(0.6, 0.8, 1.25, 1.5),
    measure="times the size",
    continuous=True,
    probe="better_after:scale:{classes}:amount={inverse}",
    otherwise="Subjects that are smaller in these users' images, or another cropping margin: the "
    "first sign of a reference of another source.",
)
CROP = Fault(
    "crop",
    "cut off at the border",
    image=cropped,
    amounts=(7.0, 5.0),
    measure="pixels of border",
    probe="unchanged:crop:amount={amount}",
    otherwise="Subjects that are larger in these users' images.",
)
