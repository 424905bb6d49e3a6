"""The convolutional WGAN critic on a node: local steps of all drawn users at once.

Paper: Triastcyn & Faltings, "Generating Higher-Fidelity Synthetic Datasets with Privacy
Guarantees" (arXiv:2003.00997), section 4.4: federated training of the critic with user-level
accounting. Each user starts from the global critic, takes local steps against generated images of
the same classes, and yields the difference of the weights.

A user who takes one step yields the gradient on the real images less the *mean* gradient on
generated ones of the same classes. The latter is public and the same for everybody, so it is
computed once, and inside the clip it cancels what users have in common, exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from fedlens.client.messages import TrainRequest
from fedlens.client.tasks.engines import engine_of
from fedlens.client.tasks.engines.batches import LocalBatches
from fedlens.client.tasks.engines.columns import IN_FLIGHT_GPU
from fedlens.client.tasks.protocol import ClientTask
from fedlens.client.tasks.record_steps import RecordSteps
from fedlens.client.tasks.settings import WganSettings
from fedlens.client.tasks.wgan_networks import (
    FAKES_PER_CLASS,
    LOSSES,
    class_slopes,
    draw_fakes,
    load_networks,
)
from fedlens.client.update.clipping import Layered
from fedlens.client.update.record_mode import DrawnRecords
from fedlens.client.users.protocol import LocalData, LocalUsers
from fedlens.client.users.records import PaddedRecords, padded, shuffled
from fedlens.models import devices
from fedlens.models.limits import weight_limits
from fedlens.models.shapes import one_hot

Parameters = dict[str, Tensor]


class WganLocalTask(ClientTask):
    """Updates are differences of the flattened critic, in the order of its parameters."""

    takes_steps = True

    def __init__(self, users: LocalUsers, request: TrainRequest) -> None:
        self._users, self._request = users, request
        settings = WganSettings.model_validate(request.settings)
        if settings.engine == "columns" and devices.best_device().type == "cuda":
            self.chunk = IN_FLIGHT_GPU

    def updates(self, cohort: Sequence[LocalData], seeds: Sequence[int]) -> Tensor:
        """Each user's update; a user without records contributes zeros."""
        return self._user_steps.updates(cohort, seeds)

    @cached_property
    def _user_steps(self) -> UserSteps:
        return UserSteps(self._users, self._request)

    @cached_property
    def _record_steps(self) -> RecordSteps:
        return record_steps(self._users, self._request)

    def record_rows(self, drawn: DrawnRecords) -> Layered:
        """Records' gradients of the critic as it is after the steps taken so far."""
        return self._record_steps.rows(drawn)

    def take_step(self, release: Tensor) -> None:
        """A local step along a noised mean gradient."""
        self._record_steps.take_step(release)

    def change(self) -> Tensor:
        """How far the steps took the critic, float64 [P]."""
        return self._record_steps.change()


def record_steps(users: LocalUsers, request: TrainRequest) -> RecordSteps:
    """Record mode's steps of the critic as the request carries it.

    A record's gradient is that of the loss on the record itself, against generated images of its
    class: the latter are public, and inside the clip they cancel what all records have in common,
    which would otherwise fill it.
    """
    settings = WganSettings.model_validate(request.settings)
    critic, generator = load_networks(users, request)
    losses = LOSSES[settings.loss]

    def against(step: int) -> Tensor:
        fakes = draw_fakes(generator, FAKES_PER_CLASS, request.seed + step)
        return class_slopes(critic, fakes, losses)

    return RecordSteps(
        critic,
        users,
        losses.real,
        settings.local_rate,
        limits=weight_limits(critic, settings.weight_limit),
        public=against,
    )


