"""What a run learns from its releases, part by part: critics, annotator and generator.

All of it is post-processing: nothing here ever sees data, only noised sums and what follows from
them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from client.messages import Vector
from foundation.errors import FedlensError
from models.shapes import ImageShape
from privatizers.protocol import PrivatizerError
from server.config.tree import Config, ConfigError
from server.enrolment import Federation
from server.generator import GeneratorTrainer, Loss
from server.mechanism import largest_sum
from server.privatizer_fit import SyntheticPrivatizer
from server.sampler import Sampler, sampler_of
from server.schedule import Part, total_rounds
from server.tasks import FAMILIES, ServerCritic
from server.tasks.annotator import AnnotatorTrainer
from server.tasks.focused import FocusedCritic
from server.tasks.frozen import FrozenCritic
from server.tasks.privatizer import PrivatizerTrainer
from server.tensors import Arrays, under, within

FRAME_SEED = 4_000_003
FRAME_IMAGES = 5_000
"""Synthetic images that features are framed by, or a focus is taken from."""

OnStep = Callable[[int, int], None]
"""Told the number of generator steps taken in a round, and how many it has."""


class NothingLearned(FedlensError, RuntimeError):
    """A part cannot begin, for what it builds on has learned nothing."""


class Pupil(Protocol):
    """What takes in the releases of a part: the privatizer, a critic, or the annotator."""

    size: int
    """P: length of an update."""

    def apply_release(self, release: NDArray[np.float64]) -> None:
        """Take in one noised mean update."""

    def state(self) -> Arrays:
        """All that `restore` needs to go on bit for bit."""

    def restore(self, state: Arrays) -> None:
        """Take up a state."""


class Guide(Pupil, Protocol):
    """A pupil that the generator learns from."""

    def weights(self) -> Vector | None:
        """What nodes start from, if they need anything."""

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """Its part in the generator's loss."""


@dataclass(frozen=True)
class Lesson:
    """The generator's steps in one round."""

    loss: Loss
    steps: int
    rate: float
    done: int
    """Steps behind, of those planned for the part."""
    planned: int


