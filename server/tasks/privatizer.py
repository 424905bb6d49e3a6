"""The privatizer on the server: all networks stepped along noised mean gradients.

Everything here is post-processing of releases. The scalars that the objective squares and the
shares of the sensitive attribute's classes are released with the gradients, smoothed, and travel
with the next request; the filter that comes out is the mean of its last quarter of rounds, for
single rounds are mostly noise.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedlens.client.messages import Vector
from fedlens.client.tasks.settings import PrivatizerSettings
from fedlens.models.weights import load_vector, to_vector
from fedlens.privatizers.networks.design import SCALARS, SHARES, Design, design
from fedlens.privatizers.protocol import FILTER, PrivatizerError
from fedlens.server.config.section import ConfigError
from fedlens.server.run.arrays import (
    Arrays,
    optimiser_state,
    restore_optimiser,
    under,
    vector_to_gradient,
    within,
)
from fedlens.server.tasks.protocol import ServerTask, TaskContext, TaskRequest, settings_of

SEED = 5_000_011
LEAST_SHARE = 1e-3
LEAST_HIDDEN = 0.05
"""At least this share of users counts as hiding something, where means over them are taken."""


class PrivatizerTask(ServerTask):
    """A filter, the networks that read from what it releases, and everybody's scalars.

    A release has the layout of `fedlens.privatizers.networks.design.Design`: the noised mean of
    the users' blocks over the fixed qN.

    Raises:
        ShapeError: no network is built for such images.
        ConfigError: its settings do not fit the sensitive attribute.
    """

    def __init__(self, context: TaskContext) -> None:
        super().__init__(context)
        config = context.config
        shared = config.privatizer.model_dump()
        shared = {k: v for k, v in shared.items() if k in PrivatizerSettings.model_fields}
        seed = config.seed + SEED
        self._request = settings_of(self._settings, PrivatizerSettings, **shared)
        try:
            self._design: Design = design(
                self._request.model_dump(),
                context.shape,
                context.record_classes,
                context.sensitive_classes,
                seed,
            )
        except PrivatizerError as error:
            raise ConfigError(f"[tasks.{context.name}] cannot be used: {error}") from None
        self.size = self._design.size
        self._bounds = self._design.bounds(self._settings.clipping_norm)
        self._optimisers = {name: self._optimiser(name) for name in self._design.networks}
        self._mean = copy.deepcopy(self._design.networks[FILTER]).eval()
        self._scalars, self._shares = self._public_start()
        self._applied = 0

    def _optimiser(self, name: str) -> torch.optim.Optimizer:
        settings = self._settings
        rate = settings.rate if name == FILTER else settings.adversary_rate
        weights = self._design.networks[name].parameters()
        if settings.optimiser == "adam":
            return torch.optim.Adam(weights, lr=rate, betas=(0.9, 0.99))
        return torch.optim.SGD(weights, lr=rate)

    def _public_start(self) -> tuple[Tensor, Tensor]:
        start, count = self._design.public_start(), len(self._design.scalars)
        return start[:count], start[count:]

    @property
    def ready(self) -> bool:
        """Whether the filter has learned from at least one release."""
        return bool(self._applied > self._settings.lead)

    @property
    def network(self) -> nn.Module:
        """The filter that devices are to run: the mean of its last quarter of planned rounds."""
        return self._mean

    def block_bounds(self) -> list[tuple[str, int, float]]:
        """Name, size and L2 bound relative to C of each block of an update, in their order."""
        return [(block.name, block.size, block.bound) for block in self._design.blocks]

    def request(self) -> TaskRequest:
        """All networks, then scalars and shares."""
        return TaskRequest(self._request, self.weights())

    def weights(self) -> dict[str, Vector]:
        """What nodes start from: all networks, then scalars and shares, float32."""
        networks = self._design.networks
        flat = [to_vector(networks[b.name]) for b in self._design.blocks if b.name in networks]
        public = torch.cat([self._scalars, self._shares]).numpy().copy()
        return {"networks": np.concatenate(flat), "public": public}

    def filter_weights(self) -> Vector:
        """The filter as it travels in the requests of all later tasks, float32 [n]."""
        return to_vector(self._mean)

    def figures(self) -> dict[str, float]:
        """The public scalars as they are smoothed: what lagging networks say, no privacy figure."""
        return {f"scalar_{i}": float(value) for i, value in enumerate(self._scalars)}

    def apply_release(self, release: NDArray[np.float64]) -> Mapping[str, float]:
        """Step every network along a noised mean update, float64 [size].

        Raises:
            ValueError: the release has another shape.
        """
        if release.shape != (self.size,):
            raise ValueError(f"a release of shape {release.shape}, expected ({self.size},)")
        blocks = self._design.split(torch.from_numpy(release.astype(np.float32)))
        for name, optimiser in self._optimisers.items():
            if name != FILTER or self._applied >= self._settings.lead:
                self._step(name, optimiser, blocks[name] / self._bounds[name])
        self._smooth(blocks)
        self._applied += 1
        self._follow()
        return self.figures()

    def _step(self, name: str, optimiser: torch.optim.Optimizer, update: Tensor) -> None:
        """One step along an update relative to its block's bound: rates do not depend on C."""
        vector_to_gradient(self._design.networks[name], -update)
        optimiser.step()
        optimiser.zero_grad()

    def _smooth(self, blocks: dict[str, Tensor]) -> None:
        """Take scalars and shares into their moving averages, which begin with what is unbiased."""
        decay = min(self._settings.smoothing, self._applied / (1 + self._applied))
        shares = blocks[SHARES] / self._bounds[SHARES]
        hidden = float(shares.sum().clamp(LEAST_HIDDEN, 1.0))
        shares = shares.clamp_min(LEAST_SHARE)
        self._shares = torch.lerp(shares / shares.sum(), self._shares, decay)
        if SCALARS not in blocks:
            return
        found = self._design.decoded(blocks[SCALARS], self._bounds[SCALARS])
        over = torch.tensor([hidden if scalar.hidden else 1.0 for scalar in self._design.scalars])
        found = self._design.within_ends(found / over)
        self._scalars = torch.lerp(found, self._scalars, decay)

    @torch.no_grad()
    def _follow(self) -> None:
        """Count the filter's weights of the last quarter in; before that, the last ones stand."""
        counted = max(1, self._applied - math.floor(0.75 * self._settings.rounds))
        pairs = zip(
            self._mean.parameters(), self._design.networks[FILTER].parameters(), strict=True
        )
        for mean, value in pairs:
            mean.lerp_(value, 1 / counted)

    def state(self) -> Arrays:
        """All that `restore` needs to go on bit for bit."""
        arrays: Arrays = {
            "mean": to_vector(self._mean),
            "scalars": self._scalars.numpy().copy(),
            "shares": self._shares.numpy().copy(),
            "applied": np.array(self._applied),
        }
        for name, network in self._design.networks.items():
            kept = {"weights": to_vector(network), **optimiser_state(self._optimisers[name])}
            arrays |= under(name, kept)
        return arrays

    def restore(self, state: Arrays) -> None:
        """Take up a state."""
        load_vector(self._mean, state["mean"].astype(np.float32))
        self._scalars = torch.from_numpy(state["scalars"].astype(np.float32))
        self._shares = torch.from_numpy(state["shares"].astype(np.float32))
        self._applied = int(state["applied"])
        for name, network in self._design.networks.items():
            kept = within(name, state)
            load_vector(network, kept["weights"].astype(np.float32))
            restore_optimiser(self._optimisers[name], kept)
