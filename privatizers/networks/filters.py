"""Filters: networks that turn a record and noise into a record of the same space.

Noise is always an argument, standard normal, so that a filter is a function: an export of it is
deterministic and the device chooses its source of randomness. What a filter lets through is for
attackers to find out; a filter as such promises nothing.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedlens.models.classifiers import check_image
from fedlens.models.weights import initialise, unset_weights

LEVELS = 2
"""How often a U-Net halves the image."""


class LinearFilter(nn.Module):
    """q = θx + z, z ~ N(0, I): its leakage is computable.

    Bertran et al. 2019, equation 22.

    Args:
        dim: entries of a record.
        scale: standard deviation of θ's entries at the start.
        generator: CPU generator of θ; ``None`` is seed 0.
    """

    def __init__(
        self, dim: int, *, scale: float = 1.0, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        source = generator if generator is not None else torch.Generator().manual_seed(0)
        self.noise_shape = (dim,)
        self.theta = nn.Parameter(scale * torch.randn(dim, dim, generator=source))

    def forward(self, records: Tensor, noise: Tensor, choice: Tensor | None = None) -> Tensor:
        """Released points float32 [n, dim] of points and noise, both [n, dim]."""
        return self.means(records) + noise

    def means(self, records: Tensor) -> Tensor:
        """What is released before the noise, float32 [n, dim]."""
        return F.linear(records, self.theta)


class MlpFilter(nn.Module):
    """q = f(x, w) + z with f a network of two hidden layers, z ~ N(0, I), and w ~ N(0, I) inside.

    The Gaussian noise on top keeps the density of q given x and w known, hence what it leaks.
    Noise *inside* matters: without it f maps a tight cluster to a point, which z then blurs alike
    in every direction, and no such filter can erase one record in three and keep the others.

    Args:
        dim: entries of a record.
        width: units of each hidden layer.
        inner: entries of w; 0 for none.
        scale: standard deviation of f's output at the start, about.
        generator: CPU generator of the weights; ``None`` is seed 0.
    """

    def __init__(
        self,
        dim: int,
        *,
        width: int = 32,
        inner: int = 0,
        scale: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.dim, self.inner, self.scale = dim, inner, scale
        self.noise_shape = (dim + inner,)
        with unset_weights():
            self.dense1 = nn.Linear(dim + inner, width)
            self.dense2 = nn.Linear(width, width)
            self.head = nn.Linear(width, dim)
        initialise(self, generator, "relu")

    def forward(self, records: Tensor, noise: Tensor, choice: Tensor | None = None) -> Tensor:
        """Released points float32 [n, dim] of points [n, dim] and noise [n, dim + inner]."""
        return self.means(records, noise[:, self.dim :]) + noise[:, : self.dim]

    def means(self, records: Tensor, inner: Tensor) -> Tensor:
        """What is released before the noise on top, float32 [n, dim], of w float32 [n, inner]."""
        units = F.relu(self.dense1(torch.cat([records, inner], -1)))
        means: Tensor = self.scale * self.head(F.relu(self.dense2(units)))
        return means


class DenseFilter(nn.Module):
    """Two hidden layers over all pixels, with noise beside the units; it sees an image as a whole.

    For small aligned images, where who is seen matters and not where: several times as fast to
    train as a U-Net. With ``residual`` it answers, like `UNet`, with x plus a correction that
    starts near 0. Without, all that it releases has to pass its units, so that what it was never
    taught to keep is lost; it is then to be brought near the identity first.

    Args:
        shape: (channels, height, width) of an image, any sides of at least 8 pixels.
        width: hidden units of each layer.
        noise: entries of noise, beside the units of the first.
        residual: whether x is added to what is released.
        limits: least and greatest value of a released pixel, or None for no limits.
        generator: CPU generator of the weights; ``None`` is seed 0.

    Raises:
        ShapeError: on a shape that is not supported.
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        width: int = 128,
        *,
        noise: int = 16,
        residual: bool = True,
        limits: tuple[float, float] | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.shape, self.residual, self.limits = check_image(shape), residual, limits
        self.noise_shape = (noise,)
        pixels = math.prod(self.shape)
        with unset_weights():
            self.enter = nn.Linear(pixels, width)
            self.mix = nn.Linear(width + noise, width)
            self.correct = nn.Linear(width, pixels)
        initialise(self, generator, "relu")
        with torch.no_grad():
            self.correct.weight.mul_(0.01 if residual else 0.3)

    def forward(self, records: Tensor, noise: Tensor, choice: Tensor | None = None) -> Tensor:
        """Released images [n, c, h, w] of images and noise [n, noise]."""
        units = F.relu(self.enter(records.flatten(1)))
        units = F.relu(self.mix(torch.cat([units, noise], 1)))
        released: Tensor = self.correct(units).view_as(records)
        if self.residual:
            released = records + released
        return released if self.limits is None else released.clamp(*self.limits)


