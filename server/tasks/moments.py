"""Moments of images on the server: the noised sums that a filter is fitted on, and the filter."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional as F

from fedlens.client.messages import Vector
from fedlens.client.tasks.settings import MomentsSettings
from fedlens.models.classifiers import Mlp
from fedlens.models.weights import to_vector
from fedlens.privatizers.fitting import FittedFilter, LeakageEstimate
from fedlens.privatizers.networks.design import filter_network, spectral_filter
from fedlens.privatizers.networks.spectral import LowFrequencies
from fedlens.privatizers.pair_moments import PairGaussians, width_of
from fedlens.privatizers.protocol import PrivatizerError
from fedlens.privatizers.training import Progress
from fedlens.server.config import needs
from fedlens.server.config.mechanism import denominator, release_deviation
from fedlens.server.config.privatizer import SumsPrivatizer
from fedlens.server.generation.compute import training_threads
from fedlens.server.generation.fitting import (
    BATCH,
    SHARES,
    FitTask,
    PairSamples,
    check_budget,
    fit_at,
    leakage_of,
)
from fedlens.server.generation.sampler import restored_filter
from fedlens.server.run.arrays import Arrays
from fedlens.server.tasks.frequencies import FrequenciesTask
from fedlens.server.tasks.protocol import NothingLearned, ServerTask, TaskContext, TaskRequest

# A filter fitted on features drawn from released moments: post-processing of noised sums.
#
# The features of each pair of class and attribute are drawn from the Gaussian that the release
# says they have. A filter that sees these features of an image and nothing else can be trained on
# them for as many steps, and against as many fresh adversaries, as there is patience for. What it
# hides in real images rests on how like Gaussians their features are: attackers say how far that
# goes.

SEED = 7_000_003
SAMPLES = 30_000
HELD = 4000
"""Further features, by which a fresh adversary is judged."""
READER_HIDDEN = (128, 64)
READING_STEPS, READING_RATE = 1000, 2e-3
SERVING_STEPS = 800


def fit_on_moments(
    settings: SumsPrivatizer,
    features: LowFrequencies,
    known: PairGaussians,
    classes: tuple[int, int],
    seed: int,
    on_step: Progress,
) -> FittedFilter:
    """A filter; the same one bit for bit for the same arguments.

    Args:
        settings: of the filter.
        features: what it sees of an image, centred and scaled.
        known: what images' features are like, pair by pair (class x values + value).
        classes: of the utility, and of the sensitive attribute.
        seed: the run's.
        on_step: for a progress display.

    Raises:
        PrivatizerError: it could not be trained at any of `SHARES` of the configured rates.
    """
    source = torch.Generator().manual_seed(seed + SEED)
    samples, held = (
        drawn_samples(features, known, size, classes[1], source) for size in (SAMPLES, HELD)
    )
    reader = _reader(samples, features, classes[0], source)
    for share in SHARES:
        network = spectral_filter(settings.model_dump(), features, source)
        task = FitTask(network, reader, samples, held, network.coded, classes[1], SERVING_STEPS)
        try:
            return fit_at(task, settings, share, seed + SEED, source, on_step)
        except PrivatizerError:
            if share == SHARES[-1]:
                raise
    raise PrivatizerError("there is no rate to fit at")


def drawn_samples(
    features: LowFrequencies,
    known: PairGaussians,
    count: int,
    values: int,
    source: torch.Generator,
) -> PairSamples:
    """Smooth images that have drawn features, with the labels that these were drawn for."""
    drawn, pairs = known.draw(count, source)
    return PairSamples(features.images(drawn), pairs // values, pairs % values)


def _reader(
    samples: PairSamples, features: LowFrequencies, classes: int, source: torch.Generator
) -> nn.Module:
    """A network that reads the class of drawn images; its rate falls to a tenth along a line."""
    network = Mlp(math.prod(features.shape), classes, READER_HIDDEN, generator=source)
    adam = torch.optim.Adam(network.parameters(), lr=READING_RATE)
    for step in range(READING_STEPS):
        adam.param_groups[0]["lr"] = READING_RATE * (1 - 0.9 * step / READING_STEPS)
        rows = torch.randint(len(samples), (BATCH,), generator=source)
        adam.zero_grad(set_to_none=True)
        loss = F.cross_entropy(network(samples.records[rows]), samples.utility[rows])
        torch.autograd.backward(loss)
        adam.step()
    return network.eval()


class MomentsTask(ServerTask):
    """A release is the noised mean of users' `contribution`, flattened; several are averaged.

    Raises:
        ConfigError: the budget allows an adversary to read all there is.
        ShapeError: the frequencies that are asked for are not in such images.
    """

    def __init__(self, context: TaskContext) -> None:
        super().__init__(context)
        self._config, self._shape = context.config, context.shape
        self._privatizer = cast(SumsPrivatizer, context.config.privatizer)
        self._frequencies: FrequenciesTask = context.provider(needs.SCALES)
        self._classes, self._values = context.record_classes, context.sensitive_classes
        check_budget(self._privatizer.budget, self._values)
        self._features = LowFrequencies(context.shape, self._privatizer.highest_frequency)
        self._pairs = self._classes * self._values
        self.size = self._pairs * width_of(self._features.size)
        self._sum, self._releases = np.zeros(self.size), 0
        self._filter: nn.Module | None = None
        self._leakage: LeakageEstimate | None = None

    @property
    def lacking(self) -> str:
        """What it cannot begin without; empty for nothing."""
        return "" if self._frequencies.ready else "the release that says where frequencies lie"

    @property
    def ready(self) -> bool:
        """Whether there is a filter."""
        return self._filter is not None

    def request(self) -> TaskRequest:
        """Which features, and which attribute a record's pair is with."""
        asked = MomentsSettings(
            highest_frequency=self._privatizer.highest_frequency,
            sensitive_attribute=self._privatizer.sensitive_attribute,
        )
        return TaskRequest(asked, self._frequencies.frame())

    def apply_release(self, release: NDArray[np.float64]) -> Mapping[str, float]:
        """Average a release in; equal noise makes the plain mean the best estimate."""
        self._sum += release
        self._releases += 1
        return {}

    def fit(self, on_step: Progress) -> Mapping[str, float]:
        """Fit the filter on what was released; the same one bit for bit for the same releases.

        Returns:
            What a fresh adversary reads of drawn features: no figure of privacy. Nothing where
            there was no release.

        Raises:
            NothingLearned: no filter could be fitted at any rate.
        """
        if not self._releases:
            return {}
        torch.set_num_threads(training_threads(self._config))
        for name, value in self._frequencies.frame().items():
            getattr(self._features, name).copy_(torch.from_numpy(value))
        try:
            network, self._leakage = fit_on_moments(
                self._privatizer,
                self._features,
                self.gaussians(),
                (self._classes, self._values),
                self._config.seed,
                on_step,
            )
        except PrivatizerError as error:
            raise NothingLearned(f"no filter could be fitted: {error}") from None
        self._filter = restored_filter(self._config, self._shape, to_vector(network))
        return {"sensitive_read_nats": self._leakage.nats}

    def gaussians(self) -> PairGaussians:
        """What the mean of all releases tells of features."""
        users = denominator(self._config, self._settings)
        total = torch.from_numpy(self._sum / self._releases * users)
        deviation = release_deviation(self._config, self._settings) * users
        return PairGaussians.of(
            total.view(self._pairs, -1), self._features.size, deviation / self._releases**0.5
        )

    def filter_weights(self) -> Vector:
        """The filter as it travels in the requests of all later tasks, float32 [n].

        One that has learned nothing where there is none yet: audits ask for it, and no run does
        (`fedlens.server.learning.privatizer.RunFilter.check`).
        """
        if self._filter is None:
            return to_vector(filter_network(self._privatizer.model_dump(), self._shape))
        return to_vector(self._filter)

    def state(self) -> Arrays:
        """Sum and number of the releases, and the filter with what a fresh adversary read."""
        found = {"sum": self._sum.copy(), "releases": np.array(self._releases)}
        if self._filter is None:
            return found
        return {**found, "mean": to_vector(self._filter), "reading": np.array(self._leakage)}

    def restore(self, state: Arrays) -> None:
        """Take up a state."""
        self._sum = state["sum"].astype(np.float64)
        self._releases = int(state["releases"])
        if "mean" in state:
            self._filter = restored_filter(self._config, self._shape, state["mean"])
            self._leakage = leakage_of(state)
