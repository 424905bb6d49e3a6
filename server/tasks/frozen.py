"""The frozen-feature critic on the server: a noisy mean embedding per class, averaged over rounds.

The generator's loss is the squared distance between the embedding of its images and the released
one: what a Wasserstein critic that is linear on the features, at its best, gives. The embedding
carries the class masses in a constant coordinate, so they are inside the same clipped vector.

The noise of the release is known, so each feature is weighted by how much of what was released is
signal (a Wiener filter): post-processing, like all that follows a release.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from fedlens.client.tasks.settings import FrozenSettings
from fedlens.models import devices
from fedlens.models.features import PatchFeatures
from fedlens.server.config.mechanism import largest_sum, release_deviation
from fedlens.server.run.arrays import Arrays
from fedlens.server.tasks.protocol import CriticTask, TaskContext, TaskRequest, settings_of
from fedlens.server.tasks.signal import signal_between

LEAST_MASS = 0.2
"""A class is not divided by a noisy mass below this share of an equal one."""


class FrozenTask(CriticTask):
    """Releases have shape [classes x dim], flattened row by row."""

    means: NDArray[np.float64]
    """Each class's mean row by the releases so far, without the mass, [classes, dim - 1]."""
    mass: NDArray[np.float64]
    """Each class's share of a user's records, at least `LEAST_MASS` of an equal one, [classes, 1].
    """
    variances: NDArray[np.float64]
    """Of the noise in each coordinate of ``means``, [classes]."""

    def __init__(self, context: TaskContext) -> None:
        """Start without a release."""
        super().__init__(context)
        config = context.config
        self.device = devices.best_device()
        self.features = PatchFeatures(context.shape, self._settings.feature_seed).to(self.device)
        self._classes, self._dim = context.classes, self.features.dim
        self.size = self._classes * self._dim
        self._noise = release_deviation(config, self._settings)
        self.largest_reply = largest_sum(config, self._settings, self.size)
        self._sum = np.zeros(self.size)
        self._releases = 0
        self._last = threading.local()  # a generator may be trained in a thread of its own
        self._aim()

    @property
    def feature_seed(self) -> int:
        """Public seed of the features."""
        return int(self._settings.feature_seed)

    def request(self) -> TaskRequest:
        """The features' seed; they follow from it."""
        return TaskRequest(settings_of(self._settings, FrozenSettings))

    def apply_release(self, release: NDArray[np.float64]) -> Mapping[str, float]:
        """Average a release in; equal noise makes the plain mean the best estimate."""
        self._sum += release
        self._releases += 1
        self._aim()
        return {}

    def _aim(self) -> None:
        """Set the class means [classes, dim - 1] to reach, and the features' weights [dim - 1]."""
        releases = max(1, self._releases)
        mean = (self._sum / releases).reshape(self._classes, self._dim)
        self.mass = np.maximum(mean[:, -1:] / self.features.mass, LEAST_MASS / self._classes)
        self.means = mean[:, :-1] / self.mass
        self.variances = (self._noise / self.mass[:, 0]) ** 2 / releases
        power = np.mean(self.means**2, axis=0)
        signal = np.clip(power - self.variances.mean(), 0, None) / np.maximum(power, 1e-30)
        self._target, self._roots = (
            torch.from_numpy(part.astype(np.float32)).to(self.device)
            for part in (self.means, np.sqrt(signal))
        )

    def signal(self) -> NDArray[np.float64] | None:
        """As every task; the noise is known, so what is above it is signal."""
        return signal_between(self.means, self.variances) if self._releases else None

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """Unbiased squared distance of weighted embeddings (maximum mean discrepancy), summed.

        ``labels`` must hold every class equally often, in blocks.
        """
        # a weight of 0 leaves the constant coordinate out
        roots = F.pad(self._roots, (0, 1))
        return discrepancy(self.rows(images), F.pad(self._target, (0, 1)), roots)

    def rows(self, images: Tensor) -> Tensor:
        """Feature rows float32 [n, dim]; once for all losses of a step, which see one tensor."""
        seen: tuple[weakref.ref[Tensor], Tensor] | None = getattr(self._last, "seen", None)
        if seen is None or seen[0]() is not images:
            seen = self._last.seen = weakref.ref(images), self.features(images)
        return seen[1]

    def state(self) -> Arrays:
        """Sum and number of the releases."""
        return {"sum": self._sum.copy(), "releases": np.array(self._releases)}

    def restore(self, state: Arrays) -> None:
        """Take up a state."""
        self._sum = state["sum"].astype(np.float64)
        self._releases = int(state["releases"])
        self._aim()


def discrepancy(rows: Tensor, targets: Tensor, roots: Tensor) -> Tensor:
    """Squared distance of class means of rows to their targets, less what chance adds, summed.

    Gretton et al., "A Kernel Two-Sample Test" (JMLR 2012), equation 3, up to what does not depend
    on the rows.

    Args:
        rows: float32 [classes x each, dim], class by class.
        targets: float32 [classes, dim].
        roots: of the coordinates' weights, float32 [dim].
    """
    loss: Tensor = _Discrepancy.apply(rows, targets, roots)  # type: ignore[no-untyped-call]
    return loss


class _Discrepancy(torch.autograd.Function):
    """Its gradient is written out, for rows are long: autograd would write them a dozen times."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, targets: Tensor, roots: Tensor) -> Tensor:
        groups = (rows * roots).view(len(targets), -1, rows.shape[1])
        means = groups.mean(1)
        apart, spread = means - targets * roots, groups.sub_(means[:, None])
        ctx.save_for_backward(apart, spread, roots)
        count = groups.shape[1]
        return apart.square().sum() - spread.square().sum() / (count * (count - 1))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        apart, spread, roots = ctx.saved_tensors
        count = spread.shape[1]
        slope = torch.add(apart[:, None] / count, spread, alpha=-1 / (count * (count - 1)))
        return slope.flatten(0, 1).mul_(2 * gradients[0] * roots), None, None
