"""Questions about pixels, which need no network."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedlens.models.probes.protocol import Argument, Probe, ProbedRecords

BORDER = 0.15
"""Width of the border, as a share of the shorter side."""
DARK = -0.9
"""Brightness in [-1, 1] below which a pixel is dark."""
ALIKE = 0.005
"""Mean change of a pixel below which an image counts as unchanged."""


def dark_border(records: ProbedRecords, _: Argument) -> Tensor:
    """Share of the border's pixels that are dark."""
    height, width = records.images.shape[2:]
    edge = max(1, round(BORDER * min(height, width)))
    border = torch.ones(height, width, dtype=torch.bool)
    border[edge : height - edge, edge : width - edge] = False
    dark = (records.images.amax(1) < DARK).float() * border
    return dark.sum((1, 2)) / border.sum()


def intensity(records: ProbedRecords, _: Argument) -> Tensor:
    """Mean brightness, 0 where black and 1 where white."""
    return (records.images.mean((1, 2, 3)) + 1) / 2


def tilt(records: ProbedRecords, _: Argument) -> Tensor:
    """Angle in degrees from the vertical to the axis along which brightness is spread most."""
    ink = records.images.mean(1) + 1
    height, width = ink.shape[1:]
    down, across = torch.arange(height).float()[:, None], torch.arange(width).float()[None, :]
    whole = ink.sum((1, 2)).clamp(min=1e-6)
    y = down - ((ink * down).sum((1, 2)) / whole)[:, None, None]
    x = across - ((ink * across).sum((1, 2)) / whole)[:, None, None]
    yy, xx, xy = ((ink * part).sum((1, 2)) for part in (y * y, x * x, x * y))
    return torch.atan2(2 * xy, yy - xx) * (90 / math.pi)


def unchanged(records: ProbedRecords, argument: Argument) -> Tensor:
    """1 where a transformation changes nothing of an image any more, else -1."""
    if argument.fault is None:
        raise ValueError("the probe needs a transformation")
    setting = argument.fault.setting(records.classes, 0)
    changed, _ = argument.fault.fault.applied(records.images, records.labels, setting)
    apart = (changed - records.images).abs().mean((1, 2, 3))
    return torch.where(apart < ALIKE, 1.0, -1.0)


DARK_BORDER = Probe("dark_border", "share of the border that is dark", dark_border, 0, 1)
INTENSITY = Probe("intensity", "mean brightness, from black (0) to white (1)", intensity, 0, 1)
TILT = Probe("tilt", "degrees from the vertical to the principal axis", tilt, -90, 90)
UNCHANGED = Probe(
    "unchanged",
    "share of users most of whose images are as after: {}",
    unchanged,
    -1,
    1,
    user="vote",
    takes="transformation",
)
