"""The generator of faithful samples: what the critics alone have taught, without guidance.

An annotator that guides the generator, and a filter that takes what it agrees with, make samples
that are good to label and to teach with. They also take out what is odd, and a fault in users' data
is odd. So people look for faults in samples of a generator that starts where guidance set in and
learns from the same released critic instead: post-processing, free of privacy cost.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedlens.models.generators import Generator
from fedlens.models.shapes import ImageShape
from fedlens.models.weights import load_vector
from fedlens.server.config.schedule import scheduled
from fedlens.server.config.tree import Config
from fedlens.server.generation.compute import faithful_threads
from fedlens.server.generation.generator import GeneratorTrainer, Loss
from fedlens.server.generation.sampler import Sampler
from fedlens.server.run.directory import RunDirectory, load_generator

FAITHFUL_TRAINER = 1_000_000
"""Added to the run's seed for the noise of these steps."""
SETTLED = 1000
"""Steps that the moving average counts as behind it: it starts at trained weights."""


@dataclass(frozen=True)
class FaithfulPlan:
    """How the generator of faithful samples comes about in a run that guides another one."""

    before: int
    """Guidance sets in after this round."""
    critics: tuple[str, ...]
    """The tasks whose losses are added up, each with weight 1: a critic that looks where the first
    samples were clips what is far from them, and the one before it does not."""
    steps: int
    rate: float
    """Learning rate at the first step; it falls along a cosine."""


def faithful_plan(config: Config, done: int) -> FaithfulPlan | None:
    """The plan after round ``done``; None where nothing has guided the generator.

    Then the generator as it is has learned from critics alone.
    """
    annotator = config.annotator
    if annotator is None or not annotator.guided_steps:
        return None
    guiding = next(task for task in scheduled(config) if task.settings is annotator)
    before = guiding.first - 1
    if not before or done < guiding.last:  # a run may end early after its annotator
        return None
    critics = config.critics
    steady = tuple(name for name, task in critics.items() if task.faithful_steps)
    last = list(critics.values())[-1:]
    steps = sum(task.faithful_steps for task in last)
    return FaithfulPlan(before, steady, steps, sum(task.generator_rate for task in last))


def train_faithful(
    config: Config,
    shape: ImageShape,
    classes: int,
    start: NDArray[np.float32] | None,
    plan: FaithfulPlan,
    loss: Loss,
    on_step: Callable[[int], None] | None = None,
) -> Generator:
    """The generator in evaluation mode; the same for equal arguments and threads, bit for bit.

    Args:
        config: the run's.
        shape: of an image.
        classes: of the generator.
        start: the generator that was kept when guidance set in, float32 [n]; None: a fresh one.
        plan: steps and rate.
        loss: the critics', of images and labels.
        on_step: told the number of steps taken.
    """
    seeded = config.model_copy(update={"seed": config.seed + FAITHFUL_TRAINER})
    trainer = GeneratorTrainer(seeded, shape, classes, faithful_threads(config))
    if start is not None:
        trainer.begin_at(start, SETTLED)
    trainer.train(
        loss, steps=plan.steps, rate=plan.rate, done=0, planned=plan.steps, on_step=on_step
    )
    return trainer.average


def faithful_sampler(directory: RunDirectory, number: int, sampler: Sampler) -> Sampler:
    """Where the faithful samples of round ``number`` come from: unguided and unfiltered.

    Args:
        directory: the run's, which keeps the generator if it is another one.
        number: the round.
        sampler: of the round's curated samples.
    """
    path = directory.faithful_path(number)
    if not path.exists():
        return sampler.unfiltered()
    network = copy.deepcopy(sampler.generator)
    load_vector(network, load_generator(path)["average"].astype(np.float32))
    return replace(sampler.unfiltered(), generator=network)