class Learners:
    """The state of a run, and how a round's release changes it.

    Two of them with equal configuration and equal releases stay equal bit for bit.
    """

    def __init__(self, config: Config, federation: Federation, given: Vector | None = None) -> None:
        """Start with random weights from the run's seed.

        Args:
            config: the run's.
            federation: its nodes.
            given: the filter of ``privatizer.method = "given"``, float32 [n].

        Raises:
            ValueError: the run is to have a given filter and has none.
            ShapeError: no network is built for such images.
            ConfigError: the annotator or the focused critic keeps more components than there are.
        """
        self._config, shape, classes = config, federation.shape, federation.drawn_classes
        if config.privatizer.given and given is None:
            raise ValueError("without the given filter nodes would show images as they are")
        self._privatizer, self._pretrained = _privatizer(config, federation), given
        self._synthetic = _synthetic_privatizer(config, federation)
        self._trainer = GeneratorTrainer(config, shape, classes)
        self._annotator: AnnotatorTrainer | None = None
        self._guides: dict[str, Guide] = {}
        if config.warmup.rounds:  # first, for a state is restored in this order
            warmup = FrozenCritic(config, shape, classes, config.warmup)
            self._guides["warmup"] = warmup
        if config.critic.family == "focused":
            _check_focus(config, warmup.features.dim - 1)
            self._critic: ServerCritic = FocusedCritic(config, shape, classes, warmup)
        else:
            self._critic = FAMILIES[config.critic.family](config, shape, classes)
        self._guides["critic"] = self._critic
        if config.annotator.rounds:
            self._annotator = _annotator(config, shape, classes)
            self._guides["annotator"] = self._annotator

    @property
    def _pupils(self) -> dict[str, Pupil]:
        """By the name of their part, in the order of the parts."""
        first = {} if self._privatizer is None else {"privatizer": self._privatizer}
        return {**first, **self._guides}

    # What nodes are asked

    def size(self, part: Part) -> int:
        """P: length of the part's updates."""
        return self._pupils[part.name].size

    def largest_reply(self, part: Part) -> float:
        """L2 bound of a node's noised reply in record mode."""
        if part.family == "wgan":
            return self._critic.largest_change
        return largest_sum(self._config, part.settings, self.size(part))

    def prepare(self, part: Part) -> None:
        """Make a part ready for a round, from synthetic images alone.

        These are the annotator's frame, once, and where the focused critic looks, in each round.

        Raises:
            NothingLearned: the part would see images through a filter that learned from no release.
        """
        if part.name != "privatizer" and self._privatizer and not self._privatizer.ready:
            raise NothingLearned(
                "the filter learned from no release, so later parts would see images as they are: "
                "its rounds were lost; start a new run"
            )
        annotator, critic = self._annotator, self._critic
        if part.name == "annotator" and annotator is not None and not annotator.begun:
            annotator.begin(self._images()[0])
        if part.name == "critic" and isinstance(critic, FocusedCritic):
            critic.look(*self._images())

    def _images(self) -> tuple[Tensor, Tensor]:
        """Images of the present generator and their classes."""
        torch.set_num_threads(self._config.generator.threads)
        sampler = sampler_of(self._config, self._trainer.average, None)
        labels = torch.arange(FRAME_IMAGES) % sampler.classes
        return sampler.draw(labels, self._config.seed + FRAME_SEED), labels

    def weights(self, part: Part) -> dict[str, Vector]:
        """What nodes start from in a part that `prepare` began."""
        if self._pretrained is not None:
            return {**self._guide_weights(part), "filter": self._pretrained}
        if self._privatizer is None:
            return self._guide_weights(part)
        if part.name == "privatizer":
            return self._privatizer.weights()
        return {**self._guide_weights(part), "filter": self._privatizer.filter_weights()}

    def _guide_weights(self, part: Part) -> dict[str, Vector]:
        weights = self._guides[part.name].weights()
        if weights is None:
            return {}
        if part.name == "annotator":
            return {"annotator": weights}
        if part.family == "focused":
            return {"critic": weights}
        return {"critic": weights, "generator": self._trainer.weights()}

    # Post-processing

    def learn(
        self, part: Part, number: int, release: NDArray[np.float64] | None, on_step: OnStep
    ) -> dict[str, float]:
        """Take in a round's release and train the generator; returns the round's figures.

        Args:
            part: the round's.
            number: the round.
            release: what was released, or None where it was lost: then nothing is taken in.
            on_step: for a progress display.
        """
        if release is not None:
            self._pupils[part.name].apply_release(release)
        if part.name == "privatizer" and self._privatizer is not None:
            on_step(1, 1)
            return self._privatizer.figures()
        lesson = self._lesson(part, number)
        if not lesson.steps:
            on_step(1, 1)
            return {}
        mean = self._trainer.train(
            lesson.loss,
            steps=lesson.steps,
            rate=lesson.rate,
            done=lesson.done,
            planned=lesson.planned,
            on_step=lambda step: on_step(step, lesson.steps),
        )
        return {"generator_loss": mean}

    def _lesson(self, part: Part, number: int) -> Lesson:
        config, behind = self._config, number - part.first
        if part.name == "warmup":
            steps, rate, loss = config.warmup.steps, config.warmup.rate, self._guides["warmup"].loss
            return Lesson(loss, steps, rate, steps * behind, steps * part.rounds)
        if part.name == "critic":
            steps, rate = config.generator.steps, config.generator.rate
            return Lesson(self._criticism, steps, rate, steps * behind, steps * part.rounds)
        guides = number == part.last and self._annotator is not None and self._annotator.ready
        steps = config.annotator.guided_steps if guides else 0
        return Lesson(self._guided, steps, config.generator.guided_rate, 0, steps)

    def _criticism(self, images: Tensor, labels: Tensor) -> Tensor:
        """The critic's loss, beside that of the warm-up's where there was one."""
        loss, weight = self._critic.loss(images, labels), self._config.warmup.weight
        if "warmup" in self._guides and weight:
            loss = loss + weight * self._guides["warmup"].loss(images, labels)
        return loss

    def _guided(self, images: Tensor, labels: Tensor) -> Tensor:
        # every other image is enough of a hint, and the annotator's features are the dear part
        crossed = self._guides["annotator"].loss(images[::2], labels[::2])
        return self._criticism(images, labels) + self._config.annotator.weight * crossed

    def sampler(self, done: int) -> Sampler:
        """Where samples come from after round ``done``.

        The annotator is their filter once all rounds are done, unless all its releases were lost.
        """
        sampler, hidden = self._unhidden(done), self._synthetic
        if hidden is None:
            return sampler
        return replace(
            sampler, privatizer=hidden.network, sensitive_classes=hidden.sensitive_classes
        )

    def showable(self, part: Part) -> bool:
        """Whether samples may be stored in a part: there are some, and they hide what they must."""
        return part.name != "privatizer" and not self.unhidden

    @property
    def unhidden(self) -> bool:
        """Whether samples wait for a filter that is yet to be trained on them."""
        return self._synthetic is not None and self._synthetic.network is None

    def hide(self, done: int, on_step: OnStep) -> None:
        """Train the filter on the samples after round ``done``, where they wait for one.

        Raises:
            NothingLearned: no rate was low enough.
        """
        if self._synthetic is None:
            return
        try:
            self._synthetic.fit(self._unhidden(done), on_step)
        except PrivatizerError as error:
            raise NothingLearned(f"no filter could be trained: {error}") from None

    def _unhidden(self, done: int) -> Sampler:
        annotator = self._annotator
        usable = annotator is not None and annotator.ready and done >= total_rounds(self._config)
        network = annotator.network if annotator is not None and usable else None
        return sampler_of(self._config, self._trainer.average, network)

    # State

    def state(self) -> Arrays:
        """All that `restore` needs to go on bit for bit."""
        arrays = under("generator", self._trainer.state())
        for name, pupil in self._pupils.items():
            arrays |= under(name, pupil.state())
        if self._synthetic is not None:
            arrays |= under("privatizer", self._synthetic.state())
        if self._pretrained is not None:
            arrays |= under("privatizer", {"mean": self._pretrained})
        return arrays

    def restore(self, arrays: Arrays) -> None:
        """Take up a state."""
        self._trainer.restore(within("generator", arrays))
        for name, pupil in self._pupils.items():
            pupil.restore(within(name, arrays))
        if self._synthetic is not None:
            self._synthetic.restore(within("privatizer", arrays))


