"""Synthetic samples of a run: some after its rounds, and what is released of it once it is over.

All of it is post-processing of releases that are paid for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from fedlens.accountant.account import Spending
from fedlens.foundation.profile import timed
from fedlens.models.generators import Generator
from fedlens.models.weights import to_vector
from fedlens.server.config.schedule import total_rounds
from fedlens.server.config.tree import Config
from fedlens.server.generation.compute import faithful_threads, has_spare_cores
from fedlens.server.generation.sampler import Sampler, kept_arrays
from fedlens.server.learning.fidelity import fidelity_of
from fedlens.server.learning.learner import Learner
from fedlens.server.learning.unguided import faithful_sampler
from fedlens.server.ledger.run_ledger import RunLedger
from fedlens.server.round.observer import FinishedRound, RunObserver
from fedlens.server.round.publication import Publication
from fedlens.server.round.sealed import Attendance
from fedlens.server.round.status import ProgressDisplay
from fedlens.server.run.arrays import digest_of
from fedlens.server.run.directory import RunDirectory, load_generator
from fedlens.store import Purpose, RunStatus

# Work that goes on in a thread of its own beside the rounds, where a core is free for it.

JUDGED, LEAST_JUDGED = 1000, 20
"""Samples by which a run's fidelity is told, and of each class at least."""
FIDELITY_SEED = 7_000_003

Made = TypeVar("Made")
OnStep = Callable[[int, int], None]
"""Told steps that are done, and how many there are."""
LOOK = 0.2
"""Seconds from one look at how far it is to the next."""


class BackgroundTraining(Generic[Made]):
    """What a function makes, begun now and asked for later.

    Guarantees: what it makes is what the function makes in the caller's own thread, as long as it
    reads nothing that changes meanwhile; an error is raised where the result is asked for; after
    `stop` the thread is over.

    Args:
        make: told whom to tell of its steps; that call is also where it is stopped.
    """

    def __init__(self, make: Callable[[OnStep], Made]) -> None:
        self._make, self._stopped = make, threading.Event()
        self._steps = 0, 1
        self._made: list[Made] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="fedlens-background", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            self._made.append(self._make(self._told))
        except _Stopped:
            pass
        except BaseException as error:  # raised where the result is asked for
            self._error = error

    def _told(self, step: int, steps: int) -> None:
        self._steps = step, steps
        if self._stopped.is_set():
            raise _Stopped

    @timed("generator")
    def result(self, on_step: OnStep) -> Made:
        """Wait for what is made; ``on_step`` is told how far it is.

        Raises:
            RuntimeError: it was stopped.
        """
        while self._thread.is_alive():
            self._thread.join(LOOK)
            on_step(*self._steps)
        if self._error is not None:
            raise self._error
        if not self._made:
            raise RuntimeError("it was stopped before it was done")
        return self._made[0]

    def stop(self) -> None:
        """End it after its present step, and wait for that; nothing where it is over."""
        self._stopped.set()
        self._thread.join()


class _Stopped(Exception):
    """The result is asked for no more."""