class UNet(nn.Module):
    """A U-Net (Ronneberger et al. 2015) over images, with one layer of noise at its bottleneck.

    It answers with x plus a correction, whose last layer starts near 0: near the identity, as
    Bertran et al. 2019 pre-train theirs to be. No norm layers, so a record's answer depends on that
    record, its noise and its bits alone.

    Args:
        shape: (channels, height, width) of an image, any sides of at least 8 pixels.
        width: channels at full size; twice and four times as many further down.
        noise: planes of noise at the bottleneck.
        choices: opt-in bits, each an input plane of its own; 0 where everybody is treated alike.
        limits: least and greatest value of a released pixel, or None for no limits.
        generator: CPU generator of the weights; ``None`` is seed 0.

    Raises:
        ShapeError: on a shape that is not supported.
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        width: int = 8,
        *,
        noise: int = 4,
        choices: int = 0,
        limits: tuple[float, float] | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.shape, self.choices, self.limits = check_image(shape), choices, limits
        channels, height, breadth = self.shape
        self.noise_shape = (noise, _halved(height), _halved(breadth))
        with unset_weights():
            self.enter = nn.Conv2d(channels + choices, width, 3, padding=1)
            self.down1 = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
            self.down2 = nn.Conv2d(2 * width, 4 * width, 3, stride=2, padding=1)
            self.bottom = nn.Conv2d(4 * width + noise, 4 * width, 3, padding=1)
            self.up1 = nn.Conv2d(6 * width, 2 * width, 3, padding=1)
            self.up2 = nn.Conv2d(3 * width, width, 3, padding=1)
            self.correct = nn.Conv2d(width, channels, 3, padding=1)
        initialise(self, generator, "relu")
        with torch.no_grad():
            self.correct.weight.mul_(0.01)

    def forward(self, records: Tensor, noise: Tensor, choice: Tensor | None = None) -> Tensor:
        """Released images [n, c, h, w] of images, noise [n, *noise_shape], bits [n, choices]."""
        full = F.relu(self.enter(self._with_bits(records, choice)))
        half = F.relu(self.down1(full))
        quarter = F.relu(self.down2(half))
        quarter = F.relu(self.bottom(torch.cat([quarter, noise], 1)))
        half = F.relu(self.up1(torch.cat([_enlarged(quarter, half), half], 1)))
        full = F.relu(self.up2(torch.cat([_enlarged(half, full), full], 1)))
        released: Tensor = records + self.correct(full)
        return released if self.limits is None else released.clamp(*self.limits)

    def _with_bits(self, records: Tensor, choice: Tensor | None) -> Tensor:
        """The images with a constant plane for each bit; no bits given means all hidden."""
        if not self.choices:
            return records
        bits = records.new_ones(len(records), self.choices) if choice is None else choice
        planes = bits[:, :, None, None].expand(-1, -1, *records.shape[2:])
        return torch.cat([records, planes], 1)


def _halved(side: int) -> int:
    for _ in range(LEVELS):
        side = (side + 1) // 2
    return side


def _enlarged(maps: Tensor, like: Tensor) -> Tensor:
    return F.interpolate(maps, size=like.shape[-2:], mode="nearest")
