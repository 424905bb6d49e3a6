"""Training the generator: post-processing of what was released, free of further privacy cost."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedlens.foundation.profile import timed
from fedlens.models import devices
from fedlens.models.generators import Generator
from fedlens.models.precision import multiplying_in
from fedlens.models.shapes import ImageShape
from fedlens.models.weights import load_vector, to_vector
from fedlens.server.config.tree import Config
from fedlens.server.generation.compute import generator_precision, training_threads
from fedlens.server.run.arrays import Arrays, optimiser_state, restore_optimiser

Loss = Callable[[Tensor, Tensor], Tensor]
FIRST_RATE = 1e-3
"""Of the optimiser before its first step; every step sets its own."""


class GeneratorTrainer:
    """A conditional generator, its moving average, and what their training needs to go on.

    Samples are drawn from the moving average. All randomness is public and comes from the run's
    seed; two trainers with equal configuration and equal losses stay equal bit for bit on one
    machine with as many threads, and on several in float32 as far as processors round alike.
    """

    def __init__(
        self, config: Config, shape: ImageShape, classes: int, threads: int | None = None
    ) -> None:
        self._settings, self._classes = config.generator, classes
        self._source = torch.Generator().manual_seed(config.seed + 1)
        self.network = Generator(
            shape, classes, config.generator.width, config.generator.latent, generator=self._source
        ).to(devices.best_device())
        self.average = copy.deepcopy(self.network).eval()
        self._steps = 0
        self.precision = generator_precision(config)
        self._threads = training_threads(config) if threads is None else threads

    @cached_property
    def _optimiser(self) -> torch.optim.Adam:
        """Made where a step is taken: PyTorch's takes seconds to load, and a probe needs none."""
        return torch.optim.Adam(
            self.network.parameters(), lr=FIRST_RATE, betas=(0.5, 0.99), foreach=True
        )

    def begin_at(self, weights: NDArray[np.float32], steps: int) -> None:
        """Start from another generator's weights, the average too, as if after ``steps`` steps."""
        load_vector(self.network, weights)
        load_vector(self.average, weights)
        self._steps = steps

    @timed("generator")
    def train(
        self,
        loss: Loss,
        *,
        steps: int,
        rate: float,
        done: int,
        planned: int,
        on_step: Callable[[int], None] | None = None,
    ) -> float:
        """Some steps against a loss; returns the mean loss, 0 for no steps.

        The learning rate falls along one cosine over ``planned`` steps, however many calls share
        them out; each task has its own cosine.

        Args:
            loss: of images [n, c, h, w] and labels int64 [n], every class equally often in blocks.
            steps: to take now.
            rate: learning rate of Adam at the first planned step; the last has a twentieth of it.
            done: planned steps that were taken before.
            planned: steps of the whole cosine.
            on_step: told the number of steps taken in this call, for a progress display.

        Raises:
            ValueError: more steps than are planned, or a count below 0.
        """
        if min(steps, done) < 0 or done + steps > planned:
            raise ValueError(f"steps={steps} after done={done} do not fit in planned={planned}")
        torch.get_num_threads()  # a new thread takes the process's number at its first look
        torch.set_num_threads(self._threads)
        labels = self._labels().to(device := devices.device_of(self.network))
        total = 0.0
        for step in range(steps):
            self._optimiser.param_groups[0]["lr"] = rate * _cosine((done + step) / planned)
            noise = torch.randn(len(labels), self.network.latent, generator=self._source)
            noise = noise.to(device)
            with multiplying_in(self.precision, noise.device):
                value = loss(self.network(noise, labels).float(), labels)
            self._optimiser.zero_grad()
            value.backward()  # type: ignore[no-untyped-call]
            self._optimiser.step()
            self._follow()
            self._steps += 1
            total += float(value.detach())
            if on_step is not None:
                on_step(step + 1)
        return total / max(1, steps)

    def _labels(self) -> Tensor:
        each = max(2, self._settings.batch // self._classes)
        return torch.arange(self._classes).repeat_interleave(each)

    @torch.no_grad()
    def _follow(self) -> None:
        # early on, follow faster: the first weights are noise
        decay = min(self._settings.averaging, (1 + self._steps) / (10 + self._steps))
        means: list[Tensor] = list(self.average.parameters())
        torch._foreach_lerp_(means, list[Tensor](self.network.parameters()), 1 - decay)
        buffers = zip(self.average.buffers(), self.network.buffers(), strict=True)
        for copied, buffer in buffers:
            copied.copy_(buffer)

    def weights(self) -> NDArray[np.float32]:
        """The training network as a flat vector, for clients that need fakes."""
        return to_vector(self.network)

    def state(self) -> Arrays:
        """All that `restore` needs to go on bit for bit."""
        return {
            "network": to_vector(self.network),
            "average": to_vector(self.average),
            "steps": np.array(self._steps),
            "source": self._source.get_state().numpy(),
            **(optimiser_state(self._optimiser) if "_optimiser" in vars(self) else {}),
        }

    def restore(self, state: Arrays) -> None:
        """Take up a state."""
        load_vector(self.network, state["network"].astype(np.float32))
        load_vector(self.average, state["average"].astype(np.float32))
        self._steps = int(state["steps"])
        self._source.set_state(torch.from_numpy(state["source"].astype(np.uint8)))
        vars(self).pop("_optimiser", None)
        if self._steps:
            restore_optimiser(self._optimiser, state)


def _cosine(share: float) -> float:
    """From 1 at ``share`` 0 down to a twentieth at 1."""
    return 0.05 + 0.95 * (1 + math.cos(math.pi * share)) / 2
