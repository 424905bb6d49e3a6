"""Attackers that are networks: of the training adversary's kind, or a wider one."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedlens.models.classifiers import ConvClassifier, Mlp
from fedlens.privatizers.attacks.attackers.protocol import (
    AttackError,
    FittedAttacker,
    cautious,
    check_known,
)
from fedlens.privatizers.attacks.attackers.tables import beside
from fedlens.privatizers.networks.adversaries import LstmAdversary
from fedlens.privatizers.private_data import PrivateData

Build = Callable[[tuple[int, ...], int, float, torch.Generator], nn.Module]
"""From a record's shape (side information beside it), classes, width and a generator: a network of
records [n, ...] to logits [n, classes] or, of a series, [n, T, classes]."""

BATCH = 128
HELD_BACK = 0.1
"""Share of the records that choose the epoch and the sharpness, and are not trained on."""
PEAK_RATE = 2e-3
CHUNK = 1000


def adversary_like(
    shape: tuple[int, ...], classes: int, width: float, generator: torch.Generator
) -> nn.Module:
    """The kind of network that filters are trained against, by the record's shape.

    A small convolutional network for images of at least 8 x 8 pixels, an LSTM that reads series
    both ways, two hidden layers for anything else.
    """
    if len(shape) == 3 and min(shape[1:]) >= 8:
        image = (shape[0], shape[1], shape[2])
        return ConvClassifier(image, classes, round(8 * width), generator=generator)
    if len(shape) == 2:
        return LstmAdversary(
            shape[1], classes, hidden=round(32 * width), both_ways=True, generator=generator
        )
    units = round(64 * width)
    return Mlp(math.prod(shape), classes, (units, units), generator=generator)


@dataclass(frozen=True, eq=False)
class NetworkFitted:
    """A trained network and how sharp its guesses should be."""

    network: nn.Module  # records to logits, in evaluation mode
    # what its logits are multiplied by (inverse temperature), chosen on records that it was not
    # trained on: an overconfident attacker would understate what it knows
    sharpness: float

    @torch.no_grad()
    def log_probabilities(self, records: Tensor, side: Tensor | None = None) -> Tensor:
        """See `FittedAttacker.log_probabilities`."""
        logits = _logits(self.network, beside(records, side)).double()
        return cautious((self.sharpness * logits).softmax(-1))


@dataclass(frozen=True)
class NetworkAttacker:
    """A network trained with Adam along one cycle of the rate, kept at its best epoch."""

    # 1 for the adversary's size; 2 has twice the channels or units in each layer
    width: float = 1.0
    epochs: int = 3  # passes over the records, at most
    steps: int = 500  # at least so many batches, in more passes where records are few
    build: Build = field(default=adversary_like, repr=False)  # makes the network

    def fit(self, known: PrivateData, seed: int) -> FittedAttacker:
        """Learn; see `Attacker.fit`.

        Raises:
            AttackError: also when there are too few records to hold some back.
        """
        check_known(known)
        held = round(HELD_BACK * len(known))
        if held < 1:
            raise AttackError(f"{len(known)} records are too few for a network; give at least 10")
        generator = torch.Generator().manual_seed(seed)
        seen, sensitive = beside(known.records, known.side), known.sensitive
        shape, classes = tuple(seen.shape[1:]), known.sensitive_classes
        network = self.build(shape, classes, self.width, generator)
        order = torch.randperm(len(seen), generator=generator)
        kept, apart = order[held:], order[:held]
        self._train(network, seen, sensitive, kept, apart, generator)
        return NetworkFitted(network, _sharpness(network, seen[apart], sensitive[apart]))

    def _train(
        self,
        network: nn.Module,
        seen: Tensor,
        sensitive: Tensor,
        kept: Tensor,
        apart: Tensor,
        generator: torch.Generator,
    ) -> None:
        batches = math.ceil(len(kept) / BATCH)
        epochs = max(self.epochs, math.ceil(self.steps / batches))
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        optimiser = torch.optim.Adam(network.parameters(), lr=PEAK_RATE, fused=True)
        cycle = torch.optim.lr_scheduler.OneCycleLR(
            optimiser, PEAK_RATE, total_steps=max(4, epochs * batches)
        )
        best, state = math.inf, copy.deepcopy(network.state_dict())
        for _ in range(epochs):
            order = kept[torch.randperm(len(kept), generator=generator)]
            for rows in torch.split(order, BATCH):
                optimiser.zero_grad()
                torch.autograd.backward(_loss(network(seen[rows]), sensitive[rows]))
                optimiser.step()
                cycle.step()
            with torch.no_grad():
                loss = float(_loss(_logits(network, seen[apart]), sensitive[apart]))
            if loss < best:
                best, state = loss, copy.deepcopy(network.state_dict())
        network.load_state_dict(state)
        network.eval()


def wide_attacker() -> NetworkAttacker:
    """A network of twice the training adversary's width."""
    return NetworkAttacker(width=2.0)


def _loss(logits: Tensor, sensitive: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, -2), sensitive.flatten())


def _logits(network: nn.Module, seen: Tensor) -> Tensor:
    return torch.cat([network(part) for part in torch.split(seen, CHUNK)])


@torch.no_grad()
def _sharpness(network: nn.Module, seen: Tensor, sensitive: Tensor) -> float:
    """Of a few inverse temperatures the one with the least loss on records held back."""
    logits = _logits(network, seen)
    choices = [2 ** (power / 2) for power in range(-6, 3)]
    return min(choices, key=lambda sharp: float(_loss(sharp * logits, sensitive)))
