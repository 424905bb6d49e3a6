"""How often a name is wrong, and how often what has none is noticed: the table of names."""

from __future__ import annotations

from collections.abc import Sequence

from fedlens_research.bugs.measuring import MeasuredBug
from fedlens_research.bugs.outsiders import OUTSIDERS
from fedlens_research.bugs.results import BugResults, by_share
from fedlens_research.bugs.tallies import BugTally, binomial_interval

COLUMNS = ("users have", "data", "share", "draws", "right name", "false name", "without a name")
"""The last one: something changed that may be no fault of the library, or nothing is claimed."""


def naming_rows(results: BugResults) -> list[tuple[str, ...]]:
    """Rates by kind of fault, data and share of users, each with its 95% interval."""
    measured = results.measured
    rows: list[tuple[str, ...]] = []
    for data in dict.fromkeys(one.trial.data for one in measured):
        own = [one for one in measured if one.trial.data == data]
        outside = [one for one in own if one.trial.fault in OUTSIDERS]
        known = [one for one in own if one.trial.question == "known"]
        rows += _rows("a fault of no library", data, outside)
        rows += _rows("a fault of the library", data, [one for one in known if one.trial.fault])
        rows += _rows("no fault", data, [one for one in known if not one.trial.fault])
    return rows


def _rows(what: str, data: str, measured: Sequence[MeasuredBug]) -> list[tuple[str, ...]]:
    return [
        (
            what,
            data,
            f"{tally.share:.0%}",
            f"{tally.draws:,}",
            _kept(tally) if "of the library" in what else "–",
            _rate(tally.others, tally.draws),
            _rate(tally.noticed, tally.draws),
        )
        for tally in by_share(measured)
    ]


def _kept(tally: BugTally) -> str:
    """Of those whose surest hypothesis was the right one."""
    return f"{_rate(tally.first, tally.before)} of {tally.before:,}"


def _rate(count: int, total: int) -> str:
    if not total:
        return "–"
    low, high = binomial_interval(count, total)
    return f"{count / total:.0%} [{low:.0%}, {high:.0%}]"
