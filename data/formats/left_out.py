"""What was left out of a source and what was noticed of the rest: each once, by its true reason."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedlens.data.formats.records import UnusableRecord
from fedlens.data.labelled.labels import left_out
from fedlens.data.labelled.pictures import BLANK

EXAMPLES = 5
MOST_USERS = 10_000
"""Among whom names that look alike are looked for: they are all held, some 200 bytes each."""
_BETWEEN = re.compile(r"[\s_\-.]+")
_ZEROS = re.compile(r"(?<!\d)0+(?=\d)")


@dataclass
class LeftOut:
    """Counts of records by why they were left out, and of pictures by what was noticed of them.

    Attributes:
        write: called with each record's place and reason.
        counts: records by why.
        examples: places of the first few, by why; none of what is no fault.
        noticed: pictures that are kept, by what was noticed.
        notes: what was taken for granted, a line each.
    """

    write: Callable[[Sequence[str]], object] | None = None
    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)
    noticed: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    _seen: dict[str, list[str]] = field(default_factory=dict)
    _met: dict[int, str] = field(default_factory=dict)
    _alike: dict[int, set[str]] = field(default_factory=dict)

    def leave(self, where: str, why: str, quiet: bool = False) -> None:
        """Count a record that is left out; ``quiet`` where that is no fault."""
        self.counts[why] += 1
        if not quiet:
            _keep(self.examples.setdefault(why, []), where)
        if self.write is not None:
            self.write([_harmless(where), why])

    def leave_record(self, found: UnusableRecord) -> None:
        """The same of what a reader could not use."""
        self.leave(found.where, found.why, found.quiet)

    def notice(self, where: str, what: str) -> None:
        """Count a picture that is taken in and of which an owner should know something."""
        self.noticed[what] += 1
        _keep(self._seen.setdefault(what, []), where)

    def tell(self, note: str) -> None:
        """Keep a line on what was taken for granted."""
        if note not in self.notes:
            self.notes.append(note)

    def meet(self, user: str) -> None:
        """Keep a user's name, to find those that look alike."""
        look = hash(_look(user))
        if len(self._met) < MOST_USERS and self._met.setdefault(look, user) != user:
            self._alike.setdefault(look, {self._met[look]}).add(user)

    def why_none(self) -> str:
        """Why no record is left, in brackets; empty where there was none."""
        whys = "; ".join(f"{count} left out: {why}" for why, count in self.counts.items())
        return f" ({whys})" if whys else ""

    def lines(self) -> list[str]:
        """What was taken for granted and noticed, a line each."""
        found = list(self.notes)
        for what, count in self.noticed.items():
            found.append(f"{what}: {count}: {_few(self._seen[what], count)}")
        alike = [sorted(names) for names in self._alike.values()]
        if alike:
            pairs = ", ".join(" and ".join(map(repr, names[:3])) for names in alike[:EXAMPLES])
            if len(self._met) == MOST_USERS:
                pairs += f" (looked for among the first {MOST_USERS:,})"
            found.append(
                f"users whose names look alike count as different people: {len(alike)}: {pairs}; "
                "if they are one person, write the name in one way: what is protected is a user"
            )
        return found

    def sentences(self) -> list[str]:
        """All of it for people: what was noticed, and what was left out with the first places."""
        notes = self.lines()
        for why, count in self.counts.items():
            left_out(notes, self.examples.get(why, []), why, count)
        return notes


def note_copies(
    digests: NDArray[np.int64], labels: NDArray[np.int64], owners: NDArray[np.int64]
) -> list[str]:
    """What is said of records with the same pixels; blank ones, of digest 0, are not compared.

    Args:
        digests: of each record's pixels [n].
        labels: of each record [n].
        owners: number of each record's user [n].
    """
    rows = np.flatnonzero(digests)
    if not len(rows):
        return []
    order = rows[np.argsort(digests[rows], kind="stable")]
    same = digests[order][1:] == digests[order][:-1]
    copies = int(same.sum())
    if not copies:
        return []
    first, second = order[:-1][same], order[1:][same]
    others = int((labels[first] != labels[second]).sum())
    people = int((owners[first] != owners[second]).sum())
    more = [f"{others} under another label, of which one is wrong"] if others else []
    more += [f"{people} of another user"] if people else []
    return [f"copies of another record, pixel for pixel: {copies}{_in_brackets(more)}"]


def digest_of(pixels: NDArray[np.uint8], noticed: Sequence[str]) -> int:
    """What tells a record's pixels from others', 63 bits; 0 where they are all of one value."""
    if BLANK in noticed:
        return 0
    return int.from_bytes(hashlib.blake2b(pixels.tobytes(), digest_size=8).digest(), "big") >> 1


def _in_brackets(more: list[str]) -> str:
    return f" ({', '.join(more)})" if more else ""


def _keep(few: list[str], where: str) -> None:
    if len(few) < EXAMPLES:
        few.append(where)


def _few(names: Sequence[str], count: int) -> str:
    return ", ".join(names) + (", ..." if count > len(names) else "")


def _look(name: str) -> str:
    """A name without what a person easily writes otherwise: capitals, blanks, zeros, ``.0``."""
    plain = unicodedata.normalize("NFKC", name).casefold().strip()
    return _ZEROS.sub("", _BETWEEN.sub(" ", re.sub(r"(?<=\d)\.0+$", "", plain)))


def _harmless(text: str) -> str:
    """A cell that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
