"""Made-up pictures: shapes of any colour and texture that lie over one another.

They hold nothing of any data. Shapes that cover one another have edges as photographs have them
(Lee, Mumford & Huang, "Occlusion Models for Natural Images", IJCV 2001), and networks learn to see
from such (Baradad et al., "Learning to See by Looking at Noise", arXiv:2106.05963). An annotator
that learned from people's pictures labels them, and so a student learns from it what samples are
too alike to show.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

LAYERS = 14
"""Shapes of a scene, of which some stay away."""
THERE = 0.7
"""Chance of a shape to be there."""
EDGE = 8.0
"""Steepness of an outline."""


def scenes(count: int, channels: int, side: int, generator: torch.Generator) -> Tensor:
    """Scenes, float32 [count, channels, side, side] in [-1, 1].

    Args:
        count: how many.
        channels: of a picture; 3 for colours.
        side: pixels of a side.
        generator: CPU generator of everything drawn.
    """
    draw = _Draws(count, channels, side, generator)
    waves = draw.waves()
    found = draw.painted(waves, 0.2 + 0.5 * draw.uniform())
    for _ in range(LAYERS):
        shape = draw.outline() * (draw.uniform() < THERE)
        found = torch.lerp(found, draw.painted(waves, 0.4 * draw.uniform()), shape)
    return found


class _Draws:
    """What scenes are made of, for all of them at once."""

    def __init__(self, count: int, channels: int, side: int, generator: torch.Generator) -> None:
        self._size, self._generator = (count, channels, side, side), generator
        down, right = torch.fft.fftfreq(side)[:, None], torch.fft.rfftfreq(side)
        self._power = down.square() + right.square()
        self._power[0, 0] = 1 / side**2
        axis = torch.linspace(-1, 1, side)
        self._down, self._right = torch.meshgrid(axis, axis, indexing="ij")

    def uniform(self, *size: int) -> Tensor:
        """One number a scene in [0, 1), [count, 1, 1, 1] or [count, ...]."""
        return torch.rand(self._size[0], *(size or (1, 1, 1)), generator=self._generator)

    def normal(self, *size: int) -> Tensor:
        """One number a scene and channel, [count, channels, 1, 1], or [count, ...]."""
        return torch.randn(
            self._size[0], *(size or (self._size[1], 1, 1)), generator=self._generator
        )

    def painted(self, waves: Tensor, strength: float | Tensor) -> Tensor:
        """A colour with waves on it; whose, is by chance."""
        order = torch.randperm(len(waves), generator=self._generator)
        colour = 0.4 * self.normal(1, 1, 1) + 0.3 * self.normal()
        return torch.addcmul(colour, waves[order], torch.as_tensor(strength)).clamp_(-1, 1)

    def waves(self) -> Tensor:
        """Of all lengths, the longer the stronger, of deviation 1; channels are more or less alike.

        Made once, since they take longer than all else.
        """
        _, channels, side, _ = self._size
        white = torch.fft.rfft2(self.normal(channels, side, side))
        steepness = 0.8 + self.uniform()
        waves = torch.fft.irfft2(white * self._power ** (-steepness / 2), s=(side, side))
        waves = waves - waves.mean((2, 3), keepdim=True)
        colourful = 0.7 * self.uniform()
        waves = torch.lerp(waves.mean(1, keepdim=True) * channels**0.5, waves, colourful)
        return waves / waves.std((1, 2, 3), keepdim=True)

    def outline(self) -> Tensor:
        """Ellipses and rounded boxes, 1 inside and 0 outside, [count, 1, side, side]."""
        down, right = 2.4 * self.uniform() - 1.2, 2.4 * self.uniform() - 1.2
        radius, angle = 0.1 + 0.8 * self.uniform().square(), math.pi * self.uniform()
        longer = torch.exp(0.4 * self.normal(1, 1, 1))
        x, y = self._right - right, self._down - down
        along = (x * angle.cos() + y * angle.sin()) / (radius * longer)
        across = (y * angle.cos() - x * angle.sin()) * longer / radius
        power = torch.where(self.uniform() < 0.5, 2.0, 6.0)
        return torch.sigmoid((1 - along.abs() ** power - across.abs() ** power) * EDGE)
