"""Local steps of many users with a weight matrix each: batched products on patches as columns.

Framework convolutions take a batch of images under one set of weights. Users' weights differ after
their first step, so each layer here is one batched product, a matrix a user, and the pass back is
written out: nothing is recorded, no gradient is made that the steps do not need (that of the
images), generated and real images go through together, and the patches of an image are made once a
round, not once a step.

Products of the pass back are of float32 or bfloat16; the pass forward, weights and their steps are
float32 always. SELU's slope and the hinge jump, and what bfloat16 rounds to the other side of a
jump counts whole: forward in it as well, clipped sums lay 1 to 3% from the plain loop's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor

from fedlens.client.tasks.engines.batches import LocalBatches, LocalRule
from fedlens.client.tasks.engines.blocks import StridedLayer
from fedlens.models.critics import WganCritic
from fedlens.models.shapes import one_hot

# The convolutional critic's parameters in the layout in which products on columns take them.


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


# Memory that steps write again and again: asking for it anew costs more than what fills it.

_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772, 1.0507009873554805


class ReusedMemory:
    """Tensors by name, made once; a tensor of a name is lost when it is taken again."""

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        """Float32 tensors, unless another type is asked for; products are of ``dtype``."""
        self._dtype, self._device = dtype, device
        self._held: dict[str, Tensor] = {}

    def take(self, name: str, shape: tuple[int, ...], dtype: torch.dtype | None = None) -> Tensor:
        """A tensor: zeros at first, later what was written into it last."""
        held = self._held.get(name)
        if held is None or held.shape != shape:
            held = torch.zeros(shape, dtype=dtype or torch.float32, device=self._device)
            self._held[name] = held
        return held

    def lowered(self, name: str, weight: Tensor) -> Tensor:
        """A float32 tensor in the dtype of products."""
        if weight.dtype == self._dtype:
            return weight
        return self.take(f"low {name}", weight.shape, self._dtype).copy_(weight)

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


IN_FLIGHT_CPU, IN_FLIGHT_GPU = 4, 256
"""Users computed at a time: on a CPU so few that their columns stay in its caches."""
Named = Mapping[str, Tensor]


class ColumnsEngine:
    """Users' local steps as batched products on columns."""

    def __init__(self, critic: WganCritic, rule: LocalRule, dtype: torch.dtype) -> None:
        """Prepare for a critic at the global weights.

        Args:
            critic: at the weights that every user starts from.
            rule: of the steps.
            dtype: of products of the pass back, float32 or bfloat16.
        """
        self._rule, self._dtype, self._classes = rule, dtype, critic.classes
        self._layout = CriticLayout(critic)
        self._layers = self._layout.convolutions
        self._start = self._layout.start
        self._device = self._start["head.bias"].device
        self._at_once = IN_FLIGHT_GPU if self._device.type == "cuda" else IN_FLIGHT_CPU
        self._memory = ReusedMemory(dtype, self._device)

    @torch.no_grad()
    def changes(self, batches: LocalBatches) -> Tensor:
        """How far the steps take each user's weights, float32 [users, P]."""
        fakes = self._columns(batches.pool.flatten(0, 1))
        parts = [self._of_some(part, fakes) for part in batches.parts(self._at_once)]
        return torch.cat(parts)[: len(batches.labels)]

    def _of_some(self, batches: LocalBatches, fakes: Tensor) -> Tensor:
        users, steps, batch = batches.picks.shape
        table = torch.cat([fakes, self._columns(batches.images.flatten(0, 1))])
        weights = {n: w.expand(users, *w.shape[1:]).clone() for n, w in self._start.items()}
        rows, labels = self._rows(batches), batches.step_labels
        for step in range(steps):
            shape = users, 2 * batch, *table.shape[1:]
            columns = self._memory.take("columns", shape)
            torch.index_select(table, 0, rows[:, step].reshape(-1), out=columns.flatten(0, 1))
            self._step(weights, columns, labels[:, step].repeat(1, 2))
        return self._layout.changes(weights)

    def _columns(self, images: Tensor) -> Tensor:
        """The first layer's patches of images [n, c, h, w], [n, places, values of a patch]."""
        first, count = self._layers[0], len(images)
        maps = images.permute(0, 2, 3, 1)
        blocks = maps.new_zeros(count, *first.blocks_shape())
        patches = maps.new_empty(count, first.reach, first.reach, first.patch)
        first.to_blocks(maps, blocks)
        first.to_patches(blocks, patches)
        return patches.flatten(1, 2)

    @staticmethod
    def _rows(batches: LocalBatches) -> Tensor:
        """Where each step's images lie among the generated and then the users' own.

        int64 [users, steps, 2 x batch]; real ones come first.
        """
        classes, each = batches.pool.shape[:2]
        users, records = batches.labels.shape
        own = torch.arange(users, device=batches.picks.device)[:, None, None] * records
        made = batches.step_labels * each + batches.places
        return torch.cat([classes * each + own + batches.picks, made], 2)

    def _step(self, weights: dict[str, Tensor], columns: Tensor, labels: Tensor) -> None:
        """One step of every user, in place; real images come first."""
        seen, maps = self._forward(weights, columns)
        hidden = torch.baddbmm(weights["dense.bias"], maps, weights["dense.weight"])
        torch.selu_(hidden)
        ones = torch.ones_like(labels)[..., None]
        picked = torch.cat([ones, one_hot(labels, self._classes)], 2)
        slopes = self._score_slopes(weights, hidden, picked) * picked
        found = {"head.weight": torch.bmm(slopes.mT, hidden), "head.bias": slopes.sum(1)}
        slope = selu_slope(torch.bmm(slopes, weights["head.weight"]), hidden)
        self._move(weights, found | self._backward(weights, seen, maps, slope))

    def _forward(
        self, weights: Named, columns: Tensor
    ) -> tuple[list[tuple[Tensor, Tensor]], Tensor]:
        """Each convolution's columns and what it gives; the last map, flat."""
        users, count = columns.shape[:2]
        seen, maps = [], columns
        for place, layer in enumerate(self._layers):
            if place:
                columns = self._patches(place, maps.view(users, count, layer.side, layer.side, -1))
            flat, name = columns.view(users, -1, layer.patch), f"conv{place + 1}"
            maps = self._memory.take(f"maps {place}", (users, flat.shape[1], layer.outputs))
            bias = weights[f"{name}.bias"].expand_as(maps)
            torch.baddbmm(bias, flat, weights[f"{name}.weight"], out=maps)
            torch.selu_(maps)
            seen.append((flat, maps))
        return seen, maps.view(users, count, -1)

    def _patches(self, place: int, maps: Tensor) -> Tensor:
        layer, count = self._layers[place], maps.shape[:2]
        blocks = self._memory.take(f"blocks {place}", (*count, *layer.blocks_shape()))
        layer.to_blocks(maps, blocks)
        patches = self._memory.take(
            f"patches {place}", (*count, layer.reach, layer.reach, layer.patch)
        )
        layer.to_patches(blocks, patches)
        return patches

    def _score_slopes(self, weights: Named, hidden: Tensor, picked: Tensor) -> Tensor:
        """The loss's slope at each score, [users, 2 x batch, 1]."""
        batch = hidden.shape[1] // 2
        signs = torch.ones(2 * batch, device=hidden.device)
        signs[:batch] = -1.0
        slopes = (signs / batch).expand(hidden.shape[:2])
        if self._rule.loss == "hinge":
            heads = torch.baddbmm(weights["head.bias"], hidden, weights["head.weight"].mT)
            slopes = slopes * (signs * (heads * picked).sum(2) > -1)
        return slopes[..., None]

    def _backward(
        self, weights: Named, seen: list[tuple[Tensor, Tensor]], maps: Tensor, slope: Tensor
    ) -> dict[str, Tensor]:
        """Slopes of the loss at all parameters but the head's, of the layout's shapes."""
        found = {"dense.bias": slope.sum(1)}
        slope, low = slope.to(self._dtype), self._memory.lowered
        found["dense.weight"] = torch.bmm(low("maps", maps).mT, slope)
        slope = torch.bmm(slope, low("dense", weights["dense.weight"]).mT).float()
        for place in reversed(range(len(self._layers))):
            (columns, given), name = seen[place], f"conv{place + 1}"
            slope = selu_slope(slope.view(given.shape), given)
            found[f"{name}.bias"] = slope.sum(1)
            slope = low(f"slope {place}", slope)
            found[f"{name}.weight"] = torch.bmm(low(f"columns {place}", columns).mT, slope)
            if place:
                back = self._memory.take(f"back {place}", columns.shape, self._dtype)
                torch.bmm(slope, low(name, weights[f"{name}.weight"]).mT, out=back)
                slope = self._unpatched(place, back, maps.shape[:2])
        return found

    def _unpatched(self, place: int, back: Tensor, count: tuple[int, ...]) -> Tensor:
        """Patches' slopes added up where they overlap, in float32: sums in bfloat16 are slow."""
        layer = self._layers[place]
        shape = (*count, *layer.blocks_shape())
        blocks = self._memory.take(f"slopes {place}", shape)
        wide = self._memory.widened(f"wide {place}", back)
        layer.add_patches(wide.view(*count, layer.reach, layer.reach, -1), blocks)
        maps = self._memory.take(
            f"unpatched {place}", (*count, layer.side, layer.side, layer.channels)
        )
        layer.from_blocks(blocks, maps)
        return maps

    def _move(self, weights: Named, found: Named) -> None:
        """A step against the slopes, and back within the limits."""
        for name, weight in weights.items():
            weight.sub_(found[name].view_as(weight), alpha=self._rule.rate)
            if name in self._rule.limits:
                bound = self._rule.limits[name]
                weight.clamp_(-bound, bound)
