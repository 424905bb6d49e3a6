"""Weight clipping of the Wasserstein critic (Arjovsky et al., arXiv:1701.07875, algorithm 1).

The limit of a weight is ``limit / sqrt(fan_in)`` and that of a bias ``limit / 4``, so that one
number suits layers of any width.
"""

from __future__ import annotations

import math

import torch
from torch import nn


def weight_limits(critic: nn.Module, limit: float) -> dict[str, float]:
    """The bound of each named parameter; empty for ``limit`` 0, which bounds nothing."""
    if limit == 0:
        return {}
    return {
        name: limit / math.sqrt(p[0].numel()) if p.dim() > 1 else limit / 4
        for name, p in critic.named_parameters()
    }


@torch.no_grad()
def clamp_weights(critic: nn.Module, limits: dict[str, float]) -> None:
    """Bring every parameter of ``critic`` within its bound, in place."""
    for name, parameter in critic.named_parameters():
        if name in limits:
            parameter.clamp_(-limits[name], limits[name])


def limits_norm(critic: nn.Module, limits: dict[str, float]) -> float:
    """L2 norm of a critic all of whose parameters are at their bounds; infinite without bounds."""
    if not limits:
        return math.inf
    return math.sqrt(sum(p.numel() * limits[n] ** 2 for n, p in critic.named_parameters()))
