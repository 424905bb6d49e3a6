"""A fixed clock of rounds: what shows from outside that a round took place, shows on a grid.

How long nodes take depends on what the users hold who were drawn. With ``rounds.slot`` set, replies
are left alone until the grid's next point, however early they came, so progress, log lines, times
of commits and all else that is seen of a live run come at times that data cannot move.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

from fedlens.server.config.sections import RoundsConfig


class RoundSlots:
    """The points in time at which answers of nodes may begin to show: whole multiples of a slot.

    They are counted from the epoch, so a run that is resumed goes on with the same grid.
    """

    def __init__(self, rounds: RoundsConfig) -> None:
        self._slot = rounds.slot
        self._least = rounds.wait / rounds.SHARE_OF_SLOT

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Leave what asks nodes no earlier than the slot's end, whether it succeeds or fails.

        An interruption by the operator is not held up. Without a slot nothing is.
        """
        asked = time.monotonic()
        try:
            yield
        except Exception:
            self._sleep(asked)
            raise
        self._sleep(asked)

    def _sleep(self, asked: float) -> None:
        """Wait by the clock that never jumps; the grid alone is that of the time of day.

        So a clock that is set by an hour meanwhile holds a round up by a slot at most.
        """
        if self._slot:
            now, since = time.time(), time.monotonic()
            over = since + self.end(now - (since - asked), now) - now
            while (left := over - time.monotonic()) > 0:
                time.sleep(left)

    def end(self, asked: float, now: float) -> float:
        """When the slot of a question is over, in seconds since the epoch.

        Args:
            asked: when nodes were asked.
            now: when their answers had been added up. Later than the slot's end only where that
                took more than what the wait for nodes leaves of a slot: then it shows.
        """
        return math.ceil(max(asked + self._least, now) / self._slot) * self._slot
