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

from client.clipping import Layered
from client.cohort_data import PaddedRecords, padded, shuffled
from client.data import LocalData, LocalUsers
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
from client.tasks.wgan_records import RecordSteps
from models.limits import weight_limits
from models.shapes import one_hot

Parameters = dict[str, Tensor]


class WganLocalTask:
    """Updates are differences of the flattened critic, in the order of its parameters."""

    chunk = 16

    def __init__(self, users: LocalUsers, request: TrainRequest) -> None:
        self._users, self._request = users, request

    def updates(self, cohort: Sequence[LocalData], seeds: Sequence[int]) -> Tensor:
        """Each user's update; a user without records contributes zeros."""
        return self._user_steps.updates(cohort, seeds)

    @cached_property
    def _user_steps(self) -> UserSteps:
        return UserSteps(self._users, self._request)

    @cached_property
    def _record_steps(self) -> RecordSteps:
        return RecordSteps(self._users, self._request)

    def record_rows(self, drawn: DrawnRecords) -> Layered:
        """Records' gradients of the critic as it is after the steps taken so far."""
        return self._record_steps.rows(drawn)

    def take_step(self, release: Tensor) -> None:
        """A local step along a noised mean gradient."""
        self._record_steps.take(release)

    def change(self) -> Tensor:
        """How far the steps took the critic, float64 [P]."""
        return self._record_steps.change()


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
        self._against = class_slopes(self._critic, self._fakes, self._losses)
        self._start = {k: p.detach() for k, p in self._critic.named_parameters()}
        self._device = next(self._critic.parameters()).device
        self._users, self._records = users, request.records_per_user

    def updates(self, cohort: Sequence[LocalData], seeds: Sequence[int]) -> Tensor:
        """Each user's update; a user without records contributes zeros."""
        held = padded(cohort, self._records, self._users)
        rows = (self._stepped if self._steps == 1 else self._trained)(held, seeds)
        return torch.where(held.present.any(1)[:, None], rows.cpu(), 0.0)

    def _trained(self, held: PaddedRecords, seeds: Sequence[int]) -> Tensor:
        """Users' local SGD, each real image against a generated one of its class."""
        batches = [self._draw(held, user, seed) for user, seed in enumerate(seeds)]
        real, labels, fake = (torch.stack(part) for part in zip(*batches, strict=True))
        changes: Tensor = vmap(self._train)(real, labels, fake)
        return changes

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
            return self._losses.real(functional_call(self._critic, weights, (real, labels)))

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
        """One step's real images and their labels, as `_draw` picks them."""
        picked = self._picks(held, user, np.random.default_rng(seed))
        return held.images[user, picked], held.labels[user, picked]

    def _picks(self, held: PaddedRecords, user: int, source: np.random.Generator) -> Tensor:
        count = int(held.present[user].sum())
        return torch.from_numpy(shuffled(count, self._batch, self._records, source))

    def _draw(self, held: PaddedRecords, user: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
        """Every local step's real images, their labels and fakes of the same classes."""
        source = np.random.default_rng(seed)
        picked = torch.stack([self._picks(held, user, source) for _ in range(self._steps)])
        labels = held.labels[user, picked]
        places = torch.from_numpy(source.integers(FAKES_PER_CLASS, size=labels.shape))
        labels, places = labels.to(self._device), places.to(self._device)
        return held.images[user, picked].to(self._device), labels, self._fakes[labels, places]

    def _loss(self, weights: Parameters, real: Tensor, labels: Tensor, fake: Tensor) -> Tensor:
        score_real = functional_call(self._critic, weights, (real, labels))
        score_fake = functional_call(self._critic, weights, (fake, labels))
        return self._losses.real(score_real) + self._losses.fake(score_fake)

    def _train(self, real: Tensor, labels: Tensor, fake: Tensor) -> Tensor:
        """One user's local SGD over [steps, batch, ...] tensors; the flat difference."""
        weights, slope = dict(self._start), grad(self._loss)
        for step in range(self._steps):
            gradient = slope(weights, real[step], labels[step], fake[step])
            weights = {k: self._limit(k, w - self._rate * gradient[k]) for k, w in weights.items()}
        return torch.cat([(weights[k] - w).reshape(-1) for k, w in self._start.items()])

    def _limit(self, name: str, weight: Tensor) -> Tensor:
        bound = self._limits.get(name)
        return weight if bound is None else weight.clamp(-bound, bound)
