"""Weights from an explicit generator: the global random state is neither read nor moved."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import nn

Gain = Literal["linear", "relu"]


@contextmanager
def unset_weights(module: nn.Module) -> Iterator[None]:
    """Build layers inside without drawing any number, then give ``module`` empty CPU tensors.

    Layers made by PyTorch fill themselves from the global generator; on the meta device they
    hold no numbers, so nothing is drawn. Call :func:`initialise` afterwards.
    """
    with torch.device("meta"):
        yield
    module.to_empty(device="cpu")


def initialise(module: nn.Module, generator: torch.Generator | None, gain: Gain) -> None:
    """Fill every layer of ``module``: Kaiming normal weights, zero biases, unit norms.

    Args:
        module: made of convolutions, linear layers and norms, on the CPU.
        generator: CPU generator that decides the weights. ``None`` is a fresh generator with
            seed 0, so that two networks built without one are equal.
        gain: ``linear`` for SELU networks (LeCun normal, as SELU asks for), ``relu`` otherwise.
    """
    source = generator if generator is not None else torch.Generator().manual_seed(0)
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d | nn.GroupNorm):
            layer.reset_parameters()
        elif isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity=gain, generator=source)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
