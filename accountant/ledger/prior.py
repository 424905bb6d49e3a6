"""What another run released of the same people, as far as a run's guarantee must include it.

A filter or an annotator that another run trained is a release about its users. Where they are this
run's too, they lose what both runs spent, so the releases of the other ledger are composed with
this one's: their events, not their ε, which do not add up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from fedlens.accountant.events import Event, event_from_json
from fedlens.accountant.ledger.chain import LedgerEntry
from fedlens.accountant.ledger.ledger import Ledger

HEADER = "builds_on"
"""Under which key of a run's ledger header it stands."""
MOST_UNRUN = 1_000_000


class Release(NamedTuple):
    """One entry of the other run's ledger."""

    round: int
    event: Event
    entry: str
    """Hash of its line, which tells it from the same mechanism in another ledger."""


@dataclass(frozen=True)
class PriorReleases:
    """All releases of another run's ledger, when this run took its filter or annotator."""

    run_id: str
    """Of the other run."""
    head: str
    """Hash of its ledger's last line then: it pins these releases."""
    releases: tuple[Release, ...]
    """Its entries, in their order."""
    other_people: bool = False
    """Whether an operator declared, on record, that they were about other people: then they are
    no part of the guarantee."""
    population: str | None = None
    """Identity of the population that the other run spent from, if it did."""
    unrun: tuple[Event, ...] = ()
    """Rounds that the other run had planned and not run. They count towards the guarantee, since
    the moment to take the filter was chosen by who could see the rounds before; see
    `Account.at_any_end`."""

    @classmethod
    def of(
        cls, ledger: Ledger, *, other_people: bool, plan: Iterable[tuple[Event, int]] = ()
    ) -> PriorReleases:
        """All that a ledger holds now, and what is missing of its run's plan.

        Args:
            ledger: of the other run.
            other_people: see the attribute.
            plan: the mechanisms of the other run's whole plan, with how often each was to run.
        """
        releases = tuple(Release(e.round, e.event, e.hash) for e in ledger.entries)
        done = Counter(release.event for release in releases)
        unrun = tuple((Counter(dict(plan)) - done).elements())
        header = ledger.header
        known = str(header["run_id"]), ledger.head, releases, other_people
        return cls(*known, header.get("population"), unrun)

    @classmethod
    def in_header(cls, header: Mapping[str, Any]) -> PriorReleases | None:
        """What a run's ledger header says that it builds on; None where it builds on nothing.

        Raises:
            EventError: an event is not one we know.
        """
        record = header.get(HEADER)
        return None if record is None else cls.from_json(record)

    @property
    def counted(self) -> tuple[Event, ...]:
        """The mechanisms that the run's guarantee includes."""
        if self.other_people:
            return ()
        return (*(release.event for release in self.releases), *self.unrun)

    @property
    def in_bulk(self) -> list[Event]:
        """The same as few events of high count, which cost the same."""
        counts: dict[Event, int] = {}
        for event in self.counted:
            counts[event] = counts.get(event, 0) + 1
        return [replace(event, count=event.count * n) for event, n in counts.items()]

    def contradicted(self, granted: Sequence[LedgerEntry], population: str) -> int | None:
        """The first round in which a population knows another ledger under this run id.

        Args:
            granted: what the population granted under the run's id.
            population: its identity. Grants without a source are of a run that spent from it.
        """
        entries = {release.round: release.entry for release in self.releases}
        for grant in granted:
            same = self.population == population
            if grant.source is not None:
                same = entries.get(grant.round, grant.source) == grant.source
            if not same:
                return grant.round
        return None

    def missing_in(self, granted: Sequence[LedgerEntry]) -> PriorReleases:
        """Those that a population did not grant yet, of what it granted under the run's id."""
        booked = {grant.source for grant in granted}
        spent = Counter((grant.round, grant.event) for grant in granted if grant.source is None)
        missing = []
        for release in self.releases:
            if release.entry in booked:
                continue
            if spent[release[:2]]:
                spent[release[:2]] -= 1
            else:
                missing.append(release)
        return replace(self, releases=tuple(missing), unrun=())

    def to_json(self) -> dict[str, Any]:
        """JSON values: equal mechanisms once, with the rounds they ran in and their entries."""
        groups: dict[Event, list[Release]] = {}
        for release in self.releases:
            groups.setdefault(release.event, []).append(release)
        return {
            "run_id": self.run_id,
            "head": self.head,
            "other_people": self.other_people,
            "population": self.population,
            "unrun": [[event.to_json(), n] for event, n in Counter(self.unrun).items()],
            "releases": [
                {
                    "event": event.to_json(),
                    "rounds": [release.round for release in group],
                    "entries": [release.entry for release in group],
                }
                for event, group in groups.items()
            ],
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> PriorReleases:
        """What `to_json` wrote.

        Raises:
            EventError: an event is not one we know.
            ValueError: more rounds are said to be left than any run plans.
        """
        left = sum(int(n) for _, n in record.get("unrun", []))
        if not 0 <= left <= MOST_UNRUN:
            raise ValueError(f"{left} rounds that were not run; at most {MOST_UNRUN}")
        releases = [
            Release(int(number), event_from_json(group["event"]), str(entry))
            for group in record["releases"]
            for number, entry in zip(group["rounds"], group["entries"], strict=True)
        ]
        unrun = tuple(
            event for kind, n in record.get("unrun", []) for event in [event_from_json(kind)] * n
        )
        known = str(record["run_id"]), str(record["head"])
        people = bool(record["other_people"]), record["population"]
        return cls(*known, tuple(releases), *people, unrun)
