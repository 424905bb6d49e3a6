"""The privatizer on a node: each user's gradients of every network, on that user's records alone.

Algorithm 1 of Bertran et al. 2019 (and of Jafarzadeh Asl et al. 2023) as one federated step: minus
the gradient of each network's loss, the scalars whose squares (or logarithm) the objective takes,
and the shares of the sensitive attribute's classes. The square of a mean does not decompose over
users, so each takes the gradient at *everybody's* scalars of the rounds before, which travel with
the request. Every block is clipped by itself here, and the whole again where sums are made, so that
the sensitivity of the sum is C.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import grad, vmap
from torch.nn import functional as F

from fedlens.client.messages import TrainRequest
from fedlens.client.tasks.protocol import ClientTask
from fedlens.client.tasks.settings import PrivatizerSettings
from fedlens.client.users.protocol import LocalData, LocalUsers, NodeDataError
from fedlens.client.users.records import PaddedRecords, padded, shuffled
from fedlens.models import devices
from fedlens.models.weights import load_vector
from fedlens.privatizers.methods import method_of
from fedlens.privatizers.networks.design import SCALARS, SHARES, design
from fedlens.privatizers.protocol import Batch, Weights, named_weights


class PrivatizerLocalTask(ClientTask):
    """Updates are laid out as `Design.blocks` says, each block within its bound."""

    def __init__(self, users: LocalUsers, request: TrainRequest) -> None:
        """Build the networks as the request carries them.

        Raises:
            NodeDataError: the users do not hold the sensitive attribute that is to be hidden.
        """
        settings = PrivatizerSettings.model_validate(request.settings)
        name, classes = users.sensitive_attribute, users.sensitive_classes
        if name != settings.sensitive_attribute or classes < 2:
            wanted = settings.sensitive_attribute
            raise NodeDataError(f"the run hides {wanted!r}, this node has {name!r}")
        plain = settings.model_dump()
        self._users, self._records = users, request.records_per_user
        self._design = design(plain, users.shape, users.classes, classes)
        self._bounds = self._design.bounds(request.mechanism.clipping_norm)
        self._batch, self._some_hide = settings.batch, settings.consenting > 0
        self._device = devices.best_device()
        self._load(request)
        public = torch.from_numpy(request.weights["public"].copy()).to(self._device)
        self._shared = public[: len(self._design.scalars)]
        shares = public[len(self._design.scalars) :]
        self._method = method_of(plain).build(self._design.networks, plain, shares)
        self._start = named_weights(self._method.networks)

    def _load(self, request: TrainRequest) -> None:
        vector, start = request.weights["networks"], 0
        for block in self._design.blocks:
            if block.name in self._design.networks:
                end = start + block.size
                load_vector(self._design.networks[block.name], vector[start:end])
                self._design.networks[block.name].to(self._device)
                start = end

    def updates(self, cohort: Sequence[LocalData], seeds: Sequence[int]) -> Tensor:
        """Each user's update; a user without records, or without sensitive values, adds zeros."""
        held = padded(cohort, self._records, self._users)
        known = torch.tensor([len(d.labels) > 0 and d.sensitive is not None for d in cohort])
        drawn = [self._draw(held, user, seed) for user, seed in enumerate(seeds)]
        rows = self._rows([torch.stack(p).to(self._device) for p in zip(*drawn, strict=True)])
        return torch.where(known[:, None].to(self._device), rows, 0.0)

    def _draw(self, held: PaddedRecords, user: int, seed: int) -> tuple[Tensor, ...]:
        """One user's batch: images, utility, sensitive, hides [b, 1] and the filter's noise."""
        count = int(held.present[user].sum())
        source = np.random.default_rng(seed)
        picked = torch.from_numpy(shuffled(count, self._batch, self._records, source))
        noise_source = torch.Generator().manual_seed(seed)
        noise = torch.randn(self._batch, *self._method.noise_shape, generator=noise_source)
        return (
            held.images[user, picked],
            held.labels[user, picked],
            held.sensitive[user, picked],
            held.hides[user, picked] if self._some_hide else torch.ones(self._batch, 1),
            noise,
        )

    def _rows(self, batches: Sequence[Tensor]) -> Tensor:
        slopes, scalars = vmap(self._slopes)(*batches)
        hides = batches[3]
        shares = (F.one_hot(batches[2], self._design.sensitive_classes) * hides).mean(1)
        blocks = {
            SCALARS: self._told(scalars, hides.amax((1, 2))),
            SHARES: shares * self._bounds[SHARES],
            **{name: -slope for name, slope in slopes.items()},
        }
        found = [_clipped(blocks[b.name], self._bounds[b.name]) for b in self._design.blocks]
        return torch.cat(found, 1).detach()

    def _told(self, scalars: Tensor, hides: Tensor) -> Tensor:
        """Scalars as a block; those over who hides something are 0 of a user who hides nothing."""
        block = self._design.encoded(scalars, self._bounds.get(SCALARS, 0.0))
        for place, scalar in enumerate(self._design.scalars):
            if scalar.hidden:
                block[:, place] *= hides
        return block

    def _slopes(self, *batch: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """Flat gradients by network and the scalars, of one user's batch."""
        images, utility, sensitive, hides, noise = batch
        records = Batch(images, utility, sensitive, choice=hides if self._some_hide else None)

        def loss(weights: Mapping[str, Weights]) -> tuple[Tensor, Any]:
            step = self._method.local_step(weights, records, noise, self._shared)
            return torch.stack(list(step.losses.values())).sum(), step.scalars

        slopes, scalars = grad(loss, has_aux=True)(self._start)
        flat = {
            name: torch.cat([part.reshape(-1) for part in named.values()])
            for name, named in slopes.items()
        }
        return flat, scalars


def _clipped(rows: Tensor, bound: float) -> Tensor:
    """Rows [users, n] of L2 norm at most ``bound``; what is not finite stays so, to be left out."""
    norms = rows.norm(dim=1, keepdim=True)
    clipped: Tensor = rows * (bound / norms.clamp_min(1e-30)).clamp(max=1.0)
    return clipped