def _privatizer(config: Config, federation: Federation) -> PrivatizerTrainer | None:
    if not config.privatizer.rounds:
        return None
    try:
        return PrivatizerTrainer(
            config, federation.shape, federation.classes, federation.sensitive_classes
        )
    except PrivatizerError as error:
        raise ConfigError(f"[privatizer] cannot be used: {error}") from None


def _synthetic_privatizer(config: Config, federation: Federation) -> SyntheticPrivatizer | None:
    if not config.privatizer.synthetic:
        return None
    most, given = math.log(federation.sensitive_classes), config.privatizer.budget
    if given >= most:
        raise ConfigError(
            f"privatizer.budget = {given!r} cannot be used: an attribute "
            f"of {federation.sensitive_classes} classes has {most:.3g} nats at most, so nothing would be hidden; give much less"
        )
    return SyntheticPrivatizer(config, federation.shape, federation.sensitive_classes)


def _check_focus(config: Config, features: int) -> None:
    given = config.critic.components
    if given > features:
        raise ConfigError(
            f"critic.components = {given!r} cannot be used: there are {features} features, give "
            "fewer"
        )


def _annotator(config: Config, shape: ImageShape, classes: int) -> AnnotatorTrainer:
    try:
        return AnnotatorTrainer(config, shape, classes)
    except ValueError as error:
        given = config.annotator.components
        raise ConfigError(f"annotator.components = {given!r} cannot be used: {error}") from None
