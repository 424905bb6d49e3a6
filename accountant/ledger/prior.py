"""What another run released of the same people, as far as a run's guarantee must include it.

A filter that another run trained is a release about its users. Where they are this run's too, they
lose what both runs spent, so the releases of the other ledger are composed with this one's: their
events, not their ε, which do not add up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from accountant.events import Event, event_from_json
from accountant.ledger.chain import LedgerEntry
from accountant.ledger.ledger import Ledger

HEADER = "filter"
"""Under which key of a run's ledger header it stands."""


@dataclass(frozen=True)
class PriorReleases:
    """All releases of another run's ledger, when this run took its filter."""

    run_id: str
    """Of the other run."""
    head: str
    """Hash of its ledger's last line then: it pins these releases."""
    releases: tuple[tuple[int, Event], ...]
    """Round and mechanism of each entry, in their order."""
    other_people: bool = False
    """Whether an operator declared, on record, that they were about other people: then they are
    no part of the guarantee."""

    @classmethod
    def of(cls, ledger: Ledger, *, other_people: bool) -> PriorReleases:
        """All that a ledger holds now."""
        releases = tuple((entry.round, entry.event) for entry in ledger.entries)
        return cls(str(ledger.header["run_id"]), ledger.head, releases, other_people)

    @classmethod
    def in_header(cls, header: Mapping[str, Any]) -> PriorReleases | None:
        """What a run's ledger header says of its filter; None where it has none.

        Raises:
            EventError: an event is not one we know.
        """
        record = header.get(HEADER)
        return None if record is None else cls.from_json(record)

    @property
    def counted(self) -> tuple[Event, ...]:
        """The mechanisms that the run's guarantee includes."""
        return () if self.other_people else tuple(event for _, event in self.releases)

    @property
    def in_bulk(self) -> list[Event]:
        """The same as few events of high count, which cost the same."""
        counts: dict[Event, int] = {}
        for event in self.counted:
            counts[event] = counts.get(event, 0) + 1
        return [replace(event, count=event.count * n) for event, n in counts.items()]

    def missing_in(self, entries: Mapping[tuple[int, Event], int]) -> PriorReleases:
        """Those that were not granted yet, where ``entries`` counts grants by round and event."""
        left, missing = dict(entries), []
        for release in self.releases:
            if left.get(release, 0):
                left[release] -= 1
            else:
                missing.append(release)
        return replace(self, releases=tuple(missing))

    def to_json(self) -> dict[str, Any]:
        """JSON values: equal mechanisms once, with the rounds they ran in."""
        rounds: dict[Event, list[int]] = {}
        for number, event in self.releases:
            rounds.setdefault(event, []).append(number)
        return {
            "run_id": self.run_id,
            "head": self.head,
            "other_people": self.other_people,
            "releases": [{"event": e.to_json(), "rounds": found} for e, found in rounds.items()],
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> PriorReleases:
        """What `to_json` wrote.

        Raises:
            EventError: an event is not one we know.
        """
        releases = [
            (int(number), event_from_json(group["event"]))
            for group in record["releases"]
            for number in group["rounds"]
        ]
        known = str(record["run_id"]), str(record["head"])
        return cls(*known, tuple(releases), bool(record["other_people"]))


def granted(entries: tuple[LedgerEntry, ...], run: str) -> dict[tuple[int, Event], int]:
    """How often each round and event of a run is in a population's ledger."""
    counts: dict[tuple[int, Event], int] = {}
    for entry in entries:
        if entry.run == run:
            release = entry.round, entry.event
            counts[release] = counts.get(release, 0) + 1
    return counts
