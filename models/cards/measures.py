"""What a picture is like: one number, or shares, for each statistic of records."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from fedlens.models.cards.statistics import COLOURS, LOOKED_AT, PIXEL_BINS
from fedlens.models.shapes import as_bytes

TINY = 1e-6
THUMBNAIL = 8
NEAR = 0.1
"""Two pictures are nearly alike whose thumbnails differ by less than this share of what they
differ from their own means by."""


def measure_pictures(images: Tensor) -> dict[str, Tensor]:
    """Numbers of pictures, by the name of their statistic.

    Args:
        images: float32 [n, channels, height, width] in [-1, 1]; what lies outside is cut, as all is
            measured on their bytes.

    Returns:
        Tensors [n] of numbers; ``pixels`` is [n, bins], of shares.
    """
    pixels = as_bytes(images)
    channels = pixels.float().mean((2, 3)) / 255
    grey = pixels.float().mean(1) / 255
    found = {
        "brightness": grey.mean((1, 2)),
        "contrast": (grey - grey.mean((1, 2), keepdim=True)).square().mean((1, 2)).sqrt(),
        "highest": pixels.flatten(1).amax(1).float(),
        "levels": _levels(grey),
        "pixels": _pixel_shares(grey),
        "border": _border(grey),
        **_edges(grey),
        **_places(grey),
    }
    if pixels.shape[1] == len(COLOURS):
        beyond = channels - channels.mean(1, keepdim=True)
        found |= {one.name: beyond[:, i] for i, one in enumerate(COLOURS)}
    return found


def _counts(places: Tensor, bins: int) -> Tensor:
    """How often each bin is named in each row, float32 [n, bins]."""
    flat = places.flatten(1)
    ones = torch.ones(flat.shape, device=flat.device)
    return torch.zeros(len(flat), bins, device=flat.device).scatter_add_(1, flat, ones)


def _levels(grey: Tensor) -> Tensor:
    return (_counts((grey * 255).round().long(), 256) > 0).sum(1).float()


def _pixel_shares(grey: Tensor) -> Tensor:
    places = ((grey * 255).round().long() * PIXEL_BINS) >> 8
    return _counts(places, PIXEL_BINS) / grey[0].numel()


def _border(grey: Tensor) -> Tensor:
    """Mean over a frame a fourteenth of the side wide."""
    side = grey.shape[1]
    wide = max(1, round(side / 14))
    frame = torch.ones(side, side, device=grey.device)
    frame[wide : side - wide, wide : side - wide] = 0
    return (grey * frame).sum((1, 2)) / frame.sum()


def _edges(grey: Tensor) -> dict[str, Tensor]:
    """Steps between neighbours, and how sudden they are."""
    across, down = grey.diff(dim=2), grey.diff(dim=1)
    steps = (across.square().mean((1, 2)) + down.square().mean((1, 2))).sqrt()
    inner = grey[:, 1:-1, 1:-1]
    beside = grey[:, :-2, 1:-1] + grey[:, 2:, 1:-1] + grey[:, 1:-1, :-2] + grey[:, 1:-1, 2:]
    second = (4 * inner - beside).square().mean((1, 2)).sqrt()
    return {"gradients": steps, "sharpness": second / (2 * steps).clamp(min=TINY)}


def _places(grey: Tensor) -> dict[str, Tensor]:
    """Where brightness lies, how far it is spread and along which axis."""
    side = grey.shape[1]
    along = (torch.arange(side, device=grey.device) + 0.5) / side
    ink = grey + TINY
    whole = ink.sum((1, 2))
    columns, rows = ink.sum(1) / whole[:, None], ink.sum(2) / whole[:, None]
    x, y = (columns * along).sum(1), (rows * along).sum(1)
    from_x, from_y = along - x[:, None], along - y[:, None]
    xx, yy = (columns * from_x.square()).sum(1), (rows * from_y.square()).sum(1)
    xy = (ink * from_y[:, :, None] * from_x[:, None, :]).sum((1, 2)) / whole
    return {
        "centre_across": x,
        "centre_down": y,
        "turn": torch.atan2(2 * xy, yy - xx) * (90 / math.pi),
        "size": (xx + yy).sqrt(),
    }


def equal_pictures(images: Tensor) -> Tensor:
    """Which of a user's pictures are the same byte by byte, bool [records, records].

    Args:
        images: float32 [records, channels, height, width] in [-1, 1]; the first `LOOKED_AT` are
            looked at.
    """
    flat = as_bytes(images[:LOOKED_AT]).flatten(1)
    # by a maximum: all() of comparisons takes twice as long of black and white pictures as of grey
    return torch.stack([(flat ^ one).amax(1) == 0 for one in flat])


def thumbnails(images: Tensor) -> Tensor:
    """What pictures look like from afar, without their mean, float32 [n, 64]."""
    small = F.adaptive_avg_pool2d(images.mean(1), THUMBNAIL).flatten(1)
    return small - small.mean(1, keepdim=True)


def copies(same: Tensor, small: Tensor, present: Tensor) -> tuple[Tensor, Tensor]:
    """Which records of a user repeat an earlier one: exactly, and nearly but not exactly.

    Any dimensions may stand before those of the arguments.

    Args:
        same: bool [records, records], which pictures are equal, of `LOOKED_AT` at most.
        small: of `thumbnails`, [records, 64].
        present: bool [records].

    Returns:
        bool [records] each, of the first `LOOKED_AT` of them, of which any may be absent.
    """
    small, present = small[..., :LOOKED_AT, :], present[..., :LOOKED_AT]
    apart = torch.cdist(small, small, compute_mode="donot_use_mm_for_euclid_dist")
    reach = small.norm(dim=-1)
    near = apart < NEAR * (reach[..., :, None] + reach[..., None, :]) / 2
    earlier = torch.ones_like(same).tril(-1) & present[..., :, None] & present[..., None, :]
    exact = (same & earlier).any(-1)
    return exact, (near & ~same & earlier).any(-1) & ~exact
