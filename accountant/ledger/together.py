"""What ledgers of the same people have spent together, where no population counts it.

A run that names no population is a population of its own: its releases, those of the probes that
asked its users, and those of runs that build on it add up. No filter admitted them, so the figure
presumes that none was chosen by what another one released.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedlens.accountant.bounds import Bound
from fedlens.accountant.dp.differential import DifferentialAccountant
from fedlens.accountant.events import Event, event_from_json
from fedlens.accountant.ledger.ledger import Ledger
from fedlens.accountant.ledger.prior import PriorReleases
from fedlens.accountant.ledger.spending import Share, most_that, share_of
from fedlens.foundation.errors import WrongUse

PLAN = "plan"
"""Under which key of a run's ledger header its whole plan stands."""


def plan_record(schedule: Iterable[tuple[Event, int]]) -> list[dict[str, Any]]:
    """A plan as a ledger's header has it: each mechanism with how often it is to run."""
    return [{"event": event.to_json(), "times": times} for event, times in schedule]


def plan_in_header(header: Mapping[str, Any]) -> Counter[Event]:
    """What a run planned to release; nothing where its header does not say.

    Raises:
        EventError: an event is not one we know.
    """
    plan: Counter[Event] = Counter()
    for one in header.get(PLAN, ()):
        plan[event_from_json(one["event"])] += int(one["times"])
    return plan


def releases_of(ledger: Ledger) -> Counter[Event]:
    """What a run's own ledger holds, and what is left of its plan once it has begun.

    Who may end a run after looking at its releases has made its length one of them: see
    `Account.at_any_end`.
    """
    own = Counter(entry.event for entry in ledger.entries)
    prior = PriorReleases.in_header(ledger.header)
    begun = own or (prior is not None and prior.counted)
    return own | plan_in_header(ledger.header) if begun else own


class LedgersTogether:
    """Ledgers of runs about the same people, read and checked, none of them a population's."""

    def __init__(self, ledgers: Sequence[Ledger]) -> None:
        """Compose what they hold, each release once.

        What a run builds on is taken from its header where that run's own ledger is not there.

        Raises:
            WrongUse: no ledger, or they protect different units.
        """
        self.ledgers = tuple(ledgers)
        self.releases: Counter[Event] = Counter()
        """Each mechanism with how often it was released, or is planned in a run that has begun."""
        for ledger in ledgers:
            self.releases += releases_of(ledger)
        known = {entry.hash for ledger in ledgers for entry in ledger.entries}
        runs = {str(ledger.header.get("run_id")) for ledger in ledgers}
        for ledger in ledgers:
            prior = PriorReleases.in_header(ledger.header)
            if prior is not None:
                self.releases += _beyond(prior, known, runs)
                known |= {release.entry for release in prior.releases}
                runs.add(prior.run_id)
        units = {event.unit for event in self.releases}
        if len(units) > 1 or not ledgers:
            raise WrongUse(f"ledgers of units {sorted(units)} cannot be added up: take one unit")
        self._account = DifferentialAccountant()
        for event, times in self.releases.items():
            self._account.compose(event, times)

    @property
    def events(self) -> list[Event]:
        """The releases as few events of high count, which cost the same."""
        return [replace(event, count=event.count * n) for event, n in self.releases.items()]

    def spent(self, delta: float) -> Bound:
        """ε at δ of all of them, if none was chosen by what another one released."""
        return self._account.epsilon(delta)

    def spent_after(self, event: Event, delta: float) -> Bound:
        """The same with one release more."""
        account = copy.deepcopy(self._account)
        account.compose(event)
        return account.epsilon(delta)

    def runs_left(self, events: Sequence[Event], epsilon: float, delta: float) -> int:
        """How many more times all of ``events`` together keep ε at δ within a budget."""

        def fits(runs: int) -> bool:
            account = copy.deepcopy(self._account)
            for event in events:
                account.compose(event, runs)
            return account.epsilon(delta).epsilon <= epsilon

        return most_that(fits) if events else 0

    def shares(self, delta: float) -> tuple[Share, ...]:
        """What each run with an entry has spent by itself, in the order of the ledgers."""
        return tuple(
            share_of(str(ledger.header.get("run_id", "")), ledger.entries, delta)
            for ledger in self.ledgers
            if len(ledger)
        )


def _beyond(prior: PriorReleases, known: set[str], runs: set[str]) -> Counter[Event]:
    """What a header says of a run that is built on, beyond the ledgers that are there."""
    if prior.other_people:
        return Counter()
    more = Counter(one.event for one in prior.releases if one.entry not in known)
    return more if prior.run_id in runs else more + Counter(prior.unrun)