class UserSteps:
    """Local steps of many users at once, from the global critic."""

    def __init__(self, users: LocalUsers, request: TrainRequest) -> None:
        settings = WganSettings.model_validate(request.settings)
        self._critic, generator = load_networks(users, request)
        self._fakes = draw_fakes(generator, FAKES_PER_CLASS, request.seed)
        self._batch = settings.local_batch
        self._steps = settings.local_steps
        self._rate = settings.local_rate
        self._limits = weight_limits(self._critic, settings.weight_limit)
        self._losses = LOSSES[settings.loss]
        self._start = {k: p.detach() for k, p in self._critic.named_parameters()}
        self._device = next(self._critic.parameters()).device
        self._users, self._records = users, request.records_per_user
        self._engine = engine_of(settings, self._critic)

    @cached_property
    def _against(self) -> Tensor:
        """The gradient on generated images of each class, [classes, P]: public."""
        return class_slopes(self._critic, self._fakes, self._losses)

    def updates(self, cohort: Sequence[LocalData], seeds: Sequence[int]) -> Tensor:
        """Each user's update; a user without records contributes zeros."""
        held = padded(cohort, self._records, self._users)
        rows = (self._stepped if self._steps == 1 else self._trained)(held, seeds)
        return torch.where(held.present.any(1)[:, None], rows.cpu(), 0.0)

    def _trained(self, held: PaddedRecords, seeds: Sequence[int]) -> Tensor:
        """Users' local SGD, each real image against a generated one of its class."""
        return self._engine.changes(self._batches(held, seeds))

    def _stepped(self, held: PaddedRecords, seeds: Sequence[int]) -> Tensor:
        """Users' single step against the mean gradient of all generated images of each class."""
        batches = [self._pick(held, user, seed) for user, seed in enumerate(seeds)]
        real, labels = (torch.stack(part).to(self._device) for part in zip(*batches, strict=True))
        shares = one_hot(labels, self._critic.classes).mean(1)
        slopes = vmap(self._real_slope)(real, labels) + shares @ self._against
        return self._limit_change(-self._rate * slopes)

    def _real_slope(self, real: Tensor, labels: Tensor) -> Tensor:
        """The flat gradient of the loss on one user's real images [batch, ...]."""

        def loss(weights: Parameters) -> Tensor:
            scores = functional_call(self._critic, weights, (real, labels))
            return self._losses.real(scores).mean()

        return torch.cat([part.reshape(-1) for part in grad(loss)(self._start).values()])

    def _limit_change(self, changes: Tensor) -> Tensor:
        """Changes [users, P] as far as the weights' limits let them go."""
        if not self._limits:
            return changes
        bounds = [torch.full((w.numel(),), self._limits[k]) for k, w in self._start.items()]
        start = torch.cat([w.reshape(-1) for w in self._start.values()])
        bound = torch.cat(bounds).to(start)
        return (start + changes).clamp(-bound, bound) - start

    def _pick(self, held: PaddedRecords, user: int, seed: int) -> tuple[Tensor, Tensor]:
        """One step's real images and their labels."""
        picked = self._picks(held, user, np.random.default_rng(seed))
        return held.images[user, picked], held.labels[user, picked]

    def _picks(self, held: PaddedRecords, user: int, source: np.random.Generator) -> Tensor:
        count = int(held.present[user].sum())
        return torch.from_numpy(shuffled(count, self._batch, self._records, source))

    def _batches(self, held: PaddedRecords, seeds: Sequence[int]) -> LocalBatches:
        """Every local step's real images and places of fakes of the same classes."""
        drawn = [self._draw(held, user, seed) for user, seed in enumerate(seeds)]
        picks, places = (torch.stack(part) for part in zip(*drawn, strict=True))
        parts = (part.to(self._device) for part in (held.images, held.labels, picks, places))
        images, labels, picks, places = parts
        return LocalBatches(images, labels, picks, self._fakes, places)

    def _draw(self, held: PaddedRecords, user: int, seed: int) -> tuple[Tensor, Tensor]:
        """A user's records and the places of the fakes held against them, [steps, batch] each."""
        source = np.random.default_rng(seed)
        picked = torch.stack([self._picks(held, user, source) for _ in range(self._steps)])
        places = source.integers(FAKES_PER_CLASS, size=picked.shape)
        return picked, torch.from_numpy(places)
