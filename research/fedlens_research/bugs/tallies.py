"""What diagnoses of many draws said together, and how sure a rate of so few is."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scipy.stats import beta

from fedlens.diagnosis.report import UNEXPLAINED
from fedlens_research.bugs.drawing import DrawnDiagnosis


@dataclass(frozen=True)
class BugTally:
    """How often what was said of one fault at one share; may be added up."""

    share: float
    """Of the users that had it."""
    draws: int
    found: int
    """Believed, with any finding."""
    first: int
    """Believed, with this fault as the surest finding."""
    named: int
    """Believed, with this fault among the findings."""
    others: int
    """Believed, with another fault among the findings."""
    refused: int
    """The reference was not believed, so that nothing was claimed."""
    flagged: int
    """The omnibus test says that something is left."""
    noticed: int
    """Something has no name, or refused: it is said that something is there that may be no fault
    of the library."""
    covered: int
    """Of those named: the 95% interval holds the share."""
    errors: tuple[float, ...]
    """Of those named: the share that was said less the true one."""
    names: dict[str, int]
    """How often each fault was the surest finding."""
    before: int = 0
    """This fault fitted best, whether that was enough for a name or not."""

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {**self.__dict__, "errors": [round(error, 5) for error in self.errors]}

    @classmethod
    def from_json(cls, kept: dict[str, Any]) -> BugTally:
        """From what `to_json` made."""
        return cls(**{**kept, "errors": tuple(kept["errors"])})


def tallied(fault: str, share: float, said: Sequence[DrawnDiagnosis]) -> BugTally:
    """What was said of draws with a fault (or none, if empty) in such a share of the users."""
    believed = [one for one in said if one.fits and one.found]
    right = [one for one in believed if fault in one.found]
    pairs = [(one, one.found.index(fault)) for one in right]
    return BugTally(
        share=share,
        draws=len(said),
        found=len(believed),
        first=sum(one.found[0] == fault for one in believed),
        named=len(right),
        others=sum(any(name != fault for name in one.found) for one in believed),
        refused=sum(not one.fits for one in said),
        flagged=sum(one.p_value <= UNEXPLAINED for one in said),
        noticed=sum(bool(one.like) or not one.fits for one in said),
        covered=sum(one.intervals[i][0] <= share <= one.intervals[i][1] for one, i in pairs),
        errors=tuple(one.shares[i] - share for one, i in pairs),
        names=dict(Counter(one.found[0] for one in believed)),
        before=sum(one.fits and one.surest == fault for one in said) if fault else 0,
    )


def together(tallies: Sequence[BugTally]) -> BugTally:
    """Several tallies of one share as one; there is at least one."""
    added = (
        "draws",
        "found",
        "first",
        "named",
        "others",
        "refused",
        "flagged",
        "noticed",
        "covered",
        "before",
    )
    names: Counter[str] = Counter()
    for one in tallies:
        names.update(one.names)
    return BugTally(
        share=tallies[0].share,
        errors=tuple(error for one in tallies for error in one.errors),
        names=dict(names),
        **{name: sum(getattr(one, name) for one in tallies) for name in added},
    )


def binomial_interval(count: int, total: int) -> tuple[float, float]:
    """95% interval of a rate (Clopper & Pearson 1934); it takes draws for independent."""
    if not total:
        return 0.0, 1.0
    low = float(beta.ppf(0.025, count, total - count + 1)) if count else 0.0
    high = float(beta.ppf(0.975, count + 1, total - count)) if count < total else 1.0
    return low, high


def mean_error(tally: BugTally) -> float | None:
    """Mean of the share's error where the fault was named; None where it never was."""
    return statistics.fmean(tally.errors) if tally.errors else None
