"""Where time goes: seconds by part of the work, for as long as somebody asks.

A part's seconds are its own: what it spends in parts inside it counts for those. Parts are named
where they are defined, by `timed` or `span`; without a profile around them both cost next to
nothing and keep nothing.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import ParamSpec, TypeVar

from fedlens.foundation.traces import traced

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
REST = "the rest"


class Profile:
    """Seconds by part, from when it is made."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._parts, self._since = [REST], time.perf_counter()

    def enter(self, part: str) -> None:
        """Time counts for ``part`` from now on."""
        self._settle()
        self._parts.append(part)

    def leave(self) -> None:
        """Time counts for the part around the present one again."""
        self._settle()
        self._parts.pop()

    def seconds(self) -> dict[str, float]:
        """Seconds by part up to now, the longest first."""
        self._settle()
        return dict(sorted(self._seconds.items(), key=lambda part: -part[1]))

    def _settle(self) -> None:
        now, part = time.perf_counter(), self._parts[-1]
        self._seconds[part] = self._seconds.get(part, 0.0) + now - self._since
        self._since = now


_current: ContextVar[Profile | None] = ContextVar("profile", default=None)


@contextmanager
def profiled() -> Iterator[Profile]:
    """A profile of all that this context does in this thread."""
    profile = Profile()
    token = _current.set(profile)
    try:
        yield profile
    finally:
        _current.reset(token)


@contextmanager
def span(part: str) -> Iterator[None]:
    """What happens inside counts for ``part``, and is a span of it where traces are on."""
    profile = _current.get()
    with traced(part):
        if profile is None:
            yield
            return
        profile.enter(part)
        try:
            yield
        finally:
            profile.leave()


def timed(part: str) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Calls of the decorated function count for ``part``."""

    def decorate(work: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        @functools.wraps(work)
        def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
            with span(part):
                return work(*args, **kwargs)

        return call

    return decorate
