"""Record mode of the convolutional critic: local steps with per-record clipping and noise.

DP-SGD (Abadi et al., arXiv:1607.00133, algorithm 1): each step draws every record of the node with
probability q, clips its gradient to C, sums, adds N(0, (zC)^2) and divides by a fixed number, all
of which `fedlens.client.record_sums` does. A record's gradient is that of the critic's loss on the
record itself, against generated images of its class: the latter are public, and inside the clip
they cancel what all records have in common, which would otherwise fill it. Clipping and noise are
the project's own, since a record with a non-finite gradient must contribute nothing and the noise
must come from the operating system's entropy.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from fedlens.client.messages import TrainRequest
from fedlens.client.tasks.record_gradients import record_gradients
from fedlens.client.tasks.settings import WganSettings
from fedlens.client.tasks.wgan_networks import (
    FAKES_PER_CLASS,
    LOSSES,
    class_slopes,
    draw_fakes,
    load_networks,
)
from fedlens.client.update.clipping import Layered
from fedlens.client.users.protocol import LocalUsers
from fedlens.client.users.record_batches import DrawnRecords
from fedlens.models.limits import clamp_weights, weight_limits


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

    def rows(self, drawn: DrawnRecords) -> Layered:
        """Each record's gradient of the loss, [n, P] in all."""
        data, against = drawn.read(), self._generated()
        images, labels = data.images.to(against.device), data.labels.to(against.device)
        hinge = self._settings.loss == "hinge"
        parts = record_gradients(self._critic, images, labels, hinge=hinge)
        return Layered(parts, against, labels)

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
