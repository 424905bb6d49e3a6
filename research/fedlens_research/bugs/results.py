"""Everything that was measured: one JSON file, from which a page is written."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedlens_research.bugs.measuring import MeasuredBug, method
from fedlens_research.bugs.plan import DELTAS, Question
from fedlens_research.bugs.tallies import BugTally, together
from fedlens_research.bugs.trained import LookedAt
from fedlens_research.framework.errors import StudyError
from fedlens_research.framework.store import read_json, write_json

POWER = 0.9
"""Share of draws that must name a fault for its share of users to count as detectable."""


@dataclass(frozen=True, order=True)
class BugSetting:
    """A federation."""

    data: str
    users: int

    @property
    def said(self) -> str:
        """In words."""
        delta = DELTAS.get(self.users)
        return f"{self.data}, {self.users:,} users" + (f", δ = {delta:g}" if delta else "")


@dataclass(frozen=True)
class BugResults:
    """Trials and looks, which a page shows."""

    measured: tuple[MeasuredBug, ...]
    looks: tuple[LookedAt, ...]
    quick: bool
    method: str
    """Digest of the code that was measured."""

    @classmethod
    def of(
        cls, measured: Iterable[MeasuredBug], looks: Iterable[LookedAt], *, quick: bool
    ) -> BugResults:
        """What this code measured."""
        return cls(tuple(measured), tuple(looks), quick, method())

    def to_json(self) -> dict[str, Any]:
        """As a JSON object, with all seeds."""
        return {
            "quick": self.quick,
            "method": self.method,
            "trials": [one.to_json() for one in self.measured],
            "looks": [one.to_json() for one in self.looks],
        }

    def write(self, path: Path) -> None:
        """Write them as JSON."""
        write_json(path, self.to_json())

    @classmethod
    def read(cls, path: Path) -> BugResults:
        """What `write` wrote.

        Raises:
            StudyError: there is no such file, or it is of another version.
        """
        kept = read_json(path)
        try:
            kept = kept or {}
            measured = tuple(MeasuredBug.from_json(one) for one in kept["trials"])
            looks = tuple(LookedAt(**one) for one in kept["looks"])
            return cls(measured, looks, bool(kept["quick"]), str(kept["method"]))
        except (KeyError, TypeError, ValueError) as error:
            raise StudyError(f"{path}: cannot be read ({error}); measure anew") from None

    def settings(self, question: Question = "known") -> list[BugSetting]:
        """Federations that were measured."""
        return sorted({BugSetting(*where) for where in self._where(question)})

    def _where(self, question: Question) -> set[tuple[str, int]]:
        found = [one.trial for one in self.measured if one.trial.question == question]
        return {(trial.data, trial.users) for trial in found}

    def some(self, question: Question, setting: BugSetting | None = None) -> list[MeasuredBug]:
        """Trials of a question, in one federation or in all."""
        found = [one for one in self.measured if one.trial.question == question]
        if setting is None:
            return found
        return [one for one in found if setting == BugSetting(one.trial.data, one.trial.users)]


def by_share(measured: Sequence[MeasuredBug]) -> list[BugTally]:
    """Tallies added up over trials, a share each, ascending."""
    found: dict[float, list[BugTally]] = defaultdict(list)
    for one in measured:
        for share, tally in zip(one.trial.shares, one.tallies, strict=True):
            found[share].append(tally)
    return [together(found[share]) for share in sorted(found)]


def faults_of(measured: Sequence[MeasuredBug]) -> list[str]:
    """Faults, in the order in which they were measured."""
    return list(dict.fromkeys(one.trial.fault for one in measured if one.trial.fault))


def epsilons_of(measured: Sequence[MeasuredBug]) -> list[float]:
    """Each ε, ascending."""
    return sorted({one.trial.epsilon for one in measured})


def of_cell(measured: Sequence[MeasuredBug], fault: str, epsilon: float) -> list[MeasuredBug]:
    """Trials of one fault at one ε; of all faults where it is ``*``."""
    return [
        one
        for one in measured
        if one.trial.epsilon == epsilon
        and (one.trial.fault == fault or (fault == "*" and one.trial.fault))
    ]


def measured_share(tallies: Sequence[BugTally]) -> float | None:
    """The least share from which on the fault was named first in `POWER` of the draws."""
    found = None
    for one in sorted(tallies, key=lambda tally: -tally.share):
        if not one.draws or one.first < POWER * one.draws:
            break
        found = one.share
    return found


def predicted_share(measured: Sequence[MeasuredBug]) -> float | None:
    """The mean over seeds of what the diagnosis said beforehand; None where one says never."""
    found = [one.predicted for one in measured]
    shares = [share for share in found if share is not None]
    return sum(shares) / len(shares) if shares and len(shares) == len(found) else None
