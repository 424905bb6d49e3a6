"""A limit on guessing tokens and passwords that tries in parallel cannot get around."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import anyio

WRONG_DELAY = 0.5
"""Seconds that a wrong try takes, or a whole multiple of them."""
LONGEST_WAIT = 10.0
"""Seconds after which a try that had no turn is turned away, unchecked."""

FoundT = TypeVar("FoundT")


class GuessLimit:
    """One try after another over all visitors, and each wrong one takes its time.

    So there are at most two wrong tries a second over all connections, each answered only when
    its own time is over, whatever was done in it: how long that took tells nothing. The right
    token or password is answered at once while no one guesses.
    """

    def __init__(self) -> None:
        self._turn: anyio.Lock | None = None

    async def take_turn(self, attempt: Callable[[], FoundT | None]) -> FoundT | None:
        """Run ``attempt`` in a thread when its turn comes; ``None`` from it is a wrong try.

        Raises:
            TimeoutError: no turn came within ``LONGEST_WAIT`` seconds; nothing was tried.
        """
        self._turn = self._turn or anyio.Lock()  # belongs to the server's event loop
        with anyio.fail_after(LONGEST_WAIT):
            await self._turn.acquire()
        began = anyio.current_time()
        try:
            found = await anyio.to_thread.run_sync(attempt)
            if found is None and WRONG_DELAY:
                await anyio.sleep(WRONG_DELAY - (anyio.current_time() - began) % WRONG_DELAY)
            return found
        finally:
            self._turn.release()
