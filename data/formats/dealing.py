"""Who is for the test, where no part of the data says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedlens.data.formats.records import TEST, TRAIN, SourceError
from fedlens.data.labelled.labels import FEW_OWNERS, TEST_PART, owner_number, parts_of

TEST_SHARE = 6
"""Without a test part about one user in six is for the test; without users, one record."""


@dataclass
class Dealing:
    """Which users (or records) are for the test where no part says: about one in six.

    A hash of the name decides, among those who have a label. Where it takes none of them, or all,
    it is the one of the least hash.
    """

    first: str = ""
    several: bool = False
    least: tuple[int, str] = (2**63, "")
    takes_all: bool = True
    taken: set[int] = field(default_factory=set)
    """Numbers of those whom the hash takes."""

    def meet(self, name: str, *, labelled: bool = True) -> None:
        """Take note of a user or record."""
        self.first = self.first or name
        self.several |= self.first != name
        if not labelled:
            return
        number = owner_number(name)
        self.least = min(self.least, (number, name))
        if number % TEST_SHARE:
            self.takes_all = False
        else:
            self.taken.add(number)

    def part(self, name: str) -> str:
        """``train`` or ``test``."""
        if self.several and (self.takes_all or not self.taken):
            return TEST if name == self.least[1] else TRAIN
        return TEST if owner_number(name) in self.taken else TRAIN

    def check(self, path: Path) -> None:
        """Refuse records of one user alone: none is left for the test."""
        if not self.several:
            raise SourceError(
                f"{path}: all records are of one user, {self.first!r}, so none is "
                "left for the test; name the user's column with ,user=COLUMN, or add a test part"
            )


@dataclass
class Scoring:
    """Whose records filters are scored on, where there is something to hide.

    Few people are counted out by the order of their hashes, so a run and the filters that it is to
    be kept from must count the same ones: all that there are, whether or not they have labels and
    however many records are taken.
    """

    people: set[bytes] = field(default_factory=set)
    """All keys of owners, or `FEW_OWNERS` of more; none of records without owners."""

    @property
    def many(self) -> bool:
        """Whether nobody else's coming moves anyone."""
        return len(self.people) >= FEW_OWNERS

    def parts(self, keys: Sequence[bytes], seed: int) -> NDArray[np.int64]:
        """The part of each record by its key, as `parts_of`, int64 [n]."""
        everybody = [*keys, *self.people]
        return parts_of(everybody, seed, owned=bool(self.people))[: len(keys)]

    def scores(self, key: bytes) -> bool:
        """Whether a key's records are for scoring at seed 0."""
        if self.people and not self.many:
            return key in self._scoring
        return bool(parts_of([key], 0)[0] == TEST_PART)

    @cached_property
    def _scoring(self) -> set[bytes]:
        """Of few owners those for scoring; asked for once all are met."""
        people = sorted(self.people)
        found = zip(people, self.parts(people, 0), strict=True)
        return {key for key, part in found if part == TEST_PART}
