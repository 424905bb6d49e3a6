"""Work that goes on in a thread of its own beside the rounds, where a core is free for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from fedlens.foundation.profile import timed

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
