"""Weights from an explicit generator: the global random state is neither read nor moved."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

# A whole network, batch statistics included, as one flat vector: the form that travels.


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


Gain = Literal["linear", "relu"]


_DRAWS = (torch.Tensor.normal_, torch.Tensor.uniform_)


class _NothingDrawn(TorchFunctionMode):
    """Inside it what would fill a tensor, or draw numbers into it, leaves it as it is."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        if func in _DRAWS or getattr(func, "__module__", "") == nn.init.__name__:
            return given["tensor"] if "tensor" in given else args[0]
        return func(*args, **given)


@contextmanager
def unset_weights() -> Iterator[None]:
    """Build layers inside without drawing any number.

    Layers made by PyTorch would fill themselves from the global generator. Call
    :func:`initialise` afterwards. (To build them on the meta device does the same, and costs each
    process the seconds that PyTorch's compiler takes to load.)
    """
    with _NothingDrawn():
        yield


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
