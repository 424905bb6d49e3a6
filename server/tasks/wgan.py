"""The convolutional critic on the server: an optimiser's step on each noisy mean update.

Where the noise outweighs the update in most coordinates, plain gradient descent keeps their ratio
as it was released: the signal lies in few coordinates and is large there. Adam divides every
coordinate by its own spread, so the many that hold noise alone move as far as those few.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from fedlens.client.messages import Vector
from fedlens.client.tasks.settings import EngineName, ProductPrecision, WganSettings
from fedlens.models import devices
from fedlens.models.critics import WganCritic
from fedlens.models.limits import clamp_weights, limits_norm, weight_limits
from fedlens.models.precision import chosen
from fedlens.server.config.tasks import WganConfig
from fedlens.server.run.arrays import (
    Arrays,
    optimiser_state,
    restore_optimiser,
    vector_to_gradient,
)
from fedlens.server.tasks.protocol import CriticTask, TaskContext, TaskRequest, settings_of

LARGE = 60_000
"""Parameters from which on batched products on columns take less time than the framework's batched
operations do; `benchmarks.local_steps` measures both. Presets' critics are smaller."""


class WganTask(CriticTask):
    """Updates are the mean change of the critic's flat parameters over the drawn users."""

    def __init__(self, context: TaskContext) -> None:
        super().__init__(context)
        settings: WganConfig = context.settings
        source = torch.Generator().manual_seed(context.config.seed)
        self._critic = WganCritic(
            context.shape, context.classes, settings.width, settings.hidden, generator=source
        ).to(devices.best_device())
        self._critic.requires_grad_(False)  # only the generator is differentiated here
        self._limits = weight_limits(self._critic, settings.weight_limit)
        clamp_weights(self._critic, self._limits)  # or users would spend their clip on it
        self._optimiser = _optimiser(settings.optimiser, self._critic, settings.rate)
        self._generator, self._networks = context.generator_weights, context.config.generator
        self._applied = 0
        self._engine, self._precision = engine_for(settings, self._critic)
        if context.config.privacy.unit == "user" and settings.local_steps > 1:
            self.computed_by = f"{self._engine}, {self._precision}"
        self.largest_reply = 2 * limits_norm(self._critic, self._limits)
        self.size = sum(p.numel() for p in self._critic.parameters())

    def weights(self) -> Vector:
        """Flat parameters, float32 [P]."""
        return parameters_to_vector(self._critic.parameters()).detach().cpu().numpy().copy()

    def request(self) -> TaskRequest:
        """The critic and the generator that it is trained against."""
        networks = self._networks
        settings = settings_of(
            self._settings,
            WganSettings,
            generator_width=networks.width,
            generator_latent=networks.latent,
            engine=self._engine,
            precision=self._precision,
        )
        return TaskRequest(settings, {"critic": self.weights(), "generator": self._generator()})

    def apply_release(self, release: NDArray[np.float64]) -> Mapping[str, float]:
        """Step along the release: its negative is the optimiser's gradient."""
        vector_to_gradient(self._critic, torch.from_numpy(-release.astype(np.float32)))
        self._optimiser.param_groups[0]["lr"] = self._rate()
        self._optimiser.step()
        self._optimiser.zero_grad()
        clamp_weights(self._critic, self._limits)
        self._applied += 1
        return {}

    def _rate(self) -> float:
        """``rate`` at the first round, ``last_rate`` of it at the last, a cosine between them."""
        behind = min(1.0, self._applied / max(1, self._settings.rounds - 1))
        first, last = float(self._settings.rate), float(self._settings.last_rate)
        return first * (last + (1 - last) * (1 + math.cos(math.pi * behind)) / 2)

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """Minus the critic's mean score of the generated images."""
        score: Tensor = -self._critic(images, labels).mean()
        return score

    def state(self) -> Arrays:
        """Parameters, the optimiser's moments, and how many releases were taken in."""
        applied = np.array(self._applied)
        moments = optimiser_state(self._optimiser)
        return {"parameters": self.weights(), "applied": applied, **moments}

    def restore(self, state: Arrays) -> None:
        """Take up a state."""
        vector = torch.from_numpy(state["parameters"].astype(np.float32))
        device = devices.device_of(self._critic)
        vector_to_parameters(vector.to(device), self._critic.parameters())
        restore_optimiser(self._optimiser, state)
        self._applied = int(state["applied"])


def engine_for(settings: WganConfig, critic: WganCritic) -> tuple[EngineName, ProductPrecision]:
    """How nodes compute several local steps, and in which precision: the same on every node.

    It follows from settings, the critic's size and this machine alone: all public.
    """
    size = sum(parameter.numel() for parameter in critic.parameters())
    engine: EngineName = "columns" if size >= LARGE and settings.local_steps > 1 else "vmap"
    if settings.engine != "auto":
        engine = settings.engine
    low = engine == "columns" and chosen(settings.precision) == torch.bfloat16
    return engine, "bfloat16" if low else "float32"


def _optimiser(kind: str, critic: WganCritic, rate: float) -> torch.optim.Optimizer:
    if kind == "adam":
        return torch.optim.Adam(critic.parameters(), lr=rate, betas=(0.5, 0.99))
    momentum = 0.9 if kind == "momentum" else 0.0
    return torch.optim.SGD(critic.parameters(), lr=rate, momentum=momentum)
