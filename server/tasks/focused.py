"""The focused critic on the server: a second, sharper look of the frozen-feature critic.

The warm-up's releases gave a first generator. Its samples say along which directions rows differ
and where each class stands (`fedlens.models.focus`); what users then release is how far they are
from there, which is several times shorter than whole rows and so bears as much less noise. The
class masses are the warm-up's.

Both releases are estimates of the same class means, with noise of known size: they are averaged by
precision, and each direction weighs as much as of what was found in it is signal (a Wiener filter).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from fedlens.client.tasks.settings import FrozenSettings
from fedlens.models.focus import Focus, focus_from, focus_on
from fedlens.server.config import needs
from fedlens.server.config.mechanism import largest_sum, release_deviation
from fedlens.server.config.section import require
from fedlens.server.run.arrays import Arrays
from fedlens.server.tasks.frozen import FrozenTask, discrepancy
from fedlens.server.tasks.protocol import CriticTask, Samples, TaskContext, TaskRequest
from fedlens.server.tasks.signal import signal_between


class FocusedTask(CriticTask):
    """Releases have shape [classes x components], flattened row by row."""

    def __init__(self, context: TaskContext) -> None:
        """Start without a focus; `prepare` gives it one.

        Raises:
            ConfigError: it is to keep more components than there are features.
        """
        super().__init__(context)
        self._warmup: FrozenTask = context.provider(needs.FEATURES)
        self._classes, self._components = context.classes, self._settings.components
        features = self._warmup.features.dim - 1
        fix = f"there are {features} features, give fewer"
        name = f"tasks.{context.name}.components"
        require(self._components <= features, name, self._components, fix)
        self.size = self._classes * self._components
        self._noise = release_deviation(context.config, self._settings)
        self.largest_reply = largest_sum(context.config, self._settings, self.size)
        self._focus: Focus | None = None
        self._origin = torch.zeros(self._components)
        self._sum = np.zeros((self._classes, self._components))
        self._releases = 0
        self._target = torch.zeros(self._classes, self._components)
        self._lens = torch.zeros(features + 1, self._components)
        self._aimed = torch.zeros(self._classes, self._components)

    @torch.no_grad()
    def prepare(self, samples: Samples) -> None:
        """Take the focus from *synthetic* images; in later rounds only new centres."""
        images, labels = samples()
        images, labels = images.to(self._warmup.device), labels.to(self._warmup.device)
        rows = self._warmup.features(images)[:, :-1]
        if self._focus is None:
            self._focus = focus_on(rows, labels, self._classes, self._components)
            self._origin = self._focus.centers.mean(0)
            self._aim()
        else:
            self._focus = self._focus.centred(rows, labels)

    def request(self) -> TaskRequest:
        """The features' seed, and the focus that users measure from, as `Focus.to_vector`."""
        settings = FrozenSettings(feature_seed=self._warmup.feature_seed)
        return TaskRequest(settings, {"critic": self._sharp().to_vector()})

    def apply_release(self, release: NDArray[np.float64]) -> Mapping[str, float]:
        """Average in where the classes stand by a release made with the present centres."""
        away = release.reshape(self._classes, self._components) / self._warmup.mass
        self._sum += self._sharp().centers.double().cpu().numpy() + away
        self._releases += 1
        self._aim()
        return {}

    def _aim(self) -> None:
        """Set the class means to reach, and the directions' weights."""
        basis = self._sharp().basis.double().cpu().numpy()
        first, variance = self._places(basis)
        noise = float(np.mean(variance))
        power = np.mean((first - self._origin.double().cpu().numpy()) ** 2, axis=0)
        signal = np.clip(power - noise, 0, None) / np.maximum(power, 1e-30)
        self._target, roots = (
            torch.from_numpy(part.astype(np.float32)).to(self._warmup.device)
            for part in (first, np.sqrt(signal))
        )
        seen = roots > 0  # what weighs nothing need not be computed
        # the last row: the constant coordinate is no part of a place
        self._lens = F.pad((self._sharp().basis * roots)[:, seen], (0, 0, 0, 1))
        self._aimed = (self._target * roots)[:, seen]

    def _places(
        self, basis: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Where classes stand along the focus by both releases, and the noise's variance in it.

        Returns:
            Places [classes, components] and variances [classes].
        """
        first, early = self._warmup.means @ basis, self._warmup.variances
        if not self._releases:
            return first, early
        late = self._late_variances()
        noise, own = early.mean(), late.mean()
        share = noise / (noise + own) if noise + own else 1.0
        places = (1 - share) * first + share * self._sum / self._releases
        return places, (1 - share) ** 2 * early + share**2 * late

    def signal(self) -> NDArray[np.float64] | None:
        """As every task, along the focus and by this task's releases alone.

        The focus was taken from samples that the warm-up's noise had a part in, so along it that
        noise is larger than its law says: the warm-up's release would pass for signal.
        """
        if not self._releases:
            return None
        return signal_between(self._sum / self._releases, self._late_variances())

    def _late_variances(self) -> NDArray[np.float64]:
        """Of the noise in this task's mean of each class, [classes]."""
        variances: NDArray[np.float64] = (self._noise / self._warmup.mass[:, 0]) ** 2
        return variances / self._releases

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """Unbiased squared distance of weighted embeddings along the focus, summed.

        ``labels`` must hold every class equally often, in blocks.
        """
        placed = (self._warmup.rows(images) @ self._lens).float()
        return discrepancy(placed, self._aimed, placed.new_ones(placed.shape[1]))

    def _sharp(self) -> Focus:
        if self._focus is None:
            raise RuntimeError("a focused critic is used before `prepare`")
        return self._focus

    def state(self) -> Arrays:
        """Focus, sum and number of the releases."""
        focus = np.zeros(0, np.float32) if self._focus is None else self._focus.to_vector()
        return {
            "focus": focus,
            "origin": self._origin.cpu().numpy(),
            "sum": self._sum.copy(),
            "releases": np.array(self._releases),
        }

    def restore(self, state: Arrays) -> None:
        """Take up a state; the warm-up's comes first."""
        if not state["focus"].size:
            return
        vector = state["focus"].astype(np.float32)
        focus = focus_from(vector, self._warmup.means.shape[1], self._classes)
        self._focus = focus.on(self._warmup.device)
        self._origin = torch.from_numpy(state["origin"].astype(np.float32))
        self._sum = state["sum"].astype(np.float64)
        self._releases = int(state["releases"])
        self._aim()
