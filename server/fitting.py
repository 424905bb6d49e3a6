"""How a filter is fitted on samples: against one adversary after another, until a fresh one fails.

A filter and its adversary chase each other, and the adversary loses: it goes on looking where the
secret was. So what it says of the filter it was trained against means little. Before every later
stretch a fresh adversary learns what the filter, held still, lets through. It reads samples that
nobody trained on; that reading says whether the stretch is needed, and of several filters which one
to keep.
"""

from __future__ import annotations

import copy
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from client.privatizers.information import SECRET, InformationPrivatizer, Objective
from client.privatizers.networks import prior_of
from client.privatizers.protocol import FILTER, Batch, PrivatizerError, draw_noise
from client.privatizers.training import Progress, Stage, train_identity, train_privatizer
from models.classifiers import ConvClassifier, JointReaders, Mlp
from models.players import filter_network
from models.shapes import ImageShape
from models.students import StudentCnn
from models.vectors import to_vector
from server.config import Config

BATCH, CHUNK = 128, 500
READING_STEPS, READING_RATE = 400, 2e-3
COPYING_STEPS, COPYING_RATE = 400, 3e-3
LAST_RATE = 0.1


@dataclass(frozen=True)
class Stretch:
    """Training of the filter against one adversary.

    Attributes:
        meeting: steps of the adversary alone, before.
        share: steps of the filter, as a share of ``privatizer.steps``.
        turns: steps of the adversary for each of the filter: it must not lag behind.
        pace: share of the filter's rate.
        weight: of the squared excess over the budget.
    """

    meeting: int
    share: float
    turns: int
    pace: float
    weight: float


FIRST = Stretch(60, 1.0, 3, 1.0, 100.0)
LATER = Stretch(600, 0.5, 4, 0.25, 1000.0)
MOST = 3
"""Later stretches, at most. An adversary that has followed a filter for long looks where the secret
was; a fresh one, before a later stretch, finds where it is now, and says whether one is needed."""


class Reading(NamedTuple):
    """What an adversary that learned afresh reads of filtered samples that it has not seen.

    Attributes:
        nats: H(S) less its cross-entropy: a lower bound on what the filter leaves of the secret.
        share: of samples whose secret it says right.
    """

    nats: float
    share: float


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


class Fitting:
    """One filter from its start to the last adversary that is needed."""

    def __init__(
        self,
        config: Config,
        samples: Samples,
        held: Samples,
        seed: int,
        share: float,
        on_step: Progress,
    ) -> None:
        settings = config.privatizer
        self._settings, self._samples, self._held = settings, samples, held
        self._seed, self._share, self._on_step = seed, share, on_step
        self._shape: ImageShape = tuple(samples.records.shape[1:])  # type: ignore[assignment]
        self._secrets = int(samples.secret.max()) + 1
        self._source = torch.Generator().manual_seed(seed)
        self._network = filter_network(asdict(settings), self._shape, self._source)
        train_identity(
            self._network,
            samples,
            steps=COPYING_STEPS,
            rate=COPYING_RATE,
            batch=BATCH,
            seed=seed,
        )
        self._reader = _reader(samples, self._shape, self._source)
        self._trained, self._planned = 0, 0

    def best(self) -> tuple[nn.Module, Reading]:
        """The filter of which a fresh adversary reads least, and what it reads.

        Raises:
            PrivatizerError: a loss, or the filter itself, is no number.
        """
        length = self._settings.steps
        later = max(1, round(LATER.share * length))
        self._planned = FIRST.meeting + length + MOST * (LATER.meeting + later) + LATER.meeting
        method = self._method(FIRST)
        self._train(method, self._meeting(FIRST), self._releasing(FIRST, length))
        found: list[tuple[float, nn.Module, Reading]] = []
        while True:
            method = self._method(LATER)
            self._train(method, self._meeting(LATER))
            reading = self._reading(method)
            found.append((reading.nats, self._kept(), reading))
            if reading.nats <= self._settings.budget or len(found) > MOST:
                break
            self._train(method, self._releasing(LATER, later))
        self._on_step(self._planned, self._planned)
        _, network, reading = min(found, key=lambda item: item[0])
        return network, reading

    def _train(self, method: InformationPrivatizer, *stages: Stage) -> None:
        before = self._trained
        train_privatizer(
            method,
            self._samples,
            stages,
            batch=BATCH,
            seed=self._seed + before,
            progress=lambda step, _: self._on_step(before + step, self._planned),
        )
        self._trained += sum(stage.steps for stage in stages)

    def _meeting(self, stretch: Stretch) -> Stage:
        rate = self._settings.adversary_rate * self._share
        return Stage("meeting", {SECRET: rate}, stretch.meeting, last_rate=LAST_RATE)

    def _releasing(self, stretch: Stretch, length: int) -> Stage:
        rate = self._settings.rate * self._share * stretch.pace
        players = {FILTER: rate, SECRET: self._settings.adversary_rate * self._share}
        return Stage(
            "releasing", players, length, stretch.turns, last_rate=LAST_RATE, together=True
        )

    def _method(self, stretch: Stretch) -> InformationPrivatizer:
        """The method for the filter as it is by now, with an adversary that knows nothing yet."""
        shape, secrets, source = self._shape, self._secrets, self._source
        return InformationPrivatizer(
            self._network,
            prior_of(self._samples.secret, secrets),
            Objective(budget=self._settings.budget, weight=stretch.weight),
            secret=JointReaders(
                StudentCnn(shape, secrets, generator=source),
                ConvClassifier(shape, secrets, generator=source),
                Mlp(self._samples.records[0].numel(), secrets, generator=source),
            ),
            fixed_use=self._reader,
        )

    @torch.no_grad()
    def _reading(self, method: InformationPrivatizer) -> Reading:
        held, generator = self._held, torch.Generator().manual_seed(self._seed)
        noise = draw_noise(method, len(held), generator)
        answers = [
            F.log_softmax(method.players[SECRET](method.filter(part, drawn)), 1)
            for part, drawn in zip(
                torch.split(held.records, CHUNK), torch.split(noise, CHUNK), strict=True
            )
        ]
        guesses = torch.cat(answers)
        known = prior_of(held.secret, self._secrets)
        entropy = float(-(known * known.log()).sum())
        right = (guesses.argmax(1) == held.secret).double().mean()
        return Reading(entropy - float(F.nll_loss(guesses, held.secret)), float(right))

    def _kept(self) -> nn.Module:
        network = copy.deepcopy(self._network).eval().requires_grad_(False)
        if not np.isfinite(to_vector(network)).all():
            raise PrivatizerError("the filter's weights are no numbers; lower privatizer.rate")
        return network


def _reader(samples: Samples, shape: ImageShape, source: torch.Generator) -> nn.Module:
    """A network that reads the class of samples."""
    network = StudentCnn(shape, int(samples.utility.max()) + 1, generator=source)
    adam = torch.optim.Adam(network.parameters(), lr=READING_RATE)
    for _ in range(READING_STEPS):
        rows = torch.randint(len(samples), (BATCH,), generator=source)
        loss = F.cross_entropy(network(samples.records[rows]), samples.utility[rows])
        adam.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        adam.step()
    return network.eval()
