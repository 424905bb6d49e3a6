"""What takes too long for a page: made once beside it, one after another, and kept a while."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from fedlens.dashboard import jobs
from fedlens.dashboard.jobs import CommandFailed

Made = TypeVar("Made")


class Prepared(Generic[Made]):
    """Things by key, each made by a thread of its own once somebody asks for it."""

    def __init__(self, most: int) -> None:
        """None there yet; of those made later the last ``most`` are kept."""
        self._most = most
        self._lock, self._turn = threading.Lock(), threading.Lock()
        self._ready: dict[Hashable, Made] = {}
        self._share: dict[Hashable, float] = {}
        self._failed: dict[Hashable, CommandFailed] = {}

    def get(self, key: Hashable, make: Callable[[Callable[[float], None]], Made]) -> Made | float:
        """What was made; the share of the work that is done while it is under way.

        Args:
            key: tells it from others.
            make: makes it, and tells the share that is done.

        Raises:
            CommandFailed: the last try came to nothing, or `jobs.MOST_AT_ONCE` others are under way
                or wait; the next call tries again.
        """
        with self._lock:
            if key in self._ready:
                return self._ready[key]
            if key in self._failed:
                raise self._failed.pop(key)
            if key not in self._share:
                if (going := len(self._share)) >= jobs.MOST_AT_ONCE:
                    raise CommandFailed(f"{going} others wait already: try again later.")
                self._share[key] = 0.0
                threading.Thread(target=self._make, args=(key, make), daemon=True).start()
            return self._share[key]

    def _make(self, key: Hashable, make: Callable[[Callable[[float], None]], Made]) -> None:
        def told(share: float) -> None:
            self._share[key] = share

        failed: CommandFailed | None = CommandFailed("it could not be made")
        try:
            with self._turn:
                made = make(told)
            with self._lock:
                self._ready[key] = made
                for old in list(self._ready)[: -self._most]:
                    del self._ready[old]
            failed = None
        except CommandFailed as error:
            failed = error
        finally:
            with self._lock:
                del self._share[key]
                if failed is not None:
                    self._failed[key] = failed
                    for old in list(self._failed)[: -jobs.MOST_AT_ONCE]:
                        del self._failed[old]
