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

import torch
from torch import Tensor

from fedlens.client.tasks.engines.batches import LocalBatches, LocalRule
from fedlens.client.tasks.engines.critic_layout import CriticLayout
from fedlens.client.tasks.engines.memory import ReusedMemory, selu_slope
from fedlens.models.critics import WganCritic
from fedlens.models.shapes import one_hot

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
