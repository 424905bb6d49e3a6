"""What is made of an object and kept beside it: one value an object, gone when the object is."""

from __future__ import annotations

import weakref
from typing import Generic, TypeVar

Value = TypeVar("Value")


class KeptBeside(Generic[Value]):
    """Values by the object that they were made of (the object itself, not what it equals).

    Values must not hold their object strongly, or neither ever goes.
    """

    def __init__(self, most: int) -> None:
        """Keep the values of at most ``most`` objects; the oldest go first."""
        self._most = most
        self._kept: dict[int, tuple[weakref.ref[object], object, Value]] = {}

    def get(self, owner: object, asked: object) -> Value | None:
        """What was kept for ``owner`` if it is what is ``asked`` for."""
        known = self._kept.get(id(owner))
        if known is None or known[0]() is not owner or known[1] != asked:
            return None
        return known[2]

    def put(self, owner: object, asked: object, value: Value) -> None:
        """Keep a value in place of the one before."""
        key = id(owner)
        self._kept.pop(key, None)
        for oldest in list(self._kept)[: max(0, len(self._kept) - self._most + 1)]:
            self._kept.pop(oldest, None)
        gone = weakref.ref(owner, lambda _: self._kept.pop(key, None))
        self._kept[key] = (gone, asked, value)

    def clear(self) -> None:
        """Forget all."""
        self._kept.clear()
