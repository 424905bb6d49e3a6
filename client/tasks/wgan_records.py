"""Record mode of the convolutional critic: local steps with per-record clipping and noise.

DP-SGD (Abadi et al., arXiv:1607.00133, algorithm 1): each step draws every record of the node with
probability q, clips its gradient to C, sums, adds N(0, (zC)^2) and divides by a fixed number, all
of which `client.record_sums` does. A record's gradient is that of the critic's loss on the record
itself, against generated images of its class: the latter are public, and inside the clip they
cancel what all records have in common, which would otherwise fill it. Opacus computes the gradients
record by record; clipping and noise are the project's own, since a record with a non-finite
gradient must contribute nothing and the noise must come from the operating system's entropy.
"""

from __future__ import annotations

import warnings
from typing import Any, cast

import torch
from opacus import GradSampleModule
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from client.data import LocalUsers
from client.messages import TrainRequest
from client.record_batches import DrawnRecords
from client.tasks.settings import WganSettings
from client.tasks.wgan_networks import (
    FAKES_PER_CLASS,
    LOSSES,
    class_slopes,
    draw_fakes,
    load_networks,
)
from models.critics import WganCritic
from models.limits import clamp_weights, weight_limits


class RecordSteps:
    """The critic between its local steps; it moves by noised sums alone."""

    def __init__(self, users: LocalUsers, request: TrainRequest) -> None:
        self._settings, self._request = WganSettings.model_validate(request.settings), request
        self._critic, self._generator = load_networks(users, request)
        self._limits = weight_limits(self._critic, self._settings.weight_limit)
        self._start, self._step = self._weights(), 0
        self._against: Tensor | None = None

    def _weights(self) -> Tensor:
        return parameters_to_vector(self._critic.parameters()).detach().clone()

    def _generated(self) -> Tensor:
        """The step's gradient on generated images of each class, [classes, P]: public."""
        if self._against is None:
            fakes = draw_fakes(self._generator, FAKES_PER_CLASS, self._request.seed + self._step)
            self._against = class_slopes(self._critic, fakes, LOSSES[self._settings.loss])
        return self._against

    def rows(self, drawn: DrawnRecords) -> Tensor:
        """Each record's gradient of the loss, float32 [n, P]."""
        data = drawn.read()
        if not len(data.labels):
            return torch.zeros(0, len(self._start))
        hinge = self._settings.loss == "hinge"
        gradients = record_gradients(self._critic, data.images, data.labels, hinge=hinge)
        against = self._generated()
        return gradients + against[data.labels.to(against.device)]

    def take(self, release: Tensor) -> None:
        """Step against a noised mean gradient, float64 [P]."""
        weights = self._weights()
        moved = weights - self._settings.local_rate * release.to(weights)
        vector_to_parameters(moved, self._critic.parameters())
        clamp_weights(self._critic, self._limits)
        self._step, self._against = self._step + 1, None

    def change(self) -> Tensor:
        """How far the critic is from where it started, float64 [P]."""
        return (self._weights() - self._start).cpu().double()


def record_gradients(critic: WganCritic, images: Tensor, labels: Tensor, *, hinge: bool) -> Tensor:
    """Each record's own gradient of the critic's loss on real images, float32 [n, P]."""
    device = next(critic.parameters()).device
    wrapped = GradSampleModule(critic, loss_reduction="sum")
    try:
        scores = wrapped(images.to(device), labels.to(device))
        with warnings.catch_warnings():  # PyTorch notes that no input wants a gradient: intended
            warnings.filterwarnings("ignore", message="Full backward hook is firing")
            (F.relu(1 - scores) if hinge else -scores).sum().backward()
        samples = [cast(Any, p).grad_sample.flatten(1) for p in critic.parameters()]
        return torch.cat(samples, dim=1).detach()
    finally:
        wrapped.zero_grad()
        wrapped.to_standard_module()
