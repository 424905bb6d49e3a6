"""Record mode where a gradient is known in closed form: one noised sum a round.

Nothing is stepped on the node: each record is drawn with probability q, its gradient clipped to C,
all added up, N(0, (zC)^2) added once, and divided by the number that was declared.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import torch
from torch import Tensor

from client.messages import TrainRequest
from client.silo import chosen_of, noised, sampling_source


class Portion(Protocol):
    """Some of a node's records."""

    def __len__(self) -> int:
        """How many."""

    def clipped_sum(self, chosen: Tensor, bound: float) -> Tensor:
        """What the records at positions ``chosen``, int64 [k], add up to, float64 [P].

        Each contributes at most ``bound`` in L2 norm, so that is the sum's sensitivity to adding
        or removing one record.
        """


def noised_sum(portions: Iterable[Portion], size: int, node: int, request: TrainRequest) -> Tensor:
    """A round's noised sum over its fixed denominator, float64 [P].

    The denominator is fixed because how many took part, and even the node's size, are private.

    Args:
        portions: all sound records of the node, always in the same order.
        size: P.
        node: the node's position among the nodes.
        request: with the mechanism.
    """
    total = clipped_sum(portions, size, node, request)
    return noised(total, request, node, 0) / request.mechanism.denominator


def clipped_sum(portions: Iterable[Portion], size: int, node: int, request: TrainRequest) -> Tensor:
    """A round's sum before its noise, float64 [P]: private, of L2 sensitivity C."""
    total = torch.zeros(size, dtype=torch.float64)
    source = sampling_source(request, node, 0)
    for portion in portions:
        chosen = chosen_of(len(portion), request, source)
        if len(chosen):
            total += portion.clipped_sum(chosen, request.mechanism.clipping_norm)
    return total
