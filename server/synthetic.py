"""A filter fitted on samples: post-processing of a private generator of class and secret.

The run's generator was asked for pairs. Its samples show both attributes and nobody's record, so a
filter can be trained on them for as many steps as there is patience for, and costs no privacy:
neither a round nor noise nor clipping stands between it and its adversary. What it hides in real
images rests on how like them samples are; fresh attackers on real images say how far that goes.

The filter is trained in the budget form of paper 000's objective: lose as little as possible of
what a network for the classes reads, and leave an adversary at most ``privatizer.budget`` nats.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from client.privatizers.information import SECRET, InformationPrivatizer, Objective
from client.privatizers.networks import prior_of
from client.privatizers.protocol import FILTER, Batch, PrivatizerError
from client.privatizers.training import Progress, Stage, train_identity, train_privatizer
from models.classifiers import JointReaders, Mlp
from models.players import filter_network
from models.shapes import ImageShape
from models.students import StudentCnn
from models.vectors import to_vector
from server.config import Config
from server.curation import Sampler, restored_filter
from server.tensors import Arrays

SEED = 6_000_011
SAMPLES = 30_000
BATCH = 128
BUDGET_WEIGHT = 100.0
"""Of the squared excess over the budget."""
READING_STEPS, READING_RATE = 400, 2e-3
COPYING_STEPS, COPYING_RATE = 400, 3e-3
MEETING_STEPS = 60
ADVERSARY_STEPS = 3
"""Of the adversary for each of the filter: it must not lag behind."""
LAST_RATE = 0.1
SHARES = (1.0, 0.1, 0.01)
"""Of the configured rates: the budget is spent by now, so a rate that was too high is lowered."""


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples of pairs, as a privatizer's step takes them.

    Attributes:
        records: float32 [n, c, h, w].
        utility: requested classes, int64 [n].
        secret: requested secrets, int64 [n].
    """

    records: Tensor
    utility: Tensor
    secret: Tensor

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.records)

    def batch(self, rows: Tensor, choice: Tensor | None = None) -> Batch:
        """The samples in ``rows``."""
        return Batch(self.records[rows], self.utility[rows], self.secret[rows], choice=choice)


class SyntheticPrivatizer:
    """A filter, and how it is trained once there is something to sample from."""

    def __init__(self, config: Config, shape: ImageShape, classes: int, secrets: int) -> None:
        """Start without a filter.

        Args:
            config: the run's.
            shape: of an image.
            classes: of the records.
            secrets: classes of the secret.
        """
        self._config, self._shape = config, shape
        self._classes, self.secrets = classes, secrets
        self._filter: nn.Module | None = None

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
        pairs = torch.arange(SAMPLES) % sampler.classes
        drawn = sampler.draw(pairs, seed)
        samples = Samples(drawn, pairs // self.secrets, pairs % self.secrets)
        for share in SHARES:
            try:
                self._filter = self._trained_on(samples, seed, share, on_step)
            except PrivatizerError:
                if share == SHARES[-1]:
                    raise
            else:
                return

    def _trained_on(
        self, samples: Samples, seed: int, share: float, on_step: Progress
    ) -> nn.Module:
        """A filter, trained at a share of the configured rates."""
        settings, method = self._config.privatizer, self._method(samples, seed)
        adversary = {SECRET: settings.adversary_rate * share}
        stages = [
            Stage("meeting", adversary, MEETING_STEPS),
            Stage(
                "releasing",
                {FILTER: settings.rate * share, **adversary},
                settings.steps,
                ADVERSARY_STEPS,
                last_rate=LAST_RATE,
                together=True,
            ),
        ]
        train_privatizer(method, samples, stages, batch=BATCH, seed=seed, progress=on_step)
        network = method.players[FILTER].eval().requires_grad_(False)
        if not np.isfinite(to_vector(network)).all():
            raise PrivatizerError("the filter's weights are no numbers; lower privatizer.rate")
        return network

    def _method(self, samples: Samples, seed: int) -> InformationPrivatizer:
        source = torch.Generator().manual_seed(seed)
        network: nn.Module = filter_network(asdict(self._config.privatizer), self._shape, source)
        train_identity(
            network, samples, steps=COPYING_STEPS, rate=COPYING_RATE, batch=BATCH, seed=seed
        )
        return InformationPrivatizer(
            network,
            prior_of(samples.secret, self.secrets),
            Objective(budget=self._config.privatizer.budget, weight=BUDGET_WEIGHT),
            secret=JointReaders(
                StudentCnn(self._shape, self.secrets, generator=source),
                Mlp(samples.records[0].numel(), self.secrets, generator=source),
            ),
            fixed_use=_reader(samples, self._shape, self._classes, source),
        )

    def state(self) -> Arrays:
        """All that `restore` needs to go on bit for bit."""
        return {} if self._filter is None else {"mean": to_vector(self._filter)}

    def restore(self, state: Arrays) -> None:
        """Take up a state."""
        if "mean" in state:
            self._filter = restored_filter(self._config, self._shape, state["mean"])


def _reader(
    samples: Samples, shape: ImageShape, classes: int, source: torch.Generator
) -> nn.Module:
    """A network that reads the class of samples."""
    network = StudentCnn(shape, classes, generator=source)
    adam = torch.optim.Adam(network.parameters(), lr=READING_RATE)
    for _ in range(READING_STEPS):
        rows = torch.randint(len(samples), (BATCH,), generator=source)
        loss = F.cross_entropy(network(samples.records[rows]), samples.utility[rows])
        adam.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        adam.step()
    return network.eval()
