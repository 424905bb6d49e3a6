"""Local steps by PyTorch's own differentiation: user by user, or all users' at once.

The plain loop is what the others are held to.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from fedlens.client.tasks.engines.batches import LocalBatches, LocalRule
from fedlens.client.tasks.wgan_networks import LOSSES
from fedlens.models.critics import WganCritic

Parameters = dict[str, Tensor]


class _Differentiated:
    """What both share: the loss and the limits."""

    def __init__(self, critic: WganCritic, rule: LocalRule) -> None:
        """Prepare for a critic at the weights that every user starts from; float32 only."""
        self._critic, self._rule, self._losses = critic, rule, LOSSES[rule.loss]
        self._start = {k: p.detach() for k, p in critic.named_parameters()}

    def _loss(self, weights: Parameters, real: Tensor, labels: Tensor, fake: Tensor) -> Tensor:
        score_real = functional_call(self._critic, weights, (real, labels))
        score_fake = functional_call(self._critic, weights, (fake, labels))
        return self._losses.real(score_real).mean() + self._losses.fake(score_fake).mean()

    def _moved(self, weights: Parameters, slopes: Mapping[str, Tensor]) -> Parameters:
        rate = self._rule.rate
        return {k: self._limit(k, w - rate * slopes[k]) for k, w in weights.items()}

    def _limit(self, name: str, weight: Tensor) -> Tensor:
        bound = self._rule.limits.get(name)
        return weight if bound is None else weight.clamp(-bound, bound)

    def _change(self, weights: Parameters) -> Tensor:
        return torch.cat([(weights[k] - w).reshape(-1) for k, w in self._start.items()])


class VmapEngine(_Differentiated):
    """All users' steps at once, in the framework's batched operations."""

    def changes(self, batches: LocalBatches) -> Tensor:
        """How far the steps take each user's weights, float32 [users, P]."""
        parts = batches.real, batches.step_labels, batches.fakes
        changes: Tensor = vmap(self._train)(*parts)
        return changes

    def _train(self, real: Tensor, labels: Tensor, fake: Tensor) -> Tensor:
        """One user's local SGD over [steps, batch, ...] tensors; the flat difference."""
        weights, slope = dict(self._start), grad(self._loss)
        for step in range(len(real)):
            slopes = slope(weights, real[step], labels[step], fake[step])
            weights = self._moved(weights, slopes)
        return self._change(weights)


class LoopEngine(_Differentiated):
    """One user after the other, step by step."""

    def changes(self, batches: LocalBatches) -> Tensor:
        """How far the steps take each user's weights, float32 [users, P]."""
        parts = zip(batches.real, batches.step_labels, batches.fakes, strict=True)
        return torch.stack([self._train(*part) for part in parts])

    def _train(self, real: Tensor, labels: Tensor, fake: Tensor) -> Tensor:
        weights = {k: w.clone().requires_grad_() for k, w in self._start.items()}
        for step in range(len(real)):
            loss = self._loss(weights, real[step], labels[step], fake[step])
            slopes = torch.autograd.grad(loss, list(weights.values()))
            with torch.no_grad():
                moved = self._moved(weights, dict(zip(weights, slopes, strict=True)))
            weights = {k: w.requires_grad_() for k, w in moved.items()}
        return self._change({k: w.detach() for k, w in weights.items()})