class SampleReleases(RunObserver):
    """Draws samples of the generator and has them published.

    The generator of faithful samples trains beside the rounds to come as soon as nothing that it
    is made of changes any more, where a core is free for it. It is the same as if it were trained
    after them.
    """

    def __init__(
        self,
        config: Config,
        directory: RunDirectory,
        learner: Learner,
        publication: Publication,
        ledger: RunLedger,
        display: ProgressDisplay,
    ) -> None:
        """Prepare.

        Args:
            config: the run's.
            directory: keeps the generators that samples are drawn from.
            learner: has the generator.
            publication: takes the samples.
            ledger: says what the run spent.
            display: is told of the steps of the generator of faithful samples.
        """
        self._every, self._threads = config.release.every, faithful_threads(config)
        self._rounds, self._seed = total_rounds(config), config.seed
        self._directory, self._learner = directory, learner
        self._publication, self._ledger, self._display = publication, ledger, display
        self._last: FinishedRound | None = None
        self._training: BackgroundTraining[Generator] | None = None

    def begin(self, rounds: Sequence[FinishedRound]) -> None:
        """Publish samples of the last round again: a killed process may have left them out."""
        if rounds:
            self._publish_progress(rounds[-1])
        self._train_ahead(len(rounds))

    def finish_round(
        self, round_: FinishedRound, attendance: Attendance, spending: Spending
    ) -> None:
        """Publish samples of the round, where some are due."""
        self._publish_progress(round_)
        self._train_ahead(round_.number)

    def finish_rounds(self) -> None:
        """Publish the curated samples of the whole run, and its faithful ones."""
        if self._last is not None and self._learner.showable(self._last.task):
            number, spending = self._last.number, self._ledger.published()
            faithful = self._faithful_sampler(number)
            fidelity = self._fidelity(faithful)
            self._publish_samples("curated", number, spending, fidelity)
            if faithful is not None:
                sha256 = digest_of({"average": to_vector(faithful.generator)})
                self._publication.samples("faithful", number, faithful, sha256, spending, fidelity)

    def end(self, status: RunStatus, reason: str | None, spending: Spending) -> None:
        """Have no thread go on."""
        if self._training is not None:
            self._training.stop()

    def _publish_progress(self, round_: FinishedRound) -> None:
        self._last, number = round_, round_.number
        if not self._learner.showable(round_.task):
            return
        moved = self._learner.moves_the_generator(round_.task, number)
        if (moved and number % self._every == 0) or number == round_.task.last:
            self._publish_samples("strip", number, self._ledger.spending())

    def _publish_samples(
        self,
        purpose: Purpose,
        number: int,
        spending: Spending,
        fidelity: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        sampler = self._learner.sampler(number)
        sha256 = self._directory.save_generator(number, kept_arrays(sampler))
        self._publication.checkpoint(number, sha256)
        self._publication.samples(purpose, number, sampler, sha256, spending, fidelity)

    # Samples that show faults

    def _faithful_sampler(self, number: int) -> Sampler | None:
        """Of samples that show faults; None where a filter, trained on others, hides something.

        A run that is resumed finds the generator that it trained before.
        """
        sampler = self._learner.sampler(number)
        if sampler.privatizer is not None:
            return None
        if not self._directory.faithful_path(number).exists():
            made = self._train_faithful(number)
            if made is not None:
                self._directory.save_faithful(number, to_vector(made))
        return faithful_sampler(self._directory, number, sampler)

    def _fidelity(self, faithful: Sampler | None) -> dict[str, float]:
        """How far the run's samples can be trusted, as `fidelity_of`."""
        if faithful is None:
            return {}
        signal, own = self._learner.signal(), self._learner.labelling_signal()
        labels = torch.arange(faithful.classes)
        if faithful.annotator is None or signal is None:
            return fidelity_of(signal, None, labels, None)
        labels = labels.repeat(max(LEAST_JUDGED, JUDGED // faithful.classes))
        drawn = faithful.judged(labels, self._seed + FIDELITY_SEED)
        return fidelity_of(signal, own, labels, drawn.found)

    def _train_faithful(self, number: int) -> Generator | None:
        def show(step: int, steps: int) -> None:
            self._display.show_step(number, step / steps)

        if self._training is None or not self._learner.has_faithful(number):
            return self._learner.faithful(number, self._load_generator, show)
        return self._training.result(show)

    def _train_ahead(self, done: int) -> None:
        begun = self._training is not None or done == self._rounds
        if begun or self._directory.faithful_path(self._rounds).exists():
            return
        if self._learner.settles_faithful(done) and has_spare_cores(self._threads):
            learner, load = self._learner, self._load_generator
            self._training = BackgroundTraining(
                lambda on_step: learner.train_faithful(load, on_step)
            )

    def _load_generator(self, number: int) -> NDArray[np.float32] | None:
        """The last generator that was saved up to a round, if any was."""
        paths = [self._directory.generator_path(n) for n in range(number, 0, -1)]
        found = next((path for path in paths if path.exists()), None)
        return None if found is None else load_generator(found)["average"].astype(np.float32)
