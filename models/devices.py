"""Where networks are computed: one rule for nodes and server."""

from __future__ import annotations

import torch
from torch import nn


def best_device() -> torch.device:
    """The machine's GPU where there is one, its processor elsewhere.

    What is drawn at random is drawn on the processor and moved, so that both compute the same up to
    rounding. What leaves a task or is kept is on the processor again.
    """
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def device_of(network: nn.Module) -> torch.device:
    """Where a network's weights are; the processor for one without any."""
    for value in (*network.parameters(), *network.buffers()):
        return value.device
    return torch.device("cpu")
