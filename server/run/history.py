"""What a run says of its rounds, one line a round, so that a resumed run can publish it again.

A state is written anew after every round, so it must not grow with them: the rounds' records lie in
``checkpoint/rounds.jsonl`` instead, to which a line is added, on disk, before the state that knows
of it is saved. All of it is post-processing of releases.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from fedlens.accountant.account import Spending
from fedlens.foundation.dates import set_file_date, today
from fedlens.foundation.json_values import json_value
from fedlens.server.run.directory import RunDirectory, RunDirectoryError, Snapshot

Facts = dict[str, Any]
PINNED = "rounds_sha256"
"""Of a state's facts: the digest of the lines that it goes by. States of before lack it."""
PRESENCE = "presence"
"""Of a round's facts: which nodes it had."""
CURVES = ("percentiles", "percentiles_corrected")
FIGURES = (
    "dp_epsilon", "delta_dp", "bdp_as_published", "bdp_corrected", "bdp_sound", "delta_bdp",
)  # fmt: skip
"""What is recorded of a run's spending, by its name there and in the store."""


def round_facts(
    number: int,
    metrics: Mapping[str, float],
    spending: Spending,
    presence: Mapping[str, Any] | None = None,
) -> Facts:
    """A round's record in a form that JSON keeps: infinities as None."""
    names = ("dp_method", *CURVES, *FIGURES)
    figures = {name: json_value(getattr(spending, name)) for name in names}
    return {"round": number, "metrics": dict(metrics), PRESENCE: presence, **figures}


class RoundHistory:
    """The rounds' records of one run. A line that no state knows of is as if not there."""

    def __init__(self, directory: RunDirectory) -> None:
        self._path, self._day = directory.checkpoints / "rounds.jsonl", today()
        self._end = 0
        """Bytes of the lines that count."""
        self._digest = hashlib.sha256()

    @property
    def digest(self) -> str:
        """SHA-256 of the lines that count, which a state pins."""
        return self._digest.hexdigest()

    def load(self, snapshot: Snapshot) -> list[Facts]:
        """The records of the rounds up to a state, the first round's first.

        What lies behind them in the file, of a round that was not finished or of a write that a
        crash interrupted, is overwritten by the next `append`.

        Raises:
            RunDirectoryError: the file lacks rounds that the state has, or was changed.
        """
        found: list[Facts] = []
        self._end, self._digest = 0, hashlib.sha256()
        with self._undamaged():
            for line in self._lines(snapshot.round):
                found.append(json.loads(line))
                self._end += len(line)
                self._digest.update(line)
            if snapshot.facts.get(PINNED, self.digest) != self.digest:
                raise ValueError("a line was changed")
            if [facts["round"] for facts in found] != list(range(1, snapshot.round + 1)):
                raise ValueError("rounds are missing")
        return found

    def append(self, facts: Facts) -> None:
        """Add a round's record: on disk on return, and in its folder once the next state is."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
        with os.fdopen(os.open(self._path, flags, 0o666), "wb") as file:
            file.truncate(self._end)
            file.seek(self._end)
            file.write(line := _line(facts))
            file.flush()
            set_file_date(file.fileno(), self._day)
            os.fsync(file.fileno())
        self._end += len(line)
        self._digest.update(line)

    def last(self, snapshot: Snapshot) -> Facts:
        """The record of a state's round.

        Raises:
            RunDirectoryError: as `load`.
        """
        with self._undamaged():
            *_, line = self._lines(snapshot.round)
            facts: Facts = json.loads(line)
            if facts["round"] != snapshot.round:
                raise ValueError("rounds are missing")
        return facts

    def _lines(self, rounds: int) -> Iterator[bytes]:
        """The file's first lines, as many as there are rounds, each whole."""
        with self._path.open("rb") as file:
            for _, line in zip(range(rounds), file, strict=False):
                if line.endswith(b"\n"):
                    yield line

    @contextmanager
    def _undamaged(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            raise RunDirectoryError(
                f"{self._path} is damaged or missing; restore it from a backup"
            ) from None


def _line(facts: Facts) -> bytes:
    return json.dumps(facts).encode() + b"\n"
