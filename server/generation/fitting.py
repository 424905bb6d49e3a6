"""A filter fitted on samples: post-processing of a private generator of pairs.

The run's generator was asked for pairs. Its samples show both attributes and no user's record, so a
filter can be trained on them for as many steps as there is patience for, and costs no privacy:
neither a round nor noise nor clipping stands between it and its adversary. What it hides in real
images rests on how like them samples are; fresh attackers on real images say how far that goes.

The filter is trained in the budget form of the objective of Bertran et al. 2019: lose as little as
possible of what a network for the classes reads, and leave an adversary at most
``privatizer.budget`` nats; where ``privatizer.distortion`` is above 0, also change images as little
as that weighs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedlens.models.shapes import ImageShape
from fedlens.models.students import StudentCnn
from fedlens.models.weights import to_vector
from fedlens.privatizers.classifiers import prior_of
from fedlens.privatizers.fitting import (
    FIRST,
    AdversaryStage,
    FitConfig,
    FittedFilter,
    LeakageEstimate,
    fit_filter,
)
from fedlens.privatizers.information import InformationPrivatizer, Objective
from fedlens.privatizers.networks.adversaries import CodeAdversary
from fedlens.privatizers.networks.design import CODE, filter_network
from fedlens.privatizers.protocol import FILTER, Batch, PrivatizerError
from fedlens.privatizers.training import Progress, Stage, train_privatizer
from fedlens.server.config.privatizer import FittedConfig, SamplesPrivatizer
from fedlens.server.config.section import require
from fedlens.server.config.tree import Config
from fedlens.server.generation.compute import training_threads
from fedlens.server.generation.sampler import Sampler, restored_filter
from fedlens.server.run.arrays import Arrays

SEED = 6_000_011
SAMPLES = 30_000
HELD = 4000
"""Further samples, by which a fresh adversary is judged."""
BATCH = 128
READING_STEPS, READING_RATE = 400, 2e-3
SERVING_STEPS, SERVING_RATE = 400, 2e-3
FITTED_OUTPUT_NOISE_STD = 0.1
"""A filter is fitted with no more output noise than this, and what an adversary reads of it is
measured with as much. More of it on release only degrades what the filter lets through (but for the
clamp to a pixel's range, which comes after both). Fitted with more, a filter need not hide what
that noise drowns in single images, and a generator of filtered images learns from sums of many."""
SHARES = (1.0, 0.1, 0.01)
"""Of the configured rates: the budget is spent by now, so a rate that was too high is lowered."""


@dataclass(frozen=True, eq=False)
class PairSamples:
    """Samples of pairs, as a privatizer's step takes them.

    Attributes:
        records: float32 [n, c, h, w].
        utility: requested classes, int64 [n].
        sensitive: requested values of the sensitive attribute, int64 [n].
    """

    records: Tensor
    utility: Tensor
    sensitive: Tensor

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.records)

    def batch(self, rows: Tensor, choice: Tensor | None = None) -> Batch:
        """The samples in ``rows``."""
        return Batch(self.records[rows], self.utility[rows], self.sensitive[rows], choice=choice)


class FilterFit:
    """A filter, and how it is trained once there is something to sample from."""

    def __init__(
        self,
        config: Config,
        settings: SamplesPrivatizer,
        shape: ImageShape,
        sensitive_classes: int,
    ) -> None:
        """Start without a filter.

        Args:
            config: the run's.
            settings: of the filter.
            shape: of an image.
            sensitive_classes: classes of the sensitive attribute.

        Raises:
            ConfigError: the budget allows an adversary to read all there is.
        """
        check_budget(settings.budget, sensitive_classes)
        self._settings = settings
        self._config, self._shape = config, shape
        self.sensitive_classes = sensitive_classes
        self._filter: nn.Module | None = None
        self._leakage: LeakageEstimate | None = None

    @classmethod
    def of(cls, config: Config, shape: ImageShape, sensitive_classes: int) -> FilterFit | None:
        """The fit of a run whose filter is made on its samples; None for every other run."""
        if not config.privatizer.on_samples:
            return None
        return cls(config, cast(SamplesPrivatizer, config.privatizer), shape, sensitive_classes)

    @property
    def network(self) -> nn.Module | None:
        """The trained filter in evaluation mode, or None before there is one."""
        return self._filter

    def fit(self, sampler: Sampler, on_step: Progress) -> None:
        """Train the filter on samples; the same one bit for bit for the same sampler.

        Args:
            sampler: of pairs (class x values + value), unfiltered.
            on_step: for a progress display.

        Raises:
            PrivatizerError: it could not be trained at any of `SHARES` of the configured rates.
        """
        torch.set_num_threads(training_threads(self._config))
        seed = self._config.seed + SEED
        samples, held = (
            self._drawn(sampler, size, seed + i) for i, size in enumerate((SAMPLES, HELD))
        )
        for share in SHARES:
            try:
                network, self._leakage = self._fitted(samples, held, seed, share, on_step)
                self._filter = restored_filter(self._config, self._shape, to_vector(network))
            except PrivatizerError:
                if share == SHARES[-1]:
                    raise
            else:
                return

    def _fitted(
        self, samples: PairSamples, held: PairSamples, seed: int, share: float, on_step: Progress
    ) -> FittedFilter:
        """A filter, trained at a share of the configured rates."""
        settings, source = self._settings, torch.Generator().manual_seed(seed)
        output_noise_std = min(settings.output_noise_std, FITTED_OUTPUT_NOISE_STD)
        network: nn.Module = filter_network(
            {**settings.model_dump(), "output_noise_std": output_noise_std}, self._shape, source
        )
        reader = _reader(samples, self._shape, source)
        task = FitTask(network, reader, samples, held, CODE, self.sensitive_classes, SERVING_STEPS)
        return fit_at(task, settings, share, seed, source, on_step)

    def _drawn(self, sampler: Sampler, count: int, seed: int) -> PairSamples:
        pairs = torch.arange(count) % sampler.classes
        return PairSamples(
            sampler.draw(pairs, seed),
            pairs // self.sensitive_classes,
            pairs % self.sensitive_classes,
        )

    def state(self) -> Arrays:
        """All that `restore` needs to go on bit for bit, and what a fresh adversary read."""
        if self._filter is None:
            return {}
        return {"mean": to_vector(self._filter), "reading": np.array(self._leakage)}

    def restore(self, state: Arrays) -> None:
        """Take up a state."""
        if "mean" in state:
            self._filter = restored_filter(self._config, self._shape, state["mean"])
            self._leakage = leakage_of(state)


def check_budget(budget: float, sensitive_classes: int) -> None:
    """Refuse a budget that lets an adversary read all there is.

    Raises:
        ConfigError: it does.
    """
    most = math.log(sensitive_classes)
    fix = (
        f"an attribute of {sensitive_classes} classes has {most:.3g} nats at most, so nothing "
        "would be hidden; give much less"
    )
    require(budget < most, "privatizer.budget", budget, fix)


@dataclass(frozen=True)
class FitTask:
    """What a filter is fitted from.

    Attributes:
        network: the filter, which has learned nothing yet.
        reader: of the utility, held still.
        samples: what is trained on.
        held: what fresh adversaries are tried on.
        code: numbers that an adversary reads.
        sensitive_classes: classes of the sensitive attribute.
        serving_steps: steps in which the filter learns to serve the reader alone.
    """

    network: nn.Module
    reader: nn.Module
    samples: PairSamples
    held: PairSamples
    code: int
    sensitive_classes: int
    serving_steps: int


def fit_at(
    task: FitTask,
    settings: FittedConfig,
    share: float,
    seed: int,
    source: torch.Generator,
    on_step: Progress,
) -> FittedFilter:
    """A filter with a short code, fitted at a share of the configured rates.

    Args:
        task: what is fitted, and on what.
        settings: of the filter.
        share: of the configured rates.
        seed: of minibatches.
        source: of the adversaries' first weights.
        on_step: for a progress display.

    Raises:
        PrivatizerError: as `fit_filter`.
    """

    def build(stage: AdversaryStage) -> InformationPrivatizer:
        return InformationPrivatizer(
            task.network,
            prior_of(task.samples.sensitive, task.sensitive_classes),
            Objective(budget=settings.budget, weight=stage.weight, distortion=settings.distortion),
            adversary=CodeAdversary(task.code, task.sensitive_classes, generator=source),
            fixed_utility=task.reader,
        )

    serve(build(FIRST), task.samples, seed, task.serving_steps)
    fit_config = FitConfig(
        budget=settings.budget,
        steps=settings.steps,
        rate=settings.rate * share,
        adversary_rate=settings.adversary_rate * share,
        batch=BATCH,
        seed=seed,
    )
    return fit_filter(build, task.samples, task.held, fit_config, on_step)


def serve(method: InformationPrivatizer, samples: PairSamples, seed: int, steps: int) -> None:
    """Bring a filter with a short code to keep the utility, before anything is hidden."""
    method.objective = replace(method.objective, budget=math.inf)
    stage = Stage("serving", {FILTER: SERVING_RATE}, steps)
    train_privatizer(method, samples, [stage], batch=BATCH, seed=seed)


def leakage_of(state: Arrays) -> LeakageEstimate | None:
    """What a fresh adversary read of the samples that a state's filter was fitted on, if any."""
    return LeakageEstimate(*state["reading"].tolist()) if "reading" in state else None


def _reader(samples: PairSamples, shape: ImageShape, source: torch.Generator) -> nn.Module:
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
