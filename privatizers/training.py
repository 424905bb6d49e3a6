"""Training a privatizer on one machine: adversaries learn, then the filter steps.

For records that one machine may hold: a study's, where a method is measured apart from its
federation and the data is in no budget, or samples of a private generator. Bit-reproducible for
equal arguments on one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedlens.privatizers.classifiers import noise_shape_of
from fedlens.privatizers.protocol import (
    FILTER,
    Batch,
    Privatizer,
    PrivatizerError,
    draw_noise,
    named_weights,
)

Progress = Callable[[int, int], None]
"""Called with the iterations done and the iterations of all stages."""
OnStep = Callable[[int, Tensor], None]
"""Called after each iteration with its number and the filter step's scalars (detached; empty where
the filter rests)."""
Change = Callable[[Batch, torch.Generator], Batch]
"""Changes a minibatch before it is used, say by shifting images."""


class Records(Protocol):
    """What minibatches are drawn from."""

    @property
    def records(self) -> Tensor:
        """Float32 [n, ...]."""

    def __len__(self) -> int:
        """N."""

    def batch(self, rows: Tensor, choice: Tensor | None = None) -> Batch:
        """The records in int64 ``rows`` with their labels, and whether each is to be hidden."""


@dataclass(frozen=True)
class Stage:
    """A stage of training.

    Attributes:
        name: what it is for.
        rates: the networks that learn, each with Adam's learning rate; the others stay as they are.
        steps: iterations; in each the adversaries step, then the filter once.
        per_releaser_step: steps of the adversaries in an iteration, each on a fresh minibatch.
        last_rate: share of each learning rate that is left at the end, reached along a line.
        together: the filter steps on the adversaries' last minibatch and beside them, not after
            them: nearly twice as fast where there is one step of theirs.

    Raises:
        PrivatizerError: on a rate, or a number of steps, that is not positive.
    """

    name: str
    rates: Mapping[str, float]
    steps: int
    per_releaser_step: int = 1
    last_rate: float = 1.0
    together: bool = False

    def __post_init__(self) -> None:
        if not self.rates or not all(rate > 0 for rate in self.rates.values()):
            raise PrivatizerError(f"stage {self.name!r}: give networks learning rates above 0")
        if self.steps < 1 or self.per_releaser_step < 1 or not 0 <= self.last_rate <= 1:
            raise PrivatizerError(
                f"stage {self.name!r}: steps={self.steps}, per_releaser_step="
                f"{self.per_releaser_step}: at least 1; last_rate={self.last_rate}: in [0, 1]"
            )


def train_privatizer(
    method: Privatizer,
    data: Records,
    stages: Sequence[Stage],
    *,
    batch: int,
    seed: int,
    choice: Tensor | None = None,
    change: Change | None = None,
    progress: Progress | None = None,
    on_step: OnStep | None = None,
) -> None:
    """Train the method's networks in place, stage by stage, each with fresh optimisers.

    Args:
        method: whose networks learn.
        data: the train part; minibatches are drawn from it with replacement.
        stages: what happens, in order.
        batch: records of a minibatch.
        seed: decides minibatches, noise and changes.
        choice: float32 [n, 1], 1 where a record's owner wants that sensitive attribute hidden.
        change: applied to every minibatch.
        progress: called after each iteration.
        on_step: called after each iteration with the filter's scalars.

    Raises:
        PrivatizerError: a stage names a network the method has not, the batch is not positive, or
            a loss stops being a number.
    """
    _check(method, stages, batch)
    source = _Minibatches(method, data, batch, torch.Generator().manual_seed(seed), choice, change)
    total, done = sum(stage.steps for stage in stages), 0
    for stage in stages:
        training = _StageTraining(method, stage)
        for step in range(stage.steps):
            training.set_rates(1 - (1 - stage.last_rate) * step / stage.steps)
            scalars = _iterate(training, source, stage)
            done += 1
            if progress is not None:
                progress(done, total)
            if on_step is not None:
                on_step(done, scalars)


def train_identity(
    net: nn.Module, data: Records, *, steps: int, rate: float, batch: int, seed: int
) -> float:
    """Bring a filter near the identity before its method trains it (Bertran et al. 2019, 7.3).

    Args:
        net: a filter; it learns in place to answer with its record, whatever the noise.
        data: the train part.
        steps: minibatches.
        rate: Adam's learning rate.
        batch: records of a minibatch.
        seed: decides minibatches and noise.

    Returns:
        The root of the last minibatch's mean squared error.
    """
    generator = torch.Generator().manual_seed(seed)
    adam = torch.optim.Adam(net.parameters(), lr=rate)
    shape = noise_shape_of(net)
    error = torch.zeros(())
    for _ in range(steps):
        rows = torch.randint(len(data), (batch,), generator=generator)
        noise = torch.randn(batch, *(shape or (0,)), generator=generator)
        released = net(data.records[rows], noise)
        error = F.mse_loss(released, data.records[rows]).clamp_min(1e-12).sqrt()
        adam.zero_grad(set_to_none=True)
        error.backward()  # type: ignore[no-untyped-call]
        adam.step()
    return float(error.detach())


def _iterate(training: _StageTraining, source: _Minibatches, stage: Stage) -> Tensor:
    """One iteration; gives the scalars of its last step."""
    scalars = torch.zeros(0)
    for networks in training.turns:
        scalars = training.step(networks, *source.draw())
    return scalars


@dataclass(frozen=True, eq=False)
class _Minibatches:
    method: Privatizer
    data: Records
    size: int
    generator: torch.Generator
    choice: Tensor | None
    change: Change | None

    def draw(self) -> tuple[Batch, Tensor]:
        rows = torch.randint(len(self.data), (self.size,), generator=self.generator)
        bits = None if self.choice is None else self.choice[rows]
        batch = self.data.batch(rows, choice=bits)
        if self.change is not None:
            batch = self.change(batch, self.generator)
        return batch, draw_noise(self.method, len(batch.records), self.generator)


class _StageTraining:
    """A stage's networks with their optimiser."""

    def __init__(self, method: Privatizer, stage: Stage) -> None:
        self.method, self.stage = method, stage
        self.turns = _turns(stage)
        self._adam = torch.optim.Adam(
            [
                {"params": list(method.networks[name].parameters()), "lr": rate}
                for name, rate in stage.rates.items()
            ]
        )

    def set_rates(self, share: float) -> None:
        for group, rate in zip(self._adam.param_groups, self.stage.rates.values(), strict=True):
            group["lr"] = rate * share

    def step(self, networks: Sequence[str], batch: Batch, noise: Tensor) -> Tensor:
        """One step of these networks on a batch; the others' parameters stay as they are."""
        weights = named_weights(self.method.networks)
        filtering = FILTER in networks
        losses, scalars = self.method.local_step(weights, batch, noise, filtering=filtering)
        self._check_losses(networks, losses)
        own = [value for name in networks for value in weights[name].values()]
        # A loss depends on other networks through constants only: the sum's gradient is each one's.
        loss = torch.stack([losses[name] for name in networks]).sum()
        self._adam.zero_grad(set_to_none=True)
        for value, gradient in zip(own, torch.autograd.grad(loss, own), strict=True):
            value.grad = gradient
        self._adam.step()
        return scalars

    def _check_losses(self, networks: Sequence[str], losses: Mapping[str, Tensor]) -> None:
        for name in networks:
            if not torch.isfinite(losses[name]):
                raise PrivatizerError(
                    f"stage {self.stage.name!r}: the loss of {name} is {float(losses[name])}; "
                    f"lower its rate of {self.stage.rates[name]:g}"
                )


def _turns(stage: Stage) -> list[list[str]]:
    """Who steps on each minibatch of an iteration."""
    adversaries = [name for name in stage.rates if name != FILTER]
    turns = [adversaries] * stage.per_releaser_step if adversaries else []
    if FILTER not in stage.rates:
        return turns
    if stage.together and turns:
        return [*turns[:-1], [*adversaries, FILTER]]
    return [*turns, [FILTER]]


def _check(method: Privatizer, stages: Sequence[Stage], batch: int) -> None:
    if batch < 1:
        raise PrivatizerError(f"batch={batch} must be at least 1")
    for stage in stages:
        strange = sorted(set(stage.rates) - set(method.networks))
        if strange:
            raise PrivatizerError(
                f"stage {stage.name!r} names {', '.join(strange)}; "
                f"the method's networks are {', '.join(method.networks)}"
            )
