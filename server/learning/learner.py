"""What a run learns from its releases: its tasks' states, and the generator.

All of it is post-processing: nothing here ever sees data, only noised sums and what follows from
them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedlens.client.messages import Vector
from fedlens.foundation.memory import give_back_memory
from fedlens.foundation.profile import span
from fedlens.models.annotators import Annotator
from fedlens.models.generators import Generator
from fedlens.privatizers.protocol import PrivatizerError
from fedlens.server.config import needs
from fedlens.server.config.schedule import ScheduledTask, scheduled, total_rounds
from fedlens.server.config.tree import Config
from fedlens.server.federation.enrolment import Federation
from fedlens.server.generation.compute import training_threads
from fedlens.server.generation.fitting import FilterFit
from fedlens.server.generation.generator import GeneratorTrainer, Loss
from fedlens.server.generation.sampler import Sampler, sampler_of
from fedlens.server.learning.privatizer import KEPT, RunFilter
from fedlens.server.learning.unguided import faithful_plan, train_faithful
from fedlens.server.run.arrays import Arrays, under, within
from fedlens.server.tasks import server_task
from fedlens.server.tasks.protocol import NothingLearned, ServerTask, TaskContext, TaskRequest

FRAME_SEED = 4_000_003
FRAME_IMAGES = 5_000
"""Synthetic images that features are framed by, or a focus is taken from, at most."""
FRAME_PLACES = FRAME_IMAGES * 44 * 44
"""Pixels of all of them, channels as one: of larger images there are fewer, so that they take no
more memory."""

KeptGenerator = Callable[[int], NDArray[np.float32] | None]
OnStep = Callable[[int, int], None]
"""Told the number of generator steps taken in a round, and how many it has."""


class Learner:
    """The state of a run, and how a round's release changes it.

    Two of them with equal configuration and equal releases stay equal bit for bit.
    """

    def __init__(
        self, config: Config, federation: Federation, pretrained: Vector | None = None
    ) -> None:
        """Start with random weights from the run's seed.

        Args:
            config: the run's.
            federation: its nodes.
            pretrained: the filter of ``privatizer.kind = "pretrained"``, float32 [n].

        Raises:
            ValueError: the run is to have a pretrained filter and has none.
            ShapeError: no network is built for such images.
            ConfigError: a task's settings do not fit the federation's data.
        """
        self._config, shape, classes = config, federation.shape, federation.drawn_classes
        self._frame_images = min(FRAME_IMAGES, FRAME_PLACES // (shape[1] * shape[2]))
        self._trainer = GeneratorTrainer(config, shape, classes)
        self._tasks: dict[str, ServerTask] = {}
        partly = config.data.partly_labelled
        for name, task in config.planned.items():
            named = partly and task.reads_labels
            self._tasks[name] = server_task(
                TaskContext(
                    config=config,
                    name=name,
                    shape=shape,
                    classes=federation.classes if named else classes,
                    record_classes=federation.classes if named or not partly else 1,
                    sensitive_classes=federation.sensitive_classes,
                    generator_weights=self._trainer.weights,
                    earlier=dict(self._tasks),
                )
            )
        self._filter = RunFilter(config, self._tasks, pretrained)
        self._pretrained = pretrained
        self._fit = FilterFit.of(config, shape, federation.sensitive_classes)
        labelling = config.providers(needs.LABELS)
        self._labelling = self._tasks[labelling[0]] if labelling else None

    # What nodes are asked

    @property
    def computed_by(self) -> dict[str, str]:
        """How nodes compute tasks that leave a choice, by the tasks' names."""
        found = {name: task.computed_by for name, task in self._tasks.items()}
        return {name: words for name, words in found.items() if words}

    def task(self, scheduled: ScheduledTask) -> ServerTask:
        """The state of a scheduled task."""
        return self._tasks[scheduled.name]

    def prepare(self, scheduled: ScheduledTask) -> None:
        """Make a task ready for a round, from synthetic images alone.

        Raises:
            NothingLearned: it would see images through a filter that learned from no release.
        """
        task = self.task(scheduled)
        self._filter.check(task)
        task.prepare(self._samples)

    def _samples(self) -> tuple[Tensor, Tensor]:
        """Images of the present generator and their classes."""
        torch.set_num_threads(training_threads(self._config))
        sampler = sampler_of(self._config, self._trainer.average, None)
        labels = torch.arange(self._frame_images) % sampler.classes
        return sampler.draw(labels, self._config.seed + FRAME_SEED), labels

    def asked(self, scheduled: ScheduledTask) -> TaskRequest:
        """What nodes are asked in the round that `prepare` began."""
        task = self.task(scheduled)
        request = task.request()
        weights = {**request.weights, **self._filter.weights(task)}
        return replace(request, weights=weights, filter=self._filter.settings(task))

    # Post-processing

    def learn(
        self,
        scheduled: ScheduledTask,
        number: int,
        release: NDArray[np.float64] | None,
        on_step: OnStep,
    ) -> dict[str, float]:
        """Take in a round's release and train the generator; returns the round's figures.

        Args:
            scheduled: the round's task.
            number: the round.
            release: what was released, or None where it was lost: then nothing is taken in.
            on_step: for a progress display.
        """
        task = self.task(scheduled)
        figures = {} if release is None else dict(task.apply_release(release))
        if number == scheduled.last:
            figures.update(task.fit(on_step))
        planned = task.generator_steps(number - scheduled.first + 1)
        if planned is None:
            on_step(1, 1)
            return figures
        mean = self._trainer.train(
            self._loss_of(scheduled.name),
            steps=planned.steps,
            rate=planned.rate,
            done=planned.done,
            planned=planned.planned,
            on_step=lambda step: on_step(step, planned.steps),
        )
        give_back_memory()  # what training left would be added to what comes next
        return {**figures, "generator_loss": mean}

    def moves_the_generator(self, scheduled: ScheduledTask, number: int) -> bool:
        """Whether the generator trains in round ``number``."""
        return self.task(scheduled).generator_steps(number - scheduled.first + 1) is not None

    def _loss_of(self, name: str) -> Loss:
        """The task's loss beside those of the tasks before it, the latest of them first."""
        names = list(self._tasks)
        earlier = [self._tasks[other] for other in reversed(names[: names.index(name)])]
        weighed = [task for task in earlier if task.later_weight]

        def loss(images: Tensor, labels: Tensor) -> Tensor:
            with span(f"generator: {name}"):
                own = self._tasks[name].loss(images, labels)
            if not weighed:
                return own
            with span("generator: earlier tasks"):
                others = weighed[0].later_weight * weighed[0].loss(images, labels)
                for task in weighed[1:]:
                    others = others + task.later_weight * task.loss(images, labels)
            return own + others

        return loss

    def sampler(self, done: int) -> Sampler:
        """Where samples come from after round ``done``.

        The annotator is their filter once all rounds are done, unless all its releases were lost.
        """
        sampler, fit = self._unhidden(done), self._fit
        if fit is None:
            return sampler
        return replace(sampler, privatizer=fit.network, sensitive_classes=fit.sensitive_classes)

    def faithful(self, done: int, kept: KeptGenerator, on_step: OnStep) -> Generator | None:
        """The generator of faithful samples after round ``done``; None: the one there is.

        Args:
            done: rounds that are done.
            kept: gives the last generator that was kept up to a round, float32 [n], if any.
            on_step: for a progress display.
        """
        if not self.has_faithful(done):
            return None
        return self.train_faithful(kept, on_step)

    def has_faithful(self, done: int) -> bool:
        """Whether after round ``done`` faithful samples come from a generator of their own."""
        return faithful_plan(self._config, done) is not None and self._labeller is not None

    def settles_faithful(self, done: int) -> bool:
        """Whether no round after ``done`` changes what that generator is made of."""
        plan = faithful_plan(self._config, total_rounds(self._config))
        if plan is None or self._fit is not None or done < plan.before:
            return False
        critics = [task for task in scheduled(self._config) if task.name in plan.critics]
        return all(task.last <= plan.before for task in critics)

    def train_faithful(self, kept: KeptGenerator, on_step: OnStep) -> Generator:
        """The generator of faithful samples, from what its critics have learned so far.

        It changes nothing that a round of another task reads, so it may run beside such rounds.
        """
        plan = faithful_plan(self._config, total_rounds(self._config))
        if plan is None:
            raise ValueError("nothing guides this run's generator: it has no faithful one")
        critics, network = [self._tasks[name] for name in plan.critics], self._trainer.network

        def loss(images: Tensor, labels: Tensor) -> Tensor:
            return torch.stack([task.loss(images, labels) for task in critics]).sum()

        return train_faithful(
            self._config,
            network.shape,
            network.classes,
            kept(plan.before),
            plan,
            loss,
            lambda step: on_step(step, plan.steps),
        )

    def showable(self, scheduled: ScheduledTask) -> bool:
        """Whether samples may be stored: there are some, and they hide what they must."""
        return self.task(scheduled).shows and not self.unhidden

    @property
    def unhidden(self) -> bool:
        """Whether samples wait for a filter that is yet to be trained on them."""
        return self._fit is not None and self._fit.network is None

    def hide(self, done: int, on_step: OnStep) -> None:
        """Train the filter on the samples after round ``done``, where they wait for one.

        Raises:
            NothingLearned: no rate was low enough.
        """
        if self._fit is None:
            return
        try:
            self._fit.fit(self._unhidden(done), on_step)
        except PrivatizerError as error:
            raise NothingLearned(f"no filter could be trained: {error}") from None

    def _unhidden(self, done: int) -> Sampler:
        labeller = self._labeller if done >= total_rounds(self._config) else None
        return sampler_of(self._config, self._trainer.average, labeller)

    @property
    def _labeller(self) -> Annotator | None:
        """The label model, where the run has one that learned anything."""
        return None if self._labelling is None else self._labelling.labeller()

    def signal(self) -> NDArray[np.float64] | None:
        """`ServerTask.signal` of the last critic that has one: the generator learned from it."""
        known = [self._tasks[name].signal() for name in self._config.critics]
        return next((found for found in reversed(known) if found is not None), None)

    def labelling_signal(self) -> NDArray[np.float64] | None:
        """`ServerTask.signal` of the task that labels."""
        return None if self._labelling is None else self._labelling.signal()

    # State

    def state(self) -> Arrays:
        """All that `restore` needs to go on bit for bit."""
        arrays = under("generator", self._trainer.state())
        for name, task in self._tasks.items():
            arrays |= under(f"tasks/{name}", task.state())
        if self._fit is not None:
            arrays |= under("filter", self._fit.state())
        if self._pretrained is not None:
            arrays[KEPT] = self._pretrained
        return arrays

    def restore(self, arrays: Arrays) -> None:
        """Take up a state."""
        self._trainer.restore(within("generator", arrays))
        for name, task in self._tasks.items():
            task.restore(within(f"tasks/{name}", arrays))
        if self._fit is not None:
            self._fit.restore(within("filter", arrays))
