"""Both tasks on the server: two noised sums, and a filter that is fitted on them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from fedlens.client.messages import Vector
from fedlens.models.weights import to_vector
from fedlens.privatizers.networks.design import filter_network
from fedlens.privatizers.networks.spectral import LowFrequencies
from fedlens.privatizers.pair_moments import PairGaussians, scaled_by, width_of
from fedlens.privatizers.training import Progress
from fedlens.server.config import needs
from fedlens.server.config.mechanism import denominator, release_deviation
from fedlens.server.generation.sampler import restored_filter
from fedlens.server.run.arrays import Arrays
from fedlens.server.tasks.moments import fit_on_moments
from fedlens.server.tasks.protocol import ServerTask, TaskContext, TaskRequest
from outside.sums_settings import PairsSettings, SpreadSettings


class SpreadTask(ServerTask):
    """Keeps its last release."""

    def __init__(self, context: TaskContext) -> None:
        super().__init__(context)
        self.features = LowFrequencies(context.shape, self._settings.highest)
        self.size = 2 * self.features.size
        self._release = np.zeros(0)

    @property
    def ready(self) -> bool:
        """Whether there is a release."""
        return bool(self._release.size)

    def request(self) -> TaskRequest:
        """How high the frequencies are."""
        return TaskRequest(SpreadSettings(highest=self._settings.highest))

    def apply_release(self, release: NDArray[np.float64]) -> Mapping[str, float]:
        """Take centre and scale from it."""
        self._release = release
        found = scaled_by(torch.from_numpy(release), self.features.reach)
        self.features.centre.copy_(found[0])
        self.features.scale.copy_(found[1])
        return {}

    def state(self) -> Arrays:
        """The release."""
        return {"release": self._release}

    def restore(self, state: Arrays) -> None:
        """Take up a state."""
        if state["release"].size:
            self.apply_release(state["release"].astype(np.float64))


class PairsTask(ServerTask):
    """Fits the filter on its last release."""

    def __init__(self, context: TaskContext) -> None:
        super().__init__(context)
        self._config, self._shape = context.config, context.shape
        self._spread: SpreadTask = context.provider(needs.SCALES)
        self._classes = context.record_classes, context.sensitive_classes
        self._pairs = context.record_classes * context.sensitive_classes
        self.size = self._pairs * width_of(self._spread.features.size)
        self._release = np.zeros(0)
        self._made: Arrays = {}

    @property
    def lacking(self) -> str:
        """The first release."""
        return "" if self._spread.ready else "the release that says where frequencies lie"

    @property
    def ready(self) -> bool:
        """Whether there is a filter."""
        return bool(self._made)

    def request(self) -> TaskRequest:
        """Which features, and which attribute."""
        features = self._spread.features
        hidden = self._config.privatizer.hidden_attribute
        settings = PairsSettings(highest=self._spread.request().settings.highest, hidden=hidden)
        frame = {"centre": features.centre.numpy(), "scale": features.scale.numpy()}
        return TaskRequest(settings, frame)

    def apply_release(self, release: NDArray[np.float64]) -> Mapping[str, float]:
        """Keep it."""
        self._release = release
        return {}

    def fit(self, on_step: Progress) -> Mapping[str, float]:
        """The filter, on drawn features; none where the release was lost."""
        if not self._release.size:
            return {}
        users = denominator(self._config, self._settings)
        total = torch.from_numpy(self._release * users).view(self._pairs, -1)
        deviation = release_deviation(self._config, self._settings) * users
        features = self._spread.features
        network, leakage = fit_on_moments(
            self._config.privatizer,
            features,
            PairGaussians.of(total, features.size, deviation),
            self._classes,
            self._config.seed,
            on_step,
        )
        made = restored_filter(self._config, self._shape, to_vector(network))
        self._made = {"mean": to_vector(made), "reading": np.array(leakage)}
        return {"sensitive_read_nats": leakage.nats}

    def filter_weights(self) -> Vector:
        """One that has learned nothing, for audits, where there is none yet."""
        plain = filter_network(self._config.privatizer.model_dump(), self._shape)
        return self._made["mean"] if self.ready else to_vector(plain)

    def state(self) -> Arrays:
        """The release, the filter, and what a fresh adversary read of it."""
        return {"release": self._release, **self._made}

    def restore(self, state: Arrays) -> None:
        """Take up a state."""
        self._release = state["release"].astype(np.float64)
        self._made = {name: state[name] for name in ("mean", "reading") if name in state}
