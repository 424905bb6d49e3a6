"""The steps of a diagnosis, as the command that makes one says them to the dashboard that waits.

All of them are post-processing of what a run has released, so when each comes tells of nothing that
users hold.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

STEPS: Mapping[str, str] = {
    "reference": "Loading the reference",
    "evidence": "Reading the released sums",
    "look": "Taking a first look",
    "fits": "Trying every fault of the library",
    "findings": "Selecting faults",
    "omnibus": "Checking for unexplained differences",
    "pictures": "Drawing pictures",
}
"""In their order; each with its words for people."""
_LENGTHS = {
    "reference": 0.03,
    "evidence": 0.02,
    "look": 0.12,
    "fits": 0.68,
    "findings": 0.11,
    "omnibus": 0.02,
    "pictures": 0.02,
}
"""How much of a diagnosis each takes, about, as seen of the demo's run with a fault."""
_KEY = "step"
_MOST = 10**6
_MOST_WORDS = 300


@dataclass(frozen=True)
class DiagnosisStep:
    """Where a diagnosis is."""

    name: str
    """One of `STEPS`."""
    done: int = 0
    """Parts of it that are done."""
    total: int = 0
    """Parts that it has; 0 where it is one."""
    said: str = ""
    """What stands out at first sight, in words: no finding."""

    @property
    def place(self) -> int:
        """Its number, from 1."""
        return list(STEPS).index(self.name) + 1

    @property
    def words(self) -> str:
        """It in words, with how far it is."""
        far = f": {self.done:,} of {self.total:,}" if self.total else ""
        return f"{STEPS[self.name]}{far}"

    @property
    def share(self) -> float:
        """How much of the whole diagnosis is done, about: 0 to 1."""
        before = sum(list(_LENGTHS.values())[: self.place - 1])
        within = self.done / self.total if self.total else 0.0
        return before + within * _LENGTHS[self.name]

    def to_line(self) -> str:
        """As a line of a program's output."""
        line = {_KEY: self.name, "done": self.done, "total": self.total}
        return json.dumps(line | ({"said": self.said} if self.said else {}))


def read_step(line: str) -> DiagnosisStep | None:
    """The step in a line of a program's output; ``None`` in any other line."""
    try:
        said = json.loads(line)
        words = str(said.get("said", ""))[:_MOST_WORDS]
        step = DiagnosisStep(str(said[_KEY]), int(said["done"]), int(said["total"]), words)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return step if step.name in STEPS and 0 <= step.done <= step.total <= _MOST else None
