"""What is made of an object and cached beside it: one value an object, gone when the object is."""

from __future__ import annotations

import weakref
from typing import Generic, TypeVar

Value = TypeVar("Value")


class WeakCache(Generic[Value]):
    """Values by the object that they were made of (the object itself, not what it equals).

    Values must not hold their object strongly, or neither ever goes. Objects may go, and nodes in
    other threads may come here, at any instant: what is looked through is always a copy.
    """

    def __init__(self, most: int) -> None:
        """Cache values of ``most`` in all, by the sizes that are said; the oldest go first."""
        self._most = most
        self._entries: dict[int, tuple[weakref.ref[object], object, Value, int]] = {}

    def __len__(self) -> int:
        """How many objects have a value here."""
        return len(self._entries)

    @property
    def room(self) -> int:
        """What is left before others must go."""
        return self._most - sum(size for *_, size in list(self._entries.values()))

    def get(self, owner: object, asked: object) -> Value | None:
        """What was made of ``owner`` if it is what is ``asked`` for."""
        known = self._entries.get(id(owner))
        if known is None or known[0]() is not owner or known[1] != asked:
            return None
        return known[2]

    def put(self, owner: object, asked: object, value: Value, size: int = 1) -> None:
        """Cache a value in place of the one before."""
        key = id(owner)
        self._entries.pop(key, None)
        for oldest in list(self._entries):
            if self.room >= size:
                break
            self._entries.pop(oldest, None)
        gone = weakref.ref(owner, lambda _: self._entries.pop(key, None))
        self._entries[key] = (gone, asked, value, size)

    def clear(self, owner: object | None = None) -> None:
        """Forget what was made of ``owner``, or of all."""
        if owner is None:
            self._entries.clear()
        else:
            self._entries.pop(id(owner), None)
