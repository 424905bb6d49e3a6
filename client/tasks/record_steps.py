"""Record mode of a critic, whichever network it is: local steps along noised mean gradients.

DP-SGD (Abadi et al., arXiv:1607.00133, algorithm 1): each step draws every record of the node with
probability q, clips its gradient to C, sums, adds N(0, (zC)^2) and divides by a fixed number, all
of which `fedlens.client.update.record_mode` does. Clipping and noise are the project's own, since a
record with a non-finite gradient must contribute nothing and the noise must come from the
operating system's entropy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

import torch
from torch import Tensor, nn

from fedlens.client.tasks.record_gradients import RecordLosses, record_engine
from fedlens.client.update.clipping import Layered
from fedlens.client.update.record_mode import DrawnRecords
from fedlens.client.users.protocol import LocalUsers
from fedlens.models.limits import clamp_weights

PublicSlopes = Callable[[int], Tensor]
"""What is added to the gradients of a step's records inside the clip, by class, [classes, P]; P
counts the critic's trainable parameters, in their order. Of the step's number and public state."""


class RecordSteps:
    """The critic between its local steps; it moves by noised sums alone."""

    def __init__(
        self,
        critic: nn.Module,
        users: LocalUsers,
        losses: RecordLosses,
        rate: float,
        *,
        limits: Mapping[str, float] | None = None,
        public: PublicSlopes | None = None,
    ) -> None:
        """Prepare for a round.

        Args:
            critic: called with images [n, c, h, w] and labels int64 [n], at the global weights.
            users: of the node.
            losses: each record's loss, of the critic's scores.
            rate: learning rate.
            limits: what named parameters are kept within after a step.
            public: see `PublicSlopes`.

        Raises:
            NodeDataError: the critic's records have no gradients of their own.
        """
        self._critic, self._losses, self._rate = critic, losses, rate
        self._engine = record_engine(critic, users.shape, users.classes)
        self._limits, self._public, self._step = dict(limits or {}), public, 0
        self._start, self._shared = self._weights(), cast(Tensor | None, None)

    def _trained(self) -> list[nn.Parameter]:
        return [p for p in self._critic.parameters() if p.requires_grad]

    def _weights(self) -> Tensor:
        return torch.cat([p.detach().reshape(-1) for p in self._trained()])

    def rows(self, drawn: DrawnRecords) -> Layered:
        """Each record's gradient of the loss, [n, P] in all."""
        if self._shared is None and self._public is not None:
            self._shared = self._public(self._step)
        data, device = drawn.read(), self._start.device
        images, labels = data.images.to(device), data.labels.to(device)
        parts = self._engine.gradients(images, labels, self._losses)
        return Layered(parts, self._shared, labels)

    @torch.no_grad()
    def take_step(self, release: Tensor) -> None:
        """Step against a noised mean gradient, float64 [P]."""
        trained = self._trained()
        slopes = torch.split(release.to(self._start), [p.numel() for p in trained])
        for parameter, slope in zip(trained, slopes, strict=True):
            parameter.sub_(slope.view_as(parameter), alpha=self._rate)
        clamp_weights(self._critic, self._limits)
        self._step, self._shared = self._step + 1, None

    def change(self) -> Tensor:
        """How far the critic is from where it started, float64 [P]."""
        return (self._weights() - self._start).cpu().double()
