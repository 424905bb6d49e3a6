"""LSTMs over series whose weights come from an explicit generator."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from fedlens.models.shapes import ShapeError


def build_lstm(
    inputs: int, hidden: int, layers: int, generator: torch.Generator, *, both_ways: bool = False
) -> nn.LSTM:
    """An LSTM of series [n, T, inputs], each weight uniform in ±1/√hidden.

    Forget gates start open (a bias of 1), so that what came hours ago is not forgotten at once.

    Args:
        inputs: channels of a series.
        hidden: units of each layer.
        layers: layers one upon the other.
        generator: CPU generator of the weights.
        both_ways: each layer also reads the series from its end; otherwise the LSTM is causal.

    Raises:
        ShapeError: unless all three numbers are at least 1.
    """
    check_sizes(inputs=inputs, hidden=hidden, layers=layers)
    with torch.device("meta"):  # where nothing is drawn from the global generator
        lstm = nn.LSTM(inputs, hidden, layers, batch_first=True, bidirectional=both_ways)
    lstm.to_empty(device="cpu")
    reach = 1 / math.sqrt(hidden)
    with torch.no_grad():
        for name, weight in lstm.named_parameters():
            weight.uniform_(-reach, reach, generator=generator)
            if name.startswith("bias_ih"):
                weight[hidden : 2 * hidden].fill_(1.0)
    return lstm


def check_sizes(**sizes: int) -> None:
    """Refuse a size below 1, by name.

    Raises:
        ShapeError: when there is one.
    """
    for name, size in sizes.items():
        if size < 1:
            raise ShapeError(f"{name}={size} must be at least 1")


def each_step(side: Tensor, steps: int) -> Tensor:
    """Side information for each step, float32 [n, T, k], of [n, k] or [n, T, k]."""
    return side if side.ndim == 3 else side.unsqueeze(1).expand(-1, steps, -1)
