"""Changes that need not keep what an image shows: for images that are labelled after the change.

A student that is taught by an annotator learns from whatever the annotator can judge, so its images
may leave the samples' narrow range: strokes bent smoothly, light and shade over an image, and
regions from another one. All public, like `fedlens.simulations.students.augmentation`; every
draw comes from an explicit generator.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from fedlens.data.spec import Distortion
from fedlens.simulations.students.augmentation import resampled
from fedlens.simulations.students.scenes import scenes

WARP, COARSE, FINE, PATCH = 5, 7, 14, 4
"""Cells a side of the smooth fields: of a warp, of both shades, and of a patch's outline."""
COLOURS = 3
"""Channels of pictures among which scenes may be."""
EDGE = 4.0
"""Steepness of a patch's outline."""


def distort(images: Tensor, settings: Distortion, generator: torch.Generator) -> Tensor:
    """Images warped, shaded and patched as the settings say: float32 [n, c, h, w] in [-1, 1].

    Args:
        images: float32 [n, c, h, w] in [-1, 1].
        settings: how much.
        generator: CPU generator of everything drawn.
    """
    if settings.warping:
        images = warped(images, settings.warping, generator)
    if settings.shading:
        images = shaded(images, settings.shading, generator)
    if settings.patching:
        images = patched(images, settings.patching, generator)
    if settings.scenes and images.shape[1] == COLOURS:
        images = replaced(images, settings.scenes, generator)
    return images


def warped(images: Tensor, most: float, generator: torch.Generator) -> Tensor:
    """Images bent by smooth random fields, resampled bilinearly.

    Like the elastic distortions of Simard, Steinkraus and Platt (2003), with so few cells that
    strokes are bent and moved but keep their outline.

    Args:
        images: float32 [n, c, side, side] in [-1, 1].
        most: each image's strength is uniform in [0, most]: the standard deviation, about, of how
            far its pixels move along each axis, as a share of the side.
        generator: CPU generator of two fields and a strength for each image.
    """
    count, side = len(images), images.shape[-1]
    strength = 2 * most * torch.rand(count, 1, 1, 1, generator=generator)  # an image is 2 wide
    fields = [_field(count, WARP, side, generator) for _ in range(2)]
    straight = F.affine_grid(torch.eye(2, 3)[None], [1, 1, side, side], align_corners=False)
    grid = straight + (strength * torch.cat(fields, 1)).permute(0, 2, 3, 1)
    return resampled(images, grid)


def shaded(images: Tensor, most: float, generator: torch.Generator) -> Tensor:
    """Images whose ink is multiplied by a smooth random field; the background stays."""
    strength = torch.rand(len(images), 1, 1, 1, generator=generator) * most
    side = images.shape[-1]
    field = _field(len(images), COARSE, side, generator) + _field(
        len(images), FINE, side, generator
    )
    ink = (images + 1) / 2 * torch.exp(strength * field)
    return ink.clamp(0, 1) * 2 - 1


def patched(images: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Images of which some have a smooth region from another image of the batch."""
    partners = torch.randperm(len(images), generator=generator)
    chosen = torch.rand(len(images), generator=generator) < share
    kept = torch.sigmoid(EDGE * _field(len(images), PATCH, images.shape[-1], generator))
    kept = torch.where(chosen[:, None, None, None], kept, 1.0)
    return torch.lerp(images[partners], images, kept)


def replaced(images: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Images of which some are made-up scenes instead."""
    chosen = torch.rand(len(images), generator=generator) < share
    made = scenes(int(chosen.sum()), images.shape[1], images.shape[-1], generator)
    return images.masked_scatter(chosen[:, None, None, None], made)


def _field(count: int, cells: int, side: int, generator: torch.Generator) -> Tensor:
    """Smooth Gaussian fields [count, 1, side, side]; a pixel's deviation is 0.6 to 1.3."""
    coarse = torch.randn(count, 1, cells, cells, generator=generator)
    spread = _spread(cells, side)
    return spread @ coarse @ spread.T


@lru_cache(maxsize=8)
def _spread(cells: int, side: int) -> Tensor:
    """Bicubic interpolation along one side, float32 [side, cells]; shared, so it is never changed.

    Interpolation is linear, and as products of matrices many times faster on a CPU for many small
    fields than `torch.nn.functional.interpolate`.
    """
    unit = torch.eye(cells)[None, None]
    return F.interpolate(unit, (side, cells), mode="bicubic", align_corners=False)[0, 0]
