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
from torch.nn.utils import parameters_to_vector

from client.cohort_data import shuffled
from client.data import LocalData, LocalUsers
from client.messages import TrainRequest
from client.tasks.settings import WganSettings
from client.tasks.wgan_networks import (
    FAKES_PER_CLASS,
    LOSSES,
    class_slopes,
    draw_fakes,
    load_networks,
)
from client.tasks.wgan_records import train_steps
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

    def record_update(self, node: int) -> Tensor:
        """The critic's noised change after local steps of DP-SGD (`client.tasks.wgan_records`)."""
        return train_steps(self._users, self._request, node)


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
        self._empty = torch.zeros_like(parameters_to_vector(self._critic.parameters())).detach()

    def updates(self, cohort: Sequence[LocalData], seeds: Sequence[int]) -> Tensor:
        """Each user's update; a user without records contributes zeros."""
        rows = self._empty.repeat(len(cohort), 1)
        held = [i for i, data in enumerate(cohort) if len(data.labels)]
        if held:
            train = self._stepped if self._steps == 1 else self._trained
            rows[held] = train([cohort[i] for i in held], [seeds[i] for i in held])
        return rows.cpu()

    def _trained(self, cohort: Sequence[LocalData], seeds: Sequence[int]) -> Tensor:
        """Users' local SGD, each real image against a generated one of its class."""
        batches = [self._draw(data, seed) for data, seed in zip(cohort, seeds, strict=True)]
        real, labels, fake = (torch.stack(part) for part in zip(*batches, strict=True))
        changes: Tensor = vmap(self._train)(real, labels, fake)
        return changes

    def _stepped(self, cohort: Sequence[LocalData], seeds: Sequence[int]) -> Tensor:
        """Users' single step against the mean gradient of all generated images of each class."""
        device = self._empty.device
        batches = [self._pick(data, seed) for data, seed in zip(cohort, seeds, strict=True)]
        real, labels = (torch.stack(part).to(device) for part in zip(*batches, strict=True))
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

    def _pick(self, data: LocalData, seed: int) -> tuple[Tensor, Tensor]:
        """One step's real images and their labels, as `_draw` picks them."""
        source = np.random.default_rng(seed)
        picked = torch.from_numpy(shuffled(len(data.labels), self._batch, source))
        return data.images[picked], data.labels[picked]

    def _draw(self, data: LocalData, seed: int) -> tuple[Tensor, Tensor, Tensor]:
        """Every local step's real images, their labels and fakes of the same classes."""
        source = np.random.default_rng(seed)
        rows = [shuffled(len(data.labels), self._batch, source) for _ in range(self._steps)]
        picked = torch.from_numpy(np.stack(rows))
        labels = data.labels[picked]
        places = torch.from_numpy(source.integers(FAKES_PER_CLASS, size=labels.shape))
        device = self._empty.device
        fakes = self._fakes[labels.to(device), places.to(device)]
        return data.images[picked].to(device), labels.to(device), fakes

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
