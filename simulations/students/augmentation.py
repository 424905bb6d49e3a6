"""Changes of synthetic images that keep their meaning: affine maps, mirror images, mixtures.

All public: the settings are a data set's, never anybody's. Every draw comes from an explicit
generator.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from fedlens.data.spec import Augmentation

BACKGROUND = -1.0
"""Pixels that an affine map brings in from outside the image."""
CHUNK = 500
"""Images that are changed at once."""


def augment(images: Tensor, settings: Augmentation, generator: torch.Generator) -> Tensor:
    """Every image under its kind's random change, then `moved`: float32 [n, c, h, w] in [-1, 1]."""
    if settings.kind == "affine":
        images = affine(images, settings, generator)
    if settings.kind == "flips":
        images = flips(images, generator)
    return moved(images, settings, generator)


def moved(images: Tensor, settings: Augmentation, generator: torch.Generator) -> Tensor:
    """The images, each moved a little where the settings say so."""
    most = settings.moving
    if not most:
        return images
    little = replace(settings, rotation=most, scale=most, shear=most, shift=most)
    return affine(images, little, generator)


def affine(images: Tensor, settings: Augmentation, generator: torch.Generator) -> Tensor:
    """Each image under an affine map of its own, resampled bilinearly.

    Args:
        images: float32 [n, c, h, w] in [-1, 1].
        settings: how far maps go; each of their numbers is uniform within its bound.
        generator: CPU generator that all of them are drawn from.
    """
    maps = _maps(len(images), settings, generator).to(images.device)
    parts = zip(torch.split(images, CHUNK), torch.split(maps, CHUNK), strict=True)
    return torch.cat([_mapped(part, theta) for part, theta in parts]) if len(images) else images


def _maps(count: int, settings: Augmentation, generator: torch.Generator) -> Tensor:
    """Inverse maps float32 [n, 2, 3], from where to where each pixel is looked up."""

    def uniform(bound: float) -> Tensor:
        return (2 * torch.rand(count, generator=generator) - 1) * bound

    angle, shear = uniform(settings.rotation), uniform(settings.shear)
    wide, tall = 1 + uniform(settings.scale), 1 + uniform(settings.scale)
    right, down = uniform(settings.shift), uniform(settings.shift)
    rows = (
        torch.stack([angle.cos() * wide, shear - angle.sin() * tall, right], 1),
        torch.stack([angle.sin() * wide, angle.cos() * tall, down], 1),
    )
    return torch.stack(rows, 1)


def _mapped(images: Tensor, theta: Tensor) -> Tensor:
    return resampled(images, F.affine_grid(theta, list(images.shape), align_corners=False))


def resampled(images: Tensor, grid: Tensor) -> Tensor:
    """Images [n, c, h, w] looked up bilinearly at a grid [n, h, w, 2]; background lies outside."""
    # what lies outside is filled with 0, so the background is moved there and back
    return F.grid_sample(images - BACKGROUND, grid, align_corners=False) + BACKGROUND


def flips(images: Tensor, generator: torch.Generator) -> Tensor:
    """Every other image, drawn at random, mirrored left to right."""
    turned = torch.rand(len(images), generator=generator) < 0.5
    return torch.where(turned.to(images.device)[:, None, None, None], images.flip(3), images)


def mixup(images: Tensor, most: float, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Mixtures of pairs of images (Zhang et al. 2018, their eq. 1 with uniform weights).

    Args:
        images: float32 [n, c, h, w].
        most: largest weight of the second image of a pair, in [0, 1).
        generator: CPU generator of pairs and weights.

    Returns:
        The mixtures [n, c, h, w]; the partner of each image, int64 [n]; and its weight,
        float32 [n] in [0, most]. A caller with labels mixes them alike.
    """
    partners = torch.randperm(len(images), generator=generator)
    weights = torch.rand(len(images), generator=generator) * most
    share, mixed = weights.to(images.device)[:, None, None, None], torch.empty_like(images)
    for places in torch.split(torch.arange(len(images), device=images.device), CHUNK):
        others = images[partners.to(images.device)[places]]
        mixed[places] = (1 - share[places]) * images[places] + share[places] * others
    return mixed, partners, weights
