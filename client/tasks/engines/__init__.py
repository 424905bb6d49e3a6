"""Engines of users' local steps: which one a task's settings name, behind one narrow interface.

Which engine computes follows from public things alone (settings, architecture, device), never from
who was drawn or what they hold. All are held to the plain loop, and none is trusted with the norm:
`fedlens.client.update.clipping` bounds what comes out of it, and the server's checks what nodes
send.
"""

from __future__ import annotations

import torch

from fedlens.client.tasks.engines.autograd import LoopEngine, VmapEngine
from fedlens.client.tasks.engines.batches import LocalEngine, LocalRule
from fedlens.client.tasks.engines.columns import ColumnsEngine
from fedlens.client.tasks.settings import WganSettings
from fedlens.models.critics import WganCritic
from fedlens.models.limits import weight_limits


def engine_of(settings: WganSettings, critic: WganCritic) -> LocalEngine:
    """The engine that a task's settings name, for a critic at the global weights."""
    limits = weight_limits(critic, settings.weight_limit)
    rule = LocalRule(settings.loss, settings.local_rate, limits)
    if settings.engine == "columns":
        return ColumnsEngine(critic, rule, getattr(torch, settings.precision))
    return (LoopEngine if settings.engine == "loop" else VmapEngine)(critic, rule)
