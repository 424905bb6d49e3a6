"""What a task does on the server: the base of every kind, and what it is given."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel
from torch import Tensor

from fedlens.client.messages import FilterSettings, Vector
from fedlens.foundation.errors import FedlensError
from fedlens.models.annotators import Annotator
from fedlens.models.shapes import ImageShape
from fedlens.privatizers.training import Progress
from fedlens.server.config.tasks import TaskConfig
from fedlens.server.config.tree import Config
from fedlens.server.run.arrays import Arrays

Samples = Callable[[], tuple[Tensor, Tensor]]
"""Images [n, c, h, w] of the present generator, and their classes int64 [n]."""


class NothingLearned(FedlensError, RuntimeError):
    """A task cannot begin, for what it builds on has learned nothing."""


@dataclass(frozen=True)
class TaskRequest:
    """What nodes are asked in a task's round, besides its mechanism."""

    settings: BaseModel
    """The task's typed settings, as its class on the node reads them."""
    weights: Mapping[str, Vector] = field(default_factory=dict)
    filter: FilterSettings | None = None
    """The filter that nodes look through, whose weights are ``filter``: the run's, not the task's.
    """


@dataclass(frozen=True)
class GeneratorSteps:
    """The generator's training in one round."""

    steps: int
    rate: float
    """Learning rate at the first planned step; it falls along a cosine."""
    done: int
    """Steps behind, of those planned for the task."""
    planned: int


class ServerTask(ABC):
    """A task's state over its rounds. All of it is post-processing of releases.

    Two tasks with equal context and equal releases stay equal bit for bit. A kind has to say its
    `size`, what it asks, what it makes of a release, and its state; what else it may do besides
    does nothing where a kind does not say.
    """

    size: int
    """P: length of an update."""
    largest_reply: float = math.inf
    """L2 norm that no sound reply of a node in record mode exceeds."""
    later_weight: float = 0.0
    """Weight of its loss beside those of later tasks."""
    shows: bool = False
    """Whether samples may be stored in its rounds."""
    computed_by: str = ""
    """How nodes compute users' steps, in words; empty where they have no choice."""

    def __init__(self, context: TaskContext) -> None:
        """Begin without a release.

        Raises:
            ConfigError: its settings do not fit the federation's data.
            ShapeError: no network is built for such images.
        """
        self._settings: Any = context.settings

    def prepare(self, samples: Samples) -> None:  # noqa: B027 - few kinds need it
        """Make ready for a round, from synthetic images alone; called before every round."""

    @abstractmethod
    def request(self) -> TaskRequest:
        """What nodes are asked in the round that `prepare` began."""

    @abstractmethod
    def apply_release(self, release: NDArray[np.float64]) -> Mapping[str, float]:
        """Take in one noised mean update, float64 [P]; returns figures of the round, if any."""

    @abstractmethod
    def state(self) -> Arrays:
        """All that `restore` needs to go on bit for bit."""

    @abstractmethod
    def restore(self, state: Arrays) -> None:
        """Take up a state; earlier tasks' come first."""

    # What the generator learns from it

    def generator_steps(self, number: int) -> GeneratorSteps | None:
        """How the generator trains after the task's round ``number``, from 1; None: not at all."""
        return None

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """What it adds to the generator's loss, of images and labels in blocks of equal size."""
        return images.new_zeros(())

    # What later tasks and samples build on

    @property
    def lacking(self) -> str:
        """What it cannot begin without, in words; empty for nothing."""
        return ""

    @property
    def ready(self) -> bool:
        """Whether what it provides has learned from at least one release."""
        return True

    def fit(self, on_step: Progress) -> Mapping[str, float]:
        """Fit something on all releases there were, once its last round is over.

        Returns:
            Figures, none where there was no release.
        """
        return {}

    def signal(self) -> NDArray[np.float64] | None:
        """By class: of how far it lies from the mean of all, what share is no noise.

        Returns:
            Shares float64 [classes] in [0, 1]; None where no classes' means were released.
        """
        return None

    def filter_weights(self) -> Vector:
        """The filter as it travels in the requests of all later tasks, float32 [n].

        Raises:
            NotImplementedError: it is of a kind whose settings do not provide a filter.
        """
        raise NotImplementedError("a task that provides a filter gives its weights")

    def labeller(self) -> Annotator | None:
        """The label model that its releases taught; None where it has, or provides, none."""
        return None


@dataclass(frozen=True)
class TaskContext:
    """What a task of a run may build on."""

    config: Config
    name: str
    shape: ImageShape
    """Of an image."""
    classes: int
    """Of the generator: the records', or pairs of class and sensitive attribute."""
    record_classes: int
    """Of the records."""
    sensitive_classes: int
    """Of the sensitive attribute; 0 where none is read."""
    generator_weights: Callable[[], Vector]
    """The generator's present weights, flat."""
    earlier: Mapping[str, ServerTask] = field(default_factory=dict)
    """The tasks before it, by name, in their order."""

    @property
    def settings(self) -> Any:
        """The task's own settings, of its kind's class."""
        return self.config.tasks[self.name]

    def provider(self, need: str) -> Any:
        """The last earlier task that provides something, see `fedlens.server.config.needs`.

        Raises:
            LookupError: there is none.
        """
        found = [n for n in self.earlier if need in self.config.tasks[n].provides]
        if not found:
            raise LookupError(f"no task before {self.name!r} provides {need}")
        return self.earlier[found[-1]]


class CriticTask(ServerTask):
    """What critics have in common: the generator learns from each release."""

    shows = True

    def __init__(self, context: TaskContext) -> None:
        """Take the weight of its loss from the settings."""
        super().__init__(context)
        self.later_weight = float(self._settings.later_weight)

    def generator_steps(self, number: int) -> GeneratorSteps:
        """As many steps after each round, along one cosine over all of them."""
        steps, rounds = self._settings.generator_steps, self._settings.rounds
        rate = self._settings.generator_rate
        return GeneratorSteps(steps, rate, steps * (number - 1), steps * rounds)


def settings_of(task: TaskConfig, kind: type[BaseModel], **more: Any) -> BaseModel:
    """A task's settings as its class on the node reads them: the fields that both have."""
    shared = {name: getattr(task, name) for name in kind.model_fields if hasattr(task, name)}
    return kind(**{**shared, **more})
