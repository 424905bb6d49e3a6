"""Who is for the test, where no part of the data says so."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from fedlens.data.formats.records import TEST, TRAIN, SourceError
from fedlens.data.labelled.labels import FEW_OWNERS, TEST_PART, owner_number, parts_of

TEST_SHARE = 6
"""Without a test part about one user in six is for the test; without users, one record."""


@dataclass
class Dealing:
    """Which users (or records) are for the test where no part says: about one in six.

    A hash of the name decides. Where it takes none, or all, it is the one of the least hash.
    """

    least: tuple[int, str] = (2**63, "")
    several: bool = False
    takes_some: bool = False
    takes_all: bool = True
    names: set[str] = field(default_factory=set)
    """All of them, as long as they are few."""

    def meet(self, name: str) -> None:
        """Take note of a user or record."""
        if len(self.names) < FEW_OWNERS:
            self.names.add(name)
        number = owner_number(name)
        self.several |= self.least[1] not in ("", name)
        self.least = min(self.least, (number, name))
        chosen = not number % TEST_SHARE
        self.takes_some |= chosen
        self.takes_all &= chosen

    def part(self, name: str) -> str:
        """``train`` or ``test``."""
        chosen = not owner_number(name) % TEST_SHARE
        if self.several and (self.takes_all or not self.takes_some):
            chosen = name == self.least[1]
        return TEST if chosen else TRAIN

    def scores(self, key: bytes, *, owned: bool) -> bool:
        """Whether a key's records are for scoring, where there is something to hide."""
        if owned and len(self.names) < FEW_OWNERS:
            return key in self._scoring
        return bool(parts_of([key], 0)[0] == TEST_PART)

    @cached_property
    def _scoring(self) -> set[bytes]:
        """Of few owners those for scoring; asked for once all are met."""
        keys = [name.encode() for name in self.names]
        parts = parts_of(keys, 0, owned=True)
        return {key for key, part in zip(keys, parts, strict=True) if part == TEST_PART}

    def check(self, path: Path) -> None:
        """Refuse records of one user alone: none is left for the test."""
        if not self.several:
            raise SourceError(
                f"{path}: all records are of one user, {self.least[1]!r}, so none is "
                "left for the test; name the user's column with ,user=COLUMN, or add a test part"
            )
