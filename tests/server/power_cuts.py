"""Ending a run at a chosen instant, as a power cut would, and going on with it."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.orm import Session


class PowerCut(BaseException):
    """What a test raises in place of the process's death."""


def cut_power(monkeypatch, owner, name, when, call=2):
    """Have the ``call``-th call of a method end the run."""
    original, calls = getattr(owner, name), [0]

    def cut(self, *args, **kwargs):
        calls[0] += 1
        if calls[0] == call and when == "before":
            raise PowerCut
        result = original(self, *args, **kwargs)
        if calls[0] == call:
            raise PowerCut
        return result

    monkeypatch.setattr(owner, name, cut)


def interrupted(monkeypatch, run_small, config, point, name="run"):
    """The outcome of a run that was cut at ``point`` and then taken up again."""
    with monkeypatch.context() as patch:
        cut_power(patch, *point)
        with pytest.raises(PowerCut):
            run_small(config, name)
    return run_small(config, name)


@dataclass(frozen=True)
class Instant:
    """Just before or after something reached the disk for good: a file, a folder, a transaction.

    It is found by what it is about and not by who writes it, whatever the product's methods are
    called.
    """

    what: str
    when: str
    time: int
    """How often it came since the last line of the ledger, from 1."""

    def __str__(self) -> str:
        return f"{self.when} {self.what} ({self.time})"


class DurableWrites:
    """The durable writes of one process, of which one may be its last.

    Attributes:
        seen: all instants in their order, from the first line that the ledger got.
    """

    def __init__(self, last: Instant | None = None) -> None:
        self.seen: list[Instant] = []
        self._last, self._dead, self._before = last, False, ""
        self._times: Counter[tuple[str, str]] = Counter()

    def _meet(self, what: str, when: str) -> None:
        if self._dead:
            raise PowerCut  # a dead process writes nothing while its calls unwind
        if (what, when) == (FIRST, "before"):
            self._times.clear()
        elif not self.seen:
            return
        self._times[what, when] += 1
        self.seen.append(Instant(what, when, self._times[what, when]))
        self._dead = self.seen[-1] == self._last
        if self._dead:
            raise PowerCut

    def _flush(self, descriptor: int) -> None:
        what = self._named(descriptor)
        self._meet(what, "before")
        self._fsync(descriptor)
        self._before = what
        self._meet(what, "after")

    def _named(self, descriptor: int) -> str:
        """A file by its name without numbers; a folder by the file that was flushed before it."""
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        return f"folder of {self._before}" if folder else re.sub(r"\d+", "#", path.name)

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Meet every instant of this process while this is entered."""

        def committing(connection: object) -> None:
            self._meet("transaction", "before")

        def committed(session: object) -> None:
            self._meet("transaction", "after")

        self._fsync = os.fsync
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", self._flush)
            event.listen(Engine, "commit", committing)
            event.listen(Session, "after_commit", committed)
            try:
                yield
            finally:
                event.remove(Engine, "commit", committing)
                event.remove(Session, "after_commit", committed)


FIRST = "ledger.jsonl"


def instants_of_a_round(seen: list[Instant]) -> list[Instant]:
    """Those of the second round of a run: from its line in the ledger to before the third's.

    What lies after a write and before the next is the same to whoever goes on, but where something
    is renamed or removed between them; so of folders and transactions the one before is enough.
    """
    lines = [n for n, instant in enumerate(seen) if instant == Instant(FIRST, "before", 1)]
    found = seen[lines[1] : lines[2]]
    return [one for one in found if one.when == "before" or one.what.endswith((FIRST, ".part"))]
