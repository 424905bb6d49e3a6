"""A whole network, batch statistics included, as one flat vector: the form that travels."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn


def _floats(module: nn.Module) -> list[Tensor]:
    return [value for value in module.state_dict().values() if value.is_floating_point()]


def to_vector(module: nn.Module) -> NDArray[np.float32]:
    """Parameters and floating-point buffers in the order of the state dict, float32 [n]."""
    return torch.cat([value.detach().cpu().reshape(-1) for value in _floats(module)]).numpy()


@torch.no_grad()
def load_vector(module: nn.Module, vector: NDArray[np.float32]) -> None:
    """Put a vector of `to_vector` back, in place.

    Raises:
        ValueError: the vector has another length than the network.
    """
    values = _floats(module)
    wanted = sum(value.numel() for value in values)
    if vector.shape != (wanted,):
        raise ValueError(f"a vector of shape {vector.shape} for a network of {wanted} values")
    parts = torch.split(torch.from_numpy(vector.copy()), [value.numel() for value in values])
    for value, part in zip(values, parts, strict=True):
        value.copy_(part.view_as(value))
