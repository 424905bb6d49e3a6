"""What a task does on the server: the Protocol that every kind keeps, and what it is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel
from torch import Tensor

from fedlens.client.messages import Vector
from fedlens.foundation.errors import FedlensError
from fedlens.models.shapes import ImageShape
from fedlens.privatizers.training import Progress
from fedlens.server.config.tasks import TaskConfig
from fedlens.server.config.tree import Config
from fedlens.server.run.arrays import Arrays

Samples = Callable[[], tuple[Tensor, Tensor]]
"""Images [n, c, h, w] of the present generator, and their classes int64 [n]."""
Found = TypeVar("Found")


class NothingLearned(FedlensError, RuntimeError):
    """A task cannot begin, for what it builds on has learned nothing."""


@dataclass(frozen=True)
class Request:
    """What nodes are asked in a task's round, besides its mechanism."""

    settings: BaseModel
    """The task's typed settings, as its class on the node reads them."""
    weights: Mapping[str, Vector] = field(default_factory=dict)


@dataclass(frozen=True)
class GeneratorSteps:
    """The generator's training in one round."""

    steps: int
    rate: float
    """Learning rate at the first planned step; it falls along a cosine."""
    done: int
    """Steps behind, of those planned for the task."""
    planned: int


class ServerTask(Protocol):
    """A task's state over its rounds. All of it is post-processing of releases.

    Two tasks with equal context and equal releases stay equal bit for bit.
    """

    size: int
    """P: length of an update."""
    largest_reply: float
    """L2 norm that no sound reply of a node in record mode exceeds."""
    later_weight: float
    """Weight of its loss beside those of later tasks."""
    shows: bool
    """Whether samples may be stored in its rounds."""

    def prepare(self, samples: Samples) -> None:
        """Make ready for a round, from synthetic images alone; called before every round."""

    def request(self) -> Request:
        """What nodes are asked in the round that `prepare` began."""

    def apply_release(self, release: NDArray[np.float64]) -> Mapping[str, float]:
        """Take in one noised mean update, float64 [P]; returns figures of the round, if any."""

    def generator_steps(self, number: int) -> GeneratorSteps | None:
        """How the generator trains after the task's round ``number``, from 1; None: not at all."""

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """What it adds to the generator's loss, of images and labels in blocks of equal size."""

    def state(self) -> Arrays:
        """All that `restore` needs to go on bit for bit."""

    def restore(self, state: Arrays) -> None:
        """Take up a state; earlier tasks' come first."""


@runtime_checkable
class EngineTask(Protocol):
    """What a task has beside that whose users' steps nodes can compute in several ways."""

    @property
    def computed_by(self) -> str:
        """The engine and the type of its products, in words; empty where nothing was chosen."""


@runtime_checkable
class FilterTask(Protocol):
    """What a task has beside that whose releases make the run's filter."""

    @property
    def lacking(self) -> str:
        """What it cannot begin without, in words; empty for nothing."""

    @property
    def ready(self) -> bool:
        """Whether the filter has learned from at least one release."""

    def filter_weights(self) -> Vector:
        """The filter as it travels in the requests of all later tasks, float32 [n]."""


@runtime_checkable
class FittingTask(Protocol):
    """What a task has beside that which fits something once its last round is over."""

    def fit(self, on_step: Progress) -> Mapping[str, float]:
        """Fit on all releases there were; returns figures, none where there was no release."""


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

    def latest(self, kind: type[Found]) -> Found:
        """The last earlier task of a class.

        Raises:
            LookupError: there is none.
        """
        found = [task for task in self.earlier.values() if isinstance(task, kind)]
        if not found:
            raise LookupError(f"no {kind.__name__} comes before the task {self.name!r}")
        return found[-1]


class CriticSteps:
    """What critics have in common: the generator learns from each release."""

    shows = True
    _settings: Any

    @property
    def later_weight(self) -> float:
        """Weight of its loss beside those of later tasks."""
        return float(self._settings.later_weight)

    def prepare(self, samples: Samples) -> None:
        """Nothing: it builds on no samples."""

    def generator_steps(self, number: int) -> GeneratorSteps:
        """As many steps after each round, along one cosine over all of them."""
        steps, rounds = self._settings.generator_steps, self._settings.rounds
        rate = self._settings.generator_rate
        return GeneratorSteps(steps, rate, steps * (number - 1), steps * rounds)


def settings_of(task: TaskConfig, kind: type[BaseModel], **more: Any) -> BaseModel:
    """A task's settings as its class on the node reads them: the fields that both have."""
    shared = {name: getattr(task, name) for name in kind.model_fields if hasattr(task, name)}
    return kind(**{**shared, **more})
