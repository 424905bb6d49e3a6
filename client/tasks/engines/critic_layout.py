"""The convolutional critic's parameters in the layout in which products on columns take them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from fedlens.client.tasks.engines.blocks import StridedLayer
from fedlens.models.critics import WganCritic


class CriticLayout:
    """Matrices from patches to outputs, maps as rows of pixels with channels last."""

    def __init__(self, critic: WganCritic) -> None:
        """Read the critic's layers and weights."""
        self.convolutions = _convolutions(critic)
        """In the order in which they are used."""
        self._named = {name: value.detach() for name, value in critic.named_parameters()}
        self.start = {name: self._as_used(name, value) for name, value in self._named.items()}
        """Each parameter, float32: biases [1, 1, n], matrices [1, from, to]; the head's [1, to,
        from]."""

    def changes(self, weights: Mapping[str, Tensor]) -> Tensor:
        """How far users' weights are from the start, flat as the critic has them, [users, P]."""
        moved = (self._as_named(n, weights[n] - self.start[n]) for n in self._named)
        return torch.cat(list(moved), 1)

    def _as_used(self, name: str, value: Tensor) -> Tensor:
        if name.endswith("bias"):
            return value.view(1, 1, -1)
        if name.startswith("conv"):
            return self._convolution(name).as_matrix(value)[None]
        if name == "dense.weight":
            return self._maps_first(value).permute(2, 3, 1, 0).reshape(1, -1, len(value))
        return value[None]

    def _as_named(self, name: str, values: Tensor) -> Tensor:
        if name.startswith("conv") and name.endswith("weight"):
            return self._convolution(name).from_matrix(values)
        if name == "dense.weight":
            last = self.convolutions[-1]
            maps = values.view(len(values), last.reach, last.reach, last.outputs, -1)
            return maps.permute(0, 4, 3, 1, 2).flatten(1)
        return values.flatten(1)

    def _convolution(self, name: str) -> StridedLayer:
        return self.convolutions[int(name[len("conv")]) - 1]

    def _maps_first(self, dense: Tensor) -> Tensor:
        last = self.convolutions[-1]
        return dense.view(len(dense), last.outputs, last.reach, last.reach)


def _convolutions(critic: WganCritic) -> tuple[StridedLayer, ...]:
    side, layers = critic.shape[1], []
    for conv in (critic.conv1, critic.conv2, critic.conv3):
        layer = StridedLayer(conv.kernel_size[0], conv.in_channels, conv.out_channels, side)
        layers.append(layer)
        side = layer.reach
    return tuple(layers)
