"""How a filter is fitted on samples: against one adversary after another, until a fresh one fails.

A filter and its adversary chase each other, and the adversary loses: it goes on looking where the
sensitive attribute was. So what it says of the filter it was trained against means little. Before
every later stage a fresh adversary learns what the filter, held still, lets through. It reads
samples that nothing was trained on; that reading says whether the stage is needed, and of several
filters which one to keep.

The first stage begins gently. A filter that starts near the identity leaks everything, and the
square of that at its full weight is worth so much more than all else that the filter first learns
to release nothing; what it lets through afterwards is a code of specks that networks can read and
people cannot. Where the weight rises while the filter learns, it finds what it may keep of the
image.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedlens.privatizers.classifiers import prior_of
from fedlens.privatizers.information import ADVERSARY, InformationPrivatizer
from fedlens.privatizers.protocol import (
    FILTER,
    PrivatizerError,
    draw_noise,
    named_weights,
    seen_by,
)
from fedlens.privatizers.training import Progress, Records, Stage, train_privatizer

CHUNK = 500
JUDGE_RATE = 2e-3
"""Adam's, of an adversary that says what is left: no setting may make it blind."""
LAST_RATE = 0.1
GENTLE, EASING = 0.01, 0.5
"""Share of its weight that the excess over the budget has at the beginning of the first stage,
and the share of that stage's steps over which the weight rises, geometrically, to its own."""


@dataclass(frozen=True)
class AdversaryStage:
    """Training of the filter against one adversary.

    Attributes:
        meeting: steps of the adversary alone, before.
        share: steps of the filter, as a share of `FitConfig.steps`.
        turns: steps of the adversary for each of the filter: it must not lag behind.
        slowness: share of the filter's rate.
        weight: of the squared excess over the budget.
    """

    meeting: int
    share: float
    turns: int
    slowness: float
    weight: float


FIRST = AdversaryStage(60, 1.0, 3, 1.0, 100.0)
LATER = AdversaryStage(600, 0.5, 4, 0.25, 1000.0)
MOST = 3
"""Later stages, at most."""

Build = Callable[[AdversaryStage], InformationPrivatizer]
"""The method for the filter as it is by now, with an adversary that knows nothing yet."""
Easing = Callable[[InformationPrivatizer, int], None]
"""Changes a method's objective after so many steps."""


@dataclass(frozen=True)
class FitConfig:
    """How long and how fast is trained.

    Attributes:
        budget: nats that a fresh adversary may read.
        steps: of the filter in the first stage.
        rate: Adam's, of the filter in the first stage.
        adversary_rate: of the adversaries, while the filter steps.
        batch: records of a minibatch.
        seed: decides minibatches and noise.
    """

    budget: float
    steps: int
    rate: float
    adversary_rate: float
    batch: int
    seed: int


class LeakageEstimate(NamedTuple):
    """What an adversary that learned afresh reads of filtered records that it has not seen.

    Attributes:
        nats: H(S) less its cross-entropy: a lower bound on what the filter leaves of the sensitive
            attribute.
        share: of records whose sensitive value it says right.
    """

    nats: float
    share: float


class FittedFilter(NamedTuple):
    """A trained filter in evaluation mode, and what a fresh adversary reads of it."""

    network: nn.Module
    leakage: LeakageEstimate


def fit_filter(
    build: Build,
    data: Records,
    held: Records,
    fit_config: FitConfig,
    on_step: Progress | None = None,
) -> FittedFilter:
    """Train a filter by the budget form of the information objective, against several adversaries.

    Args:
        build: gives the method for each stage, always of one and the same filter.
        data: what is trained on.
        held: what nothing is trained on; fresh adversaries are tried on it.
        fit_config: how long and how fast.
        on_step: for a progress display.

    Returns:
        Of the filters after each stage, the one that a fresh adversary reads least of.

    Raises:
        PrivatizerError: the held part lacks a class of the sensitive attribute, or before there is
            any filter a loss, a filter or a reading is no number.
    """
    return _Fitting(build, data, held, fit_config, on_step).best()


