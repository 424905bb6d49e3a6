"""What people expect of a data card, as they write it: ``classes = uniform, duplicates < 2%``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fedlens.foundation.errors import WrongUse
from fedlens.models.cards.statistics import (
    COLOURS,
    LARGEST_SHARE,
    PICTURES,
    USER_CLASSES,
    USERS,
    Statistic,
)

FORM = (
    "write NAME < NUMBER, NAME > NUMBER or NAME = uniform with commas between, such as "
    "'duplicates < 2%, brightness > 0.1, classes = uniform, classes[3] < 15%'"
)
_SHARED = (*PICTURES, *COLOURS, *USERS, LARGEST_SHARE)
KNOWN = (*(one.name for one in _SHARED), USER_CLASSES, "classes")
"""Names of all statistics that any card has."""
_ONE = re.compile(
    r"(?P<name>[a-z_]+)(\[(?P<place>\d{1,4})\])?\s*"
    r"((?P<sign>[<>])\s*(?P<number>-?\d+(\.\d*)?|-?\.\d+)\s*(?P<percent>%?)|=\s*uniform)"
)


@dataclass(frozen=True)
class Expectation:
    """One statement about the people behind a card."""

    text: str
    """As it was written."""
    name: str
    """Of the statistic."""
    sign: Literal["<", ">", "="]
    limit: float = 0.0
    """What the quantity is compared with; 0 where bins are to be even."""
    place: int | None = None
    """The bin whose share is meant; None for the statistic's own quantity."""


def parse_expectations(text: str) -> tuple[Expectation, ...]:
    """The statements in a text that separates them by commas; none of an empty one.

    Raises:
        WrongUse: one is written in another form, or of a statistic that no card has.
    """
    return tuple(_parsed(one.strip()) for one in text.split(",") if one.strip())


def _parsed(text: str) -> Expectation:
    found = _ONE.fullmatch(text)
    if found is None:
        raise WrongUse(f"expect {text!r}: {FORM}")
    name, sign, place = found["name"], found["sign"] or "=", found["place"]
    if name not in KNOWN:
        raise WrongUse(f"expect {text!r}: {name!r} is unknown: choose of {', '.join(KNOWN)}")
    if sign == "=" and (place is not None or name == "pixels"):
        raise WrongUse(f"expect {text!r}: uniform is said of a histogram of records or users")
    limit = float(found["number"] or 0) / (100 if found["percent"] else 1)
    return Expectation(text, name, sign, limit, None if place is None else int(place))  # type: ignore[arg-type]


def check_expectations(expected: Sequence[Expectation], statistics: Sequence[Statistic]) -> None:
    """Refuse what a card of these statistics can never answer, best before it is paid for.

    Raises:
        WrongUse: one is of a statistic or a bin that is not there, or of a median outside the bins.
    """
    known = {one.name: one for one in statistics}
    for one in expected:
        if one.name not in known:
            said = f"{one.name!r} is not in this card: choose of {', '.join(known)}"
        else:
            said = _unanswerable(one, known[one.name])
        if said:
            raise WrongUse(f"expect {one.text!r}: {said}")


def _unanswerable(one: Expectation, of: Statistic) -> str:
    """Why not; empty where it can be answered."""
    asked = one.name if one.place is None else f"{one.name}[{one.place}]"
    if one.sign == "=":
        return "" if of.closed else (
            f"shares of {one.name} are of all enrolled users and do not add up: say what is "
            "expected of one of its bins, or of its median"
        )  # fmt: skip
    if one.place is None and of.numeric:
        # the outer bins hold what lies beyond them too, so there an interval would say too much
        low, high = of.edges[0], of.edges[-1]
        said = f"medians of {one.name} are told from {low:g} to {high:g}: give a number between"
        return "" if low <= one.limit <= high else said
    place = of.told if one.place is None else one.place
    if place is None or place >= of.bins:
        return f"{asked}: name one of its bins, {one.name}[0] to [{of.bins - 1}]"
    return ""
