"""Whose session a cookie opens, remembered for a moment."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock

from fedlens.store import Member, Store, StoreError

REMEMBERED_SECONDS = 2.0
"""So long may a session still open files after it has ended elsewhere. Whatever changes something,
and each websocket, is looked up anew."""
_MOST = 1000


class Visitors:
    """Accounts by cookie. Forged, ended and shut-out sessions are no one's.

    Args:
        store: holds the sessions.
        clock: seconds that only grow.
    """

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._clock = store, clock
        self._seen: dict[str, tuple[float, Member]] = {}
        self._lock = Lock()

    def known(self, cookie: str) -> Member | None:
        """Who was found a moment ago; ``None`` where the store has to be asked."""
        with self._lock:
            seen = self._seen.get(cookie)
        return seen[1] if seen and seen[0] > self._clock() else None

    def look_up(self, cookie: str) -> Member | None:
        """Ask the store; a store that cannot answer admits no one."""
        try:
            account = self._store.signed_in(cookie)
        except StoreError:
            return None
        if account is not None:
            with self._lock:
                if len(self._seen) >= _MOST:
                    self._seen.clear()
                self._seen[cookie] = self._clock() + REMEMBERED_SECONDS, account
        return account

    def forget(self, cookie: str) -> None:
        """Ask the store again next time."""
        with self._lock:
            self._seen.pop(cookie, None)
