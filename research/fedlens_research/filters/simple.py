"""Releases that nobody trained against an attacker: what a learned filter has to be better than.

Each is a filter as others are, with its noise as an argument, and one number that turns it from
nothing to everything.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedlens.models.principal import principal

GREY_LEVELS = 255
REACH = 3.0
"""Standard deviations at which a blur's weights end."""
MOST_COMPONENTS, RIDGE = 100, 0.05
"""That discriminants are found in, and what is added to their variances within a class."""


class PixelNoise(nn.Module):
    """Independent noise on every entry.

    Args:
        shape: of a record.
        deviation: of the noise, in the units of the entries.
    """

    def __init__(self, shape: tuple[int, ...], deviation: float) -> None:
        super().__init__()
        self.noise_shape, self.deviation = shape, deviation

    def forward(self, records: Tensor, noise: Tensor, choice: Tensor | None = None) -> Tensor:
        """Records [n, *shape] with noise [n, *shape]."""
        return records + self.deviation * noise


class Blur(nn.Module):
    """A Gaussian blur, rounded to grey levels as a picture is: without that it could be undone.

    Args:
        deviation: of the Gaussian, in pixels; above 0.
        low: least value of a pixel.
        high: greatest value.
    """

    noise_shape: tuple[int, ...] = ()

    def __init__(self, deviation: float, low: float = -1.0, high: float = 1.0) -> None:
        super().__init__()
        self.low, self.high = low, high
        reach = math.ceil(REACH * deviation)
        weights = torch.exp(-0.5 * (torch.arange(-reach, reach + 1) / deviation).square())
        self.weights = nn.Buffer(weights / weights.sum())

    def forward(self, records: Tensor, noise: Tensor, choice: Tensor | None = None) -> Tensor:
        """Images [n, c, h, w]; edges are drawn out, and noise is not looked at."""
        count, channels, height, width = records.shape
        reach = len(self.weights) // 2
        planes = records.reshape(-1, 1, height, width)
        planes = F.pad(planes, (reach,) * 4, mode="replicate")
        planes = F.conv2d(planes, self.weights.view(1, 1, -1, 1))
        blurred = F.conv2d(planes, self.weights.view(1, 1, 1, -1))
        step = (self.high - self.low) / GREY_LEVELS
        rounded = self.low + step * ((blurred - self.low) / step).round()
        return rounded.view(count, channels, height, width)


class Components(nn.Module):
    """The leading principal components of records, with noise.

    Args:
        records: float32 [n, ...], whose components are meant.
        count: how many are sent.
        deviation: of the noise on each, in root mean variances of those that are sent.
    """

    def __init__(self, records: Tensor, count: int, deviation: float) -> None:
        super().__init__()
        rows = records.flatten(1)
        self.shape, self.noise_shape = tuple(records.shape[1:]), (count,)
        variances, basis = principal(rows - rows.mean(0), count)
        self.mean, self.basis = nn.Buffer(rows.mean(0)), nn.Buffer(basis)
        self.deviation = deviation * float(variances.mean().sqrt())

    def forward(self, records: Tensor, noise: Tensor, choice: Tensor | None = None) -> Tensor:
        """Records [n, ...] of noisy components."""
        sent = (records.flatten(1) - self.mean) @ self.basis + self.deviation * noise
        rows = self.mean + sent @ self.basis.T
        return rows.view(len(records), *self.shape)


class Discriminants(nn.Module):
    """Linear discriminants of a use, one fewer than its classes, with noise.

    Args:
        records: float32 [n, ...], whose discriminants are meant.
        labels: int64 [n], the use.
        classes: of the use.
        deviation: of the noise on each, in its deviation within a class.
    """

    def __init__(self, records: Tensor, labels: Tensor, classes: int, deviation: float) -> None:
        super().__init__()
        rows = records.flatten(1)
        self.shape, self.noise_shape = tuple(records.shape[1:]), (classes - 1,)
        self.deviation = deviation
        centred = rows - rows.mean(0)
        variances, basis = principal(centred, min(MOST_COMPONENTS, len(rows) - 1, rows.shape[1]))
        basis = basis * variances.clamp_min(1e-6).rsqrt()
        turned = basis @ discriminants(centred @ basis, labels, classes)
        sent = centred @ turned
        self.mean, self.turned = nn.Buffer(rows.mean(0)), nn.Buffer(turned)
        self.back = nn.Buffer(torch.linalg.lstsq(sent, centred).solution)

    def forward(self, records: Tensor, noise: Tensor, choice: Tensor | None = None) -> Tensor:
        """Records [n, ...], the nearest to noisy discriminants."""
        sent = (records.flatten(1) - self.mean) @ self.turned + self.deviation * noise
        return (self.mean + sent @ self.back).view(len(records), *self.shape)


def discriminants(rows: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Directions float32 [k, classes - 1] that tell classes apart, of variance 1 within them.

    Args:
        rows: float32 [n, k], of mean 0 and of variances about 1.
        labels: int64 [n].
        classes: of them.
    """
    hot = F.one_hot(labels, classes).float()
    means = hot.T @ rows / hot.sum(0)[:, None].clamp_min(1)
    inside = rows - means[labels]
    within = inside.T @ inside / len(rows) + RIDGE * torch.eye(rows.shape[1])
    between = means.T @ (hot.mean(0)[:, None] * means)
    root = torch.linalg.cholesky(within)
    half = torch.linalg.solve_triangular(root, between, upper=False)
    both = torch.linalg.solve_triangular(root, half.T, upper=False)
    _, found = torch.linalg.eigh((both + both.T) / 2)
    best = found.flip(1)[:, : classes - 1]
    turned: Tensor = torch.linalg.solve_triangular(root.T, best, upper=True)
    return turned
