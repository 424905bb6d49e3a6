"""The private annotator on the server: federated softmax regression, then post-processing.

Its frame is taken from synthetic images before its first round, so that only its weight meets
gradients of real records. After its rounds it guides the generator, filters samples and labels
images.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from fedlens.client.tasks.settings import AnnotatorSettings
from fedlens.models import devices
from fedlens.models.annotators import Annotator
from fedlens.models.weights import load_vector, to_vector
from fedlens.server.config.mechanism import largest_sum, release_deviation
from fedlens.server.config.section import ConfigError
from fedlens.server.config.tasks import AnnotatorConfig
from fedlens.server.run.arrays import Arrays
from fedlens.server.tasks.protocol import (
    GeneratorSteps,
    Samples,
    ServerTask,
    TaskContext,
    TaskRequest,
    settings_of,
)
from fedlens.server.tasks.signal import signal_between

LOGIT_NOISE = 0.9
"""Standard deviation of a logit by the noise of all rounds, which a rate of 0 aims at.

Rates that were tuned one by one, for 539 to 60,000 users or records at five guarantees, three and
ten classes, leave .7 to 1.4 of it: a row has norm 1, so nothing else counts.
"""
LONGEST_STEP = 200.0
"""Longest step, in clipping norms, where there is little noise or none."""


def suited_rate(settings: AnnotatorConfig, deviation: float) -> float:
    """The learning rate asked for, or for 0 the one that suits noise of this deviation."""
    if settings.rate:
        return settings.rate
    most = LONGEST_STEP / settings.clipping_norm
    noise = deviation * math.sqrt(settings.rounds) / (1 - settings.momentum)
    return min(most, LOGIT_NOISE / noise) if noise else most


class AnnotatorTask(ServerTask):
    """An annotator's weight over its rounds, and the mean of its last iterates.

    A release has shape [classes x (components + 1)], flattened row by row: the noised mean of the
    users' (or records') updates, each minus the gradient of a mean cross-entropy with respect to
    the weight. The server adds the rate x the release, smoothed by momentum.

    Raises:
        ConfigError: it is to keep more components than such images have features.
    """

    shows = True  # later_weight is 0: it guides the generator in its own last round only

    def __init__(self, context: TaskContext) -> None:
        super().__init__(context)
        settings: AnnotatorConfig = context.settings
        try:
            self._iterate, self._mean = (
                Annotator(context.shape, context.classes, settings.components, settings.features)
                for _ in range(2)
            )
            for network in (self._iterate, self._mean):
                network.to(devices.best_device())
        except ValueError as error:
            name = f"tasks.{context.name}.components"
            raise ConfigError(f"{name} = {settings.components!r} cannot be used: {error}") from None
        self.size = self._iterate.weight.numel()
        self.largest_reply = largest_sum(context.config, settings, self.size)
        self._deviation = release_deviation(context.config, settings)
        self._rate = suited_rate(settings, self._deviation)
        self._velocity = torch.zeros_like(self._iterate.weight)
        self._begun = False
        self._applied = 0

    @property
    def ready(self) -> bool:
        """Whether the annotator has learned from at least one release."""
        return self._applied > 0

    @property
    def network(self) -> Annotator:
        """The annotator with the mean weight of the last quarter of the planned rounds.

        Where fewer releases came, the last iterate stands in. It shares no state with `weights`.
        """
        return self._mean

    def labeller(self) -> Annotator | None:
        """`network`, once it has learned from at least one release."""
        return self._mean if self.ready else None

    def prepare(self, samples: Samples) -> None:
        """Take the frame from *synthetic* images, once in a run."""
        if self._begun:
            return
        self._iterate.fit_frame(samples()[0], self._settings.decorrelation)
        load_vector(self._mean, to_vector(self._iterate))
        self._begun = True

    def request(self) -> TaskRequest:
        """The whole annotator, frame and present iterate."""
        settings = settings_of(self._settings, AnnotatorSettings)
        return TaskRequest(settings, {"annotator": self.weights()})

    def weights(self) -> NDArray[np.float32]:
        """The whole annotator, frame and present iterate, float32 [n]."""
        return to_vector(self._iterate)

    def apply_release(self, release: NDArray[np.float64]) -> Mapping[str, float]:
        """Step along a noised mean update, float64 [size].

        Raises:
            ValueError: there is no frame yet, or the release has another shape.
        """
        if not self._begun:
            raise ValueError("the annotator has no frame yet: call prepare(samples) first")
        if release.shape != (self.size,):
            raise ValueError(f"a release of shape {release.shape}, expected ({self.size},)")
        update = torch.from_numpy(release.astype(np.float32)).view_as(self._velocity)
        update = update.to(self._velocity)
        self._velocity.mul_(self._settings.momentum).add_(update)
        self._iterate.weight.add_(self._velocity, alpha=self._rate)
        self._applied += 1
        self._follow()
        return {}

    def _follow(self) -> None:
        """Count an iterate of the last quarter in; before that, the mean is the last iterate."""
        counted = max(1, self._applied - 3 * self._settings.rounds // 4)
        self._mean.weight.lerp_(self._iterate.weight, 1 / counted)

    def signal(self) -> NDArray[np.float64] | None:
        """As every task, of the classes' mean weights; gradients that answer noise are left out.

        Such an answer only makes noise smaller, so the share is rather too low than too high.
        """
        if not self.ready:
            return None
        noise = np.full(self._mean.classes, (self._deviation * self._noise_gain()) ** 2)
        return signal_between(self._mean.weight.double().cpu().numpy(), noise)

    def _noise_gain(self) -> float:
        """Deviation of the mean weight's noise, relative to a release's."""
        settings, applied = self._settings, self._applied
        first = min(applied, 3 * settings.rounds // 4 + 1)
        ages = np.arange(first, applied + 1)[:, None] - np.arange(1, applied + 1)[None] + 1
        momentum = settings.momentum
        grown = (1 - momentum ** ages.clip(0)) / (1 - momentum)
        return float(self._rate * np.linalg.norm(grown.mean(0)))

    def generator_steps(self, number: int) -> GeneratorSteps | None:
        """After the last round the generator is guided, if the annotator learned anything."""
        settings = self._settings
        if number < settings.rounds or not self.ready or not settings.guided_steps:
            return None
        return GeneratorSteps(settings.guided_steps, settings.guided_rate, 0, settings.guided_steps)

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """Weighted cross-entropy of requested classes; differentiable in the images.

        It judges some of the images, each class alike: its features are the expensive part.
        """
        every = self._settings.judged_every
        answers = self._mean(images[::every]) * self._settings.sharpness
        loss: Tensor = F.cross_entropy(answers, labels[::every]) * self._settings.weight
        return loss

    def state(self) -> Arrays:
        """All that `restore` needs to go on bit for bit."""
        return {
            "iterate": to_vector(self._iterate),
            "mean": self._mean.weight.cpu().numpy().copy(),
            "velocity": self._velocity.cpu().numpy().copy(),
            "begun": np.array(self._begun),
            "applied": np.array(self._applied),
        }

    def restore(self, state: Arrays) -> None:
        """Take up a state."""
        vector = state["iterate"].astype(np.float32)
        load_vector(self._iterate, vector)
        load_vector(self._mean, vector)
        self._mean.weight.copy_(torch.from_numpy(state["mean"].astype(np.float32)))
        self._velocity.copy_(torch.from_numpy(state["velocity"].astype(np.float32)))
        self._begun = bool(state["begun"])
        self._applied = int(state["applied"])
