"""Memory that steps write again and again: asking for it anew costs more than what fills it."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772, 1.0507009873554805


class ReusedMemory:
    """Tensors by name, made once; a tensor of a name is lost when it is taken again."""

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        """Tensors of ``dtype``, unless another is asked for."""
        self._dtype, self._device = dtype, device
        self._held: dict[str, Tensor] = {}

    def take(self, name: str, shape: tuple[int, ...], dtype: torch.dtype | None = None) -> Tensor:
        """A tensor: zeros at first, later what was written into it last."""
        held = self._held.get(name)
        if held is None or held.shape != shape:
            held = torch.zeros(shape, dtype=dtype or self._dtype, device=self._device)
            self._held[name] = held
        return held

    def lowered(self, name: str, weight: Tensor) -> Tensor:
        """A float32 tensor in the dtype of products."""
        if weight.dtype == self._dtype:
            return weight
        return self.take(f"low {name}", weight.shape).copy_(weight)

    def widened(self, name: str, values: Tensor) -> Tensor:
        """A tensor of the dtype of products in float32."""
        if values.dtype == torch.float32:
            return values
        return self.take(name, values.shape, torch.float32).copy_(values)


def selu_slope(slope: Tensor, given: Tensor) -> Tensor:
    """The slope at what SELU was given, in place of that at what it gave, ``given``."""
    found = torch.ops.aten.elu_backward.grad_input(
        slope, _SELU_ALPHA, _SELU_SCALE, 1.0, True, given, grad_input=slope
    )
    return cast(Tensor, found)
