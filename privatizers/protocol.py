"""What every privatizer is: pure steps on named weights, so that one method trains anywhere.

On one machine the weights are the networks' own; in a federation they are each user's copy, and
the same step runs under ``torch.func.vmap(torch.func.grad(...))``, whose rows are clipped and
noised. A step never draws a number (noise is an argument) and never changes a network.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedlens.foundation.errors import FedlensError

FILTER = "filter"
"""The network that devices run; every other one is an adversary or a classifier."""

Weights = dict[str, Tensor]
"""One network's parameters by name."""


class PrivatizerError(FedlensError, ValueError):
    """A privatizer that cannot be built or trained as asked; the message names the fix."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Records of people, what a service wants to know of each, what its owner wants hidden.

    Attributes:
        records: float32 [n, ...]: images [n, c, h, w], series [n, T, 1], points [n, d].
        utility: int64 [n]; [n, T] where the utility is the series itself (then unused).
        sensitive: int64 [n], or [n, T] with one value a step of a series.
        side: float32 [n, k] or [n, T, k], what adversary and attacker also know; None: nothing.
        choice: float32 [n, 1], 1 where the record's owner wants the sensitive attribute hidden;
            None where everybody does. A record has one sensitive attribute and so one bit: what
            trains against the attribute refuses more columns. A mask names no attribute
            and acts where any of its columns is 1.
    """

    records: Tensor
    utility: Tensor
    sensitive: Tensor
    side: Tensor | None = None
    choice: Tensor | None = None


class Step(NamedTuple):
    """What one step minimises, and what it saw.

    Attributes:
        losses: network -> scalar. A network's loss depends on the other networks' weights through
            detached values only, so the gradient of the *sum* holds every network's own gradient.
        scalars: float32 [k], detached means over the batch that the objective squares (A and B
            of Bertran et al. 2019); [0] where a method squares none.
    """

    losses: dict[str, Tensor]
    scalars: Tensor


class Privatizer(Protocol):
    """A method: what the filter does, how everybody learns, what a batch looks like meanwhile."""

    networks: Mapping[str, nn.Module]
    """Networks that learn, as built; ``filter`` is the one that devices run."""

    noise_shape: tuple[int, ...]
    """Of one record's noise, drawn from N(0, 1); () where the filter is deterministic."""

    def filter(self, records: Tensor, noise: Tensor, choice: Tensor | None = None) -> Tensor:
        """Released records, float32 [n, ...], of records and noise [n, *noise_shape]."""
        released: Tensor = self.networks[FILTER](records, noise, choice)
        return released

    def local_step(
        self,
        weights: Mapping[str, Weights],
        batch: Batch,
        noise: Tensor,
        shared: Tensor | None = None,
        *,
        filtering: bool = True,
    ) -> Step:
        """Every network's loss on a batch; pure, and fit for ``torch.func.vmap`` of a gradient.

        Args:
            weights: each network's parameters.
            batch: n records.
            noise: float32 [n, *noise_shape].
            shared: the scalars of everybody, of the previous round; None takes the batch's own.
            filtering: whether the filter steps; where only the others do, its loss and the scalars
                are left out, which halves the work.
        """

    def report(self, batch: Batch, noise: Tensor) -> dict[str, float]:
        """What the training networks say of a batch: an estimate, and no figure of privacy.

        A training adversary lags behind the filter. What is left of a sensitive attribute is for
        fresh attackers to say, on records that neither has seen.
        """


def named_weights(networks: Mapping[str, nn.Module]) -> dict[str, Weights]:
    """The networks' own parameters that learn, by network and name: what training hands a step."""
    return {
        network: {name: value for name, value in net.named_parameters() if value.requires_grad}
        for network, net in networks.items()
    }


def run(net: nn.Module, weights: Weights, *inputs: Tensor | None) -> Tensor:
    """``net(*inputs)`` with other weights; inputs that are None are left out at the end."""
    given = inputs
    while given and given[-1] is None:
        given = given[:-1]
    answer: Tensor = functional_call(net, weights, given)
    return answer


def detached(weights: Weights) -> Weights:
    """The same weights as constants: what another network's loss may depend on."""
    return {name: value.detach() for name, value in weights.items()}


def hidden_of(batch: Batch) -> Tensor:
    """Whose sensitive attribute is to be hidden, float32 [n]: all where the batch has no choice.

    For methods that hide *the* sensitive attribute of a record: there is one, and one bit for it.

    Raises:
        PrivatizerError: the choice has more than one column, or another shape.
    """
    if batch.choice is None:
        return batch.records.new_ones(len(batch.records))
    if batch.choice.shape != (len(batch.records), 1):
        raise PrivatizerError(
            f"choice is of shape {tuple(batch.choice.shape)} for {len(batch.records)} records with "
            "one sensitive attribute each; give one column, 1 where the owner wants it "
            "hidden"
        )
    return batch.choice[:, 0]


def released_by(
    networks: Mapping[str, nn.Module],
    weights: Mapping[str, Weights],
    batch: Batch,
    noise: Tensor,
    *,
    filtering: bool,
) -> Tensor:
    """A batch's released records; constants where the filter does not step."""
    own = weights[FILTER] if filtering else detached(weights[FILTER])
    return run(networks[FILTER], own, batch.records, noise, batch.choice)


class Seen(NamedTuple):
    """What is released of a batch, and what an adversary reads of it.

    Attributes:
        released: as :func:`released_by` has it.
        read: the filter's ``channel``, float32 [n, k], where all its releases are computed from
            one: an attacker has the filter's weights, and comes back from a release to that. Else
            the released records.
    """

    released: Tensor
    read: Tensor

    def detached(self) -> Seen:
        """The same as constants."""
        return Seen(self.released.detach(), self.read.detach())


def shows_code(net: nn.Module) -> bool:
    """Whether adversaries read a filter's code: it has a ``coded_release``."""
    return hasattr(net, "coded_release")


def seen_by(
    networks: Mapping[str, nn.Module],
    weights: Mapping[str, Weights],
    batch: Batch,
    noise: Tensor,
    *,
    filtering: bool,
    releasing: bool = True,
) -> Seen:
    """A batch's releases and what adversaries read; constants where the filter does not step.

    Without ``releasing`` the code alone is made, and stands in for the releases.
    """
    if not shows_code(networks[FILTER]):
        released = released_by(networks, weights, batch, noise, filtering=filtering)
        return Seen(released, released)
    own = weights[FILTER] if filtering else detached(weights[FILTER])
    inner = {f"net.{name}": value for name, value in own.items()}
    view = _Coded(networks[FILTER], releasing)
    read, released = functional_call(view, inner, (batch.records, noise, batch.choice))
    return Seen(released, read)


class _Coded(nn.Module):
    """A filter whose answer is its channel and its release, or its channel twice."""

    def __init__(self, net: nn.Module, releasing: bool) -> None:
        super().__init__()
        self.net, self.releasing = net, releasing

    def forward(
        self, records: Tensor, noise: Tensor, choice: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        if not self.releasing:
            code: Tensor = self.net.channel(records, noise, choice)  # type: ignore[operator]
            return code, code
        both: tuple[Tensor, Tensor] = self.net.coded_release(records, noise, choice)  # type: ignore[operator]
        return both


def draw_noise(method: Privatizer, records: int, generator: torch.Generator) -> Tensor:
    """Standard normal noise float32 [records, *noise_shape]; [records, 0] where none is needed."""
    shape = method.noise_shape if method.noise_shape else (0,)
    return torch.randn(records, *shape, generator=generator)
