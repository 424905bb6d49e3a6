"""Training state as named arrays, so that a checkpoint needs no pickle."""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

Arrays = dict[str, NDArray[np.generic]]
_MARK = "optimiser."


def optimiser_state(optimiser: torch.optim.Optimizer) -> Arrays:
    """Every tensor of the optimiser's state under ``optimiser.<parameter>.<name>``."""
    state = optimiser.state_dict()["state"]
    return {
        f"{_MARK}{index}.{name}": np.asarray(torch.as_tensor(value).cpu().numpy())
        for index, moments in state.items()
        for name, value in moments.items()
        if value is not None
    }


def restore_optimiser(optimiser: torch.optim.Optimizer, arrays: Arrays) -> None:
    """Put `optimiser_state` back; hyper-parameters stay as constructed."""
    state: dict[int, dict[str, torch.Tensor]] = {}
    for key, value in arrays.items():
        if key.startswith(_MARK):
            index, name = key.removeprefix(_MARK).split(".", 1)
            state.setdefault(int(index), {})[name] = torch.from_numpy(np.array(value))
    groups = optimiser.state_dict()["param_groups"]
    optimiser.load_state_dict({"state": state, "param_groups": groups})


def vector_to_gradient(network: nn.Module, vector: torch.Tensor) -> None:
    """Set the gradients of a network's parameters from a flat vector, in their order."""
    parameters = list(network.parameters())
    parts = torch.split(vector, [parameter.numel() for parameter in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.grad = part.view_as(parameter).to(parameter)


def under(prefix: str, arrays: Arrays) -> Arrays:
    """The arrays with ``prefix/`` before their names."""
    return {f"{prefix}/{name}": value for name, value in arrays.items()}


def within(prefix: str, arrays: Arrays) -> Arrays:
    """The arrays that `under` put below ``prefix``, by their own names."""
    mark = f"{prefix}/"
    return {k.removeprefix(mark): v for k, v in arrays.items() if k.startswith(mark)}


def contiguous(arrays: Arrays) -> Arrays:
    """The same arrays, each in C order."""
    return {name: np.asarray(value, order="C") for name, value in arrays.items()}


def digest_of(arrays: Arrays) -> str:
    """SHA-256 (hex) over names, shapes, dtypes and bytes, in the order of the names."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        value = np.asarray(arrays[name], order="C")
        digest.update(f"{name}|{value.dtype.str}|{value.shape}|".encode())
        digest.update(value.tobytes())
    return digest.hexdigest()