class _Fitting:
    def __init__(
        self,
        build: Build,
        data: Records,
        held: Records,
        fit_config: FitConfig,
        on_step: Progress | None,
    ) -> None:
        self._build, self._data, self._held = build, data, held
        self._fit_config, self._on_step = fit_config, on_step
        self._later = max(1, round(LATER.share * fit_config.steps))
        first, later = FIRST.meeting + fit_config.steps, LATER.meeting + self._later
        self._trained, self._planned = 0, first + MOST * later + LATER.meeting
        self._found: list[FittedFilter] = []

    def best(self) -> FittedFilter:
        method = self._build(FIRST)
        prior_of(self._held.batch(torch.arange(len(self._held))).sensitive, len(method.log_prior))
        stages = self._meeting(FIRST), self._releasing(FIRST, self._fit_config.steps)
        self._train(method, *stages, easing=self._ease)
        try:
            self._judge_and_go_on()
        except PrivatizerError:
            if not self._found:
                raise
        self._progress(self._planned)
        # below 0 a reading says no more than 0 does
        return min(self._found, key=lambda fitted: (max(fitted.leakage.nats, 0), fitted.leakage[1]))

    def _judge_and_go_on(self) -> None:
        while True:
            method = self._build(LATER)
            self._train(method, self._meeting(LATER, JUDGE_RATE))
            self._found.append(FittedFilter(_kept(method), self._leakage(method)))
            if self._found[-1].leakage.nats <= self._fit_config.budget or len(self._found) > MOST:
                return
            self._train(method, self._releasing(LATER, self._later))

    def _train(
        self, method: InformationPrivatizer, *stages: Stage, easing: Easing | None = None
    ) -> None:
        before, fit_config = self._trained, self._fit_config

        def after(step: int, _: int = 0) -> None:
            if easing is not None:
                easing(method, step)
            self._progress(before + step)

        after(0)
        train_privatizer(
            method,
            self._data,
            stages,
            batch=fit_config.batch,
            seed=fit_config.seed + before,
            progress=after,
        )
        self._trained += sum(stage.steps for stage in stages)

    def _ease(self, method: InformationPrivatizer, step: int) -> None:
        """Give the excess the weight that it has after so many steps of the first stage."""
        risen = max(0, step - FIRST.meeting) / (EASING * self._fit_config.steps)
        weight = FIRST.weight * GENTLE ** (1 - min(risen, 1.0))
        method.objective = replace(method.objective, weight=weight)

    def _progress(self, done: int) -> None:
        if self._on_step is not None:
            self._on_step(done, self._planned)

    def _meeting(self, stage: AdversaryStage, rate: float | None = None) -> Stage:
        rates = {ADVERSARY: self._fit_config.adversary_rate if rate is None else rate}
        return Stage("meeting", rates, stage.meeting, last_rate=LAST_RATE)

    def _releasing(self, stage: AdversaryStage, length: int) -> Stage:
        fit_config = self._fit_config
        rates = {FILTER: fit_config.rate * stage.slowness, ADVERSARY: fit_config.adversary_rate}
        return Stage("releasing", rates, length, stage.turns, last_rate=LAST_RATE, together=True)

    @torch.no_grad()
    def _leakage(self, method: InformationPrivatizer) -> LeakageEstimate:
        """What the method's adversary reads of the held part, each record with noise of its own."""
        source = torch.Generator().manual_seed(self._fit_config.seed)
        held, guesses = [], []
        for rows in torch.split(torch.arange(len(self._held)), CHUNK):
            part = self._held.batch(rows)
            noise, weights = draw_noise(method, len(rows), source), named_weights(method.networks)
            seen = seen_by(method.networks, weights, part, noise, filtering=False, releasing=False)
            guesses.append(F.log_softmax(method.networks[ADVERSARY](seen.read), 1))
            held.append(part.sensitive)
        sensitive, said = torch.cat(held), torch.cat(guesses)
        left = _entropy(sensitive, said.shape[1]) - float(F.nll_loss(said, sensitive))
        if not math.isfinite(left):
            raise PrivatizerError("an adversary's answers are no numbers; lower the filter's rate")
        return LeakageEstimate(left, float((said.argmax(1) == sensitive).double().mean()))


def _kept(method: InformationPrivatizer) -> nn.Module:
    network = copy.deepcopy(method.networks[FILTER]).eval().requires_grad_(False)
    if not all(bool(torch.isfinite(value).all()) for value in network.parameters()):
        raise PrivatizerError("the filter's weights are no numbers; lower the filter's rate")
    return network


def _entropy(sensitive: Tensor, classes: int) -> float:
    prior = prior_of(sensitive, classes)
    return float(-(prior * prior.log()).sum())
