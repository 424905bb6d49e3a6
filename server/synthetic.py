"""A filter fitted on samples: post-processing of a private generator of class and secret.

The run's generator was asked for pairs. Its samples show both attributes and nobody's record, so a
filter can be trained on them for as many steps as there is patience for, and costs no privacy:
neither a round nor noise nor clipping stands between it and its adversary. What it hides in real
images rests on how like them samples are; fresh attackers on real images say how far that goes.

The filter is trained in the budget form of paper 000's objective: lose as little as possible of
what a network for the classes reads, and leave an adversary at most ``privatizer.budget`` nats.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from client.privatizers.protocol import PrivatizerError
from client.privatizers.training import Progress
from models.shapes import ImageShape
from models.vectors import to_vector
from server.config import Config
from server.curation import Sampler, restored_filter
from server.fitting import Fitting, Reading, Samples
from server.tensors import Arrays

SEED = 6_000_011
SAMPLES = 30_000
HELD = 4000
"""Further samples, by which a fresh adversary is judged."""
SHARES = (1.0, 0.1, 0.01)
"""Of the configured rates: the budget is spent by now, so a rate that was too high is lowered."""


class SyntheticPrivatizer:
    """A filter, and how it is trained once there is something to sample from."""

    def __init__(self, config: Config, shape: ImageShape, secrets: int) -> None:
        """Start without a filter.

        Args:
            config: the run's.
            shape: of an image.
            secrets: classes of the secret.
        """
        self._config, self._shape = config, shape
        self.secrets = secrets
        self._filter: nn.Module | None = None
        self._reading: Reading | None = None

    @property
    def network(self) -> nn.Module | None:
        """The trained filter in evaluation mode, or None before there is one."""
        return self._filter

    def fit(self, sampler: Sampler, on_step: Progress) -> None:
        """Train the filter on samples; the same one bit for bit for the same sampler.

        Args:
            sampler: of pairs (class x secrets + secret), unfiltered.
            on_step: for a progress display.

        Raises:
            PrivatizerError: it could not be trained at any of `SHARES` of the configured rates.
        """
        torch.set_num_threads(self._config.generator.threads)
        seed = self._config.seed + SEED
        samples, held = (
            self._drawn(sampler, size, seed + i) for i, size in enumerate((SAMPLES, HELD))
        )
        for share in SHARES:
            fitting = Fitting(self._config, samples, held, seed, share, on_step)
            try:
                self._filter, self._reading = fitting.best()
            except PrivatizerError:
                if share == SHARES[-1]:
                    raise
            else:
                return

    def _drawn(self, sampler: Sampler, count: int, seed: int) -> Samples:
        pairs = torch.arange(count) % sampler.classes
        return Samples(sampler.draw(pairs, seed), pairs // self.secrets, pairs % self.secrets)

    def state(self) -> Arrays:
        """All that `restore` needs to go on bit for bit, and what a fresh adversary read."""
        if self._filter is None or self._reading is None:
            return {}
        return {"mean": to_vector(self._filter), "reading": np.array(self._reading)}

    def restore(self, state: Arrays) -> None:
        """Take up a state."""
        if "mean" in state:
            self._filter = restored_filter(self._config, self._shape, state["mean"])
            self._reading = reading_of(state)


def reading_of(state: Arrays) -> Reading | None:
    """What a fresh adversary read of the samples that a state's filter was fitted on, if any."""
    return Reading(*state["reading"].tolist()) if "reading" in state else None
