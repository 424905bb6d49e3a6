"""Faults of brightness, sharpness and colour."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from fedlens.models.faults.protocol import Fault, FaultSetting


def blurred(images: Tensor, side: int) -> Tensor:
    """Each pixel the mean of a square of ``side`` pixels about it; outside is black."""
    return F.avg_pool2d(images + 1, side, 1, side // 2) - 1


def sharpened(images: Tensor, setting: FaultSetting) -> Tensor:
    """Differences from the neighbourhood made larger by ``amount`` (unsharp masking)."""
    return images + setting.amount * (images - blurred(images, 3))


def quantised(images: Tensor, setting: FaultSetting) -> Tensor:
    """Brightness in ``amount`` equal steps alone."""
    steps = setting.amount - 1
    return torch.round((images + 1) / 2 * steps) / steps * 2 - 1


def noisy(images: Tensor, setting: FaultSetting) -> Tensor:
    """Independent normal noise of standard deviation ``amount`` in every pixel."""
    noise = torch.randn(images.shape, generator=setting.generator())
    return images + setting.amount * noise


def saturated(images: Tensor, setting: FaultSetting) -> Tensor:
    """Colours ``amount`` times as far from grey."""
    grey = images.mean(1, keepdim=True)
    return grey + setting.amount * (images - grey)


INVERT = Fault(
    "invert",
    "bright and dark exchanged",
    image=lambda images, _: -images,
    probe="better_after:invert:{classes}",
    otherwise="Dark mode, white chalk, or a scanner's negative: real content of another polarity.",
)
BLUR = Fault(
    "blur",
    "blurred",
    image=lambda images, setting: blurred(images, round(setting.amount)),
    amounts=(5.0, 3.0),
    measure="pixels",
    probe="better_after:sharpen:{classes}:amount=2",
    otherwise="An older camera, or images that were enlarged before they were stored.",
)
SHARPEN = Fault(
    "sharpen",
    "too sharp",
    image=sharpened,
    amounts=(2.0,),
    measure="times the differences",
    probe="better_after:blur:{classes}:amount=3",
)
DIM = Fault(
    "dim",
    "too dark",
    image=lambda images, setting: (images + 1) * setting.amount - 1,
    amounts=(0.4, 0.7),
    measure="times the brightness",
    continuous=True,
    probe="better_after:dim:{classes}:amount={inverse}",
    otherwise="Pens or light weaker than the reference's: the first sign of a reference of another "
    "source.",
)
GAMMA = Fault(
    "gamma",
    "of another gamma",
    image=lambda images, setting: ((images + 1) / 2).clamp(0, 1) ** setting.amount * 2 - 1,
    amounts=(2.5, 0.4),
    measure="exponent",
    probe="better_after:gamma:{classes}:amount={inverse}",
    otherwise="A display profile that was applied twice, or not at all.",
)
QUANTISE = Fault(
    "quantise",
    "in few grey levels",
    image=quantised,
    amounts=(2.0, 3.0),
    measure="levels",
    probe="unchanged:quantise:amount={amount}",
)
NOISE = Fault(
    "noise",
    "noisy",
    image=noisy,
    amounts=(0.5, 0.25),
    measure="standard deviation",
    probe="better_after:blur:{classes}:amount=3",
    otherwise="Dim light: sensors really are noisier there.",
)
SATURATION = Fault(
    "saturation",
    "of weaker or stronger colours",
    image=saturated,
    amounts=(0.2, 2.0),
    measure="times the colour",
    colours=True,
    probe="better_after:saturation:{classes}:amount={inverse}",
)
SWAP_CHANNELS = Fault(
    "swap_channels",
    "red and blue exchanged",
    image=lambda x, _: x.flip(1),
    colours=True,
    probe="better_after:swap_channels:{classes}",
)
