"""One privacy budget for a population, whatever number of runs spend from it.

A run's own ledger knows that run alone, so two runs over the same users would each spend a whole
budget. A population is a folder with a chained ledger of its own: its header fixes whose privacy it
is and how much may be spent, its entries are the releases of all runs, in the order granted. The
check against the budget and the entry are one step that no other process comes between.

An entry is a grant, on disk before anything is released. A grant that a crash left unused stays
spent: whether noise was drawn for it cannot be known where a run's folder may have been copied or
restored from an older copy, so an entry is never used twice. Nothing gives budget back, neither
resuming nor deleting a run.

The decision rests on differential privacy alone. It looks at no data, so being refused tells
nothing. It is a filter's (`fedlens.accountant.dp.filter`), of an order that the header fixes: the
budget holds though people look at what one run released and then choose the noise, rate and length
of the next. What accountants make of the grants so far is shown beside it and decides nothing: it
holds only where no setting was chosen in that way.
"""

from __future__ import annotations

import copy
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from itertools import groupby
from pathlib import Path

from fedlens.accountant.bounds import Bound
from fedlens.accountant.events import Event
from fedlens.accountant.ledger.high_water import HighWaterMark
from fedlens.accountant.ledger.ledger import Ledger, LedgerEntry, LedgerError
from fedlens.accountant.ledger.officer import OfficerMethods
from fedlens.accountant.ledger.prior import PriorReleases
from fedlens.accountant.ledger.spending import (
    MOST_ROUNDS,
    PopulationSpending,
    Share,
    most_that,
    share_of,
)
from fedlens.accountant.ledger.terms import LEDGER, PopulationError, PopulationTerms, ledger_in
from fedlens.accountant.wording import percentage, shown
from fedlens.foundation.errors import ExitStatus, FedlensError
from fedlens.foundation.files import make_folder_durably

__all__ = ["OutOfBudget", "Population", "PopulationError", "PopulationTerms", "Share"]

EARLIER = "earlier run that a run builds on"
"""Purpose of entries that `Population.charge_prior` makes."""


class OutOfBudget(FedlensError, ValueError):
    """A release that a budget forbids. Nothing was spent, and nothing may be released."""

    exit_status = ExitStatus.OUT_OF_BUDGET


class Population(OfficerMethods):
    """A population's folder, opened. Several processes may charge it at once."""

    def __init__(self, ledger: Ledger) -> None:
        try:
            self.terms = PopulationTerms.from_header(ledger.header)
        except PopulationError as error:
            raise PopulationError(f"{ledger.path}: {error}") from None
        self._ledger, self._account, self._booked = ledger, PopulationSpending(self.terms), 0
        self._mark = HighWaterMark(ledger)
        self._book()

    @classmethod
    def create(cls, folder: Path, terms: PopulationTerms) -> Population:
        """Make a population, durable on return, told by its id from any other of the same terms.

        Args:
            folder: of the population; made if need be.
            terms: fixed from now on.

        Raises:
            PopulationError: there is one already.
        """
        if (folder / LEDGER).exists():
            raise PopulationError(f"{folder} holds a population already; its budget stays as it is")
        make_folder_durably(folder, private=True)  # who spends what, and members beside it
        return cls(Ledger.create(folder / LEDGER, {**asdict(terms), "id": uuid.uuid4().hex}))

    @classmethod
    def open(cls, folder: Path) -> Population:
        """Open a population for its runs and check its whole chain.

        Raises:
            PopulationError: there is none.
            LedgerError: its ledger cannot be trusted, or is an older copy than was charged here.
        """
        found = cls(Ledger.open(ledger_in(folder)))
        with found._held():
            return found

    @classmethod
    def read(cls, folder: Path) -> Population:
        """The same for who only looks: nothing is changed, and no right to write is needed."""
        return cls(HighWaterMark.read(ledger_in(folder)))

    @property
    def identity(self) -> str:
        """Hash of the ledger's header: no two populations have the same."""
        return self._ledger.header_hash

    @property
    def folder(self) -> Path:
        """Where its ledger and its officer's rules lie."""
        return self._ledger.path.parent

    @property
    def ledger(self) -> Ledger:
        """All grants so far, as far as this process has read them."""
        return self._ledger

    def refusal(self, event: Event, purpose: str = "training round", users: str = "") -> str | None:
        """Why the terms forbid ``event`` now, or None; arguments as `charge`. Nothing is spent.

        Raises:
            PopulationError: the event is of another unit.
            LedgerError: the ledger was harmed since.
        """
        self._check(event)
        with self._held():
            return self._why_not(event, purpose, users)

    def charge(
        self,
        event: Event,
        *,
        run: str,
        number: int,
        purpose: str = "training round",
        users: str = "",
        question: str = "",
    ) -> LedgerEntry:
        """Grant a release: it is within the budget and on disk when this returns.

        Args:
            event: the mechanism whose result is about to be released.
            run: whose release it is.
            number: its round.
            purpose: what it is for, in words.
            users: slice that it is about, ``attribute=value``; empty for everyone.
            question: of a probe, as `approved_as` calls it: an officer approves it for one slice.

        Raises:
            OutOfBudget: it would pass the budget, or what probes may cost, or waits for an officer.
                Nothing was spent.
            PopulationError: the event is of another unit.
            LedgerError: the ledger was harmed, or cannot be written. Nothing may be released.
        """
        self._check(event)
        with self._held():
            reason = self._why_not(event, purpose, users)
            reason = reason or self.waits(event, purpose, users, question)
            if reason is not None:
                raise OutOfBudget(reason)
            self._use_approval(event, purpose, users, question)  # lost rather than used twice
            entry = self._ledger.append(
                event,
                round=number,
                purpose=purpose,
                evidence_digest=None,
                run=run,
                users=users or None,
            )
            self._mark.raise_to(self._ledger)
            self._book()
        return entry

    def missing(self, prior: PriorReleases) -> PriorReleases:
        """The releases of another run about these people that were not granted here yet.

        Raises:
            PopulationError: another ledger of the same run id was granted something here.
        """
        granted = self._granted(prior.run_id)
        number = prior.contradicted(granted, self.identity)
        if number is not None:
            raise PopulationError(
                f"run {prior.run_id} cannot be built on: {self._ledger.path} has round "
                f"{number} of another ledger with that run id, so its folder was copied and both "
                "copies went on; build on the copy that was booked"
            )
        return prior.missing_in(granted)

    def knows(self, prior: PriorReleases) -> bool:
        """Whether another run is about these people: it spent from here, or was booked here."""
        return prior.population == self.identity or bool(self._granted(prior.run_id))

    def _granted(self, run: str) -> list[LedgerEntry]:
        return [entry for entry in self._ledger.entries if entry.run == run]

    def charge_prior(self, prior: PriorReleases) -> int:
        """Book what another run released of these people, once, all of it or nothing.

        Args:
            prior: of the other run, under whose id it is entered. What was granted to it already,
                because it spent from here itself or another run built on it, is not again.

        Returns:
            How many entries were made.

        Raises:
            OutOfBudget: the filter forbids them. Nothing was spent.
            PopulationError: an event is of another unit, or see `missing`.
            LedgerError: the ledger was harmed, or cannot be written.
        """
        if prior.other_people:
            return 0
        for event in prior.in_bulk:
            self._check(event)
        with self._held():
            missing = self.missing(prior)
            if self._fitting(missing.in_bulk) < len(missing.in_bulk):
                raise OutOfBudget(
                    f"run {prior.run_id}, which this one builds on, was about the same people, and "
                    f"what it cost does not fit what is left of population "
                    f"{self.terms.population!r} with its budget {self.terms.epsilon_budget:g} "
                    f"({self.percent_spent()} used): take a larger budget, or build on another run"
                )
            for number, event, entry in missing.releases:
                self._ledger.append(
                    event,
                    round=number,
                    purpose=EARLIER,
                    evidence_digest=None,
                    run=prior.run_id,
                    source=entry,
                )
            self._mark.raise_to(self._ledger)
            self._book()
        return len(missing.releases)

    def require_entries(self, run: str, entries: Iterable[LedgerEntry]) -> None:
        """Check that every entry of a run's own ledger was granted here, and that it has them all.

        A crash between the two leaves the last one granted alone.

        Raises:
            PopulationError: one was not: this population is an older copy, or not the run's; or
                rounds beyond the run's next one were: the run is an older copy.
        """
        granted = Counter((e.round, e.event) for e in self._granted(run))
        spent = Counter((entry.round, entry.event) for entry in entries)
        missing = sorted(number for number, _ in spent - granted)
        if missing:
            raise PopulationError(
                f"{self._ledger.path} has no entry for round {missing[0]} of run {run}: it was "
                "cut off or restored from an older copy, so what is left of the budget is unknown"
            )
        last = max((number for number, _ in granted), default=0)
        own = max((number for number, _ in spent), default=0)
        if last > own + 1:
            raise PopulationError(
                f"{self._ledger.path} has round {last} of run {run}, whose own ledger.jsonl ends "
                f"with round {own}: it is an older copy, which lacks what was released since; go "
                "on in the folder that has all entries"
            )

    def spent(self, users: str = "", delta: float = 0.0) -> Bound:
        """ε at δ of all grants, as far as this process has read them.

        It presumes that no run's settings were chosen by an earlier release. Without that the
        terms' ε holds, and nothing less: see `share_spent`.

        Args:
            users: slice whose users are meant; empty for those who have spent most.
            delta: δ; 0 for the terms' own.
        """
        return self._account.epsilon(users, delta)

    def spent_after(self, event: Event, users: str = "") -> Bound:
        """What `spent` would be after a release about some users."""
        account = copy.deepcopy(self._account)
        account.compose(event, 1, "", users)
        return account.epsilon(users)

    def spent_on_probes(self) -> Bound:
        """ε at the terms' δ of all probes together, each as if everybody had taken part.

        However they were chosen, it stays within the terms' ``probe_epsilon``.
        """
        return self._account.probes()

    def share_spent(self, users: str = "", after: Event | None = None) -> float:
        """What part of the budget is used up, as the filter counts, in [0, 1].

        Args:
            users: as `spent`.
            after: a release to count too.
        """
        account = self._account
        if after is not None:
            account = copy.deepcopy(account)
            account.compose(after, 1, "", users)
        return account.share(users)

    def percent_spent(self, users: str = "") -> str:
        """`share_spent` in words, rounded up."""
        return percentage(self.share_spent(users))

    def rounds_left(self, event: Event, most: int = MOST_ROUNDS, purpose: str = "") -> int:
        """How many more rounds of ``event`` the budget allows, if no other run spends; ≤ ``most``.

        Args:
            event: one round.
            most: how many are looked for.
            purpose: what they are for: there may be less for probes.

        Raises:
            PopulationError: the event is of another unit.
        """
        self._check(event)
        return most_that(
            lambda n: self._why_not(replace(event, count=event.count * n), purpose) is None, most
        )

    def runs_left(self, events: Sequence[Event], most: int = MOST_ROUNDS) -> int:
        """How many more times all of ``events`` together fit, if no other run spends; ≤ ``most``.

        Raises:
            PopulationError: one is of another unit.
        """
        for event in events:
            self._check(event)

        def fits(runs: int) -> bool:
            more = [replace(event, count=event.count * runs) for event in events]
            return self._fitting(more) == len(more)

        return most_that(fits, most) if events else 0

    def affordable(self, events: Sequence[Event], users: str = "") -> int:
        """How many of ``events``, one after another, the budget allows, if no other run spends.

        They are about a slice where ``users`` names one.

        Raises:
            PopulationError: one is of another unit.
            LedgerError: the ledger was harmed since.
        """
        for event in events:
            self._check(event)
        with self._held():
            return self._fitting(events, users)

    def _fitting(self, events: Sequence[Event], users: str = "") -> int:
        account = copy.deepcopy(self._account)
        for number, event in enumerate(events):
            if account.exceeds_budget(event, users):
                return number
            account.compose(event, 1, "", users)
        return len(events)

    def shares(self) -> tuple[Share, ...]:
        """What each run has spent, in the order in which they first did."""
        runs: dict[str, list[LedgerEntry]] = {}
        for entry in self._ledger.entries:
            runs.setdefault(entry.run or "", []).append(entry)
        return tuple(share_of(run, entries, self.terms.delta) for run, entries in runs.items())

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Hold the ledger against other processes, all that they and other copies wrote known."""
        with self._ledger.held(), self._mark.held(self._ledger):
            self._book()
            yield

    def _check(self, event: Event) -> None:
        if event.unit != self.terms.unit:
            raise PopulationError(
                f"unit = {event.unit!r}, but population {self.terms.population!r} is of unit "
                f"{self.terms.unit!r}: the two never add up; keep a population for each"
            )

    def _why_not(self, event: Event, purpose: str = "", users: str = "") -> str | None:
        terms = self.terms
        if self._account.exceeds_probes(event, purpose):
            return (
                f"the probe would take DP ε of all probes of population {terms.population!r} above "
                f"{terms.probe_epsilon:g}, which its owner leaves to probes (spent "
                f"{shown(self.spent_on_probes().epsilon)})"
            )
        if not self._account.exceeds_budget(event, users):
            return None
        return (
            f"the next round does not fit what is left of population {terms.population!r}, whose "
            f"filter of order {terms.order:g} keeps DP ε within the budget "
            f"{terms.epsilon_budget:g} however runs are chosen ({self.percent_spent(users)} used; "
            f"spent {shown(self.spent(users).epsilon)} if none was chosen by another's releases)"
        )

    def _book(self) -> None:
        """Take in entries that were read since."""
        entries = self._ledger.since(self._booked)
        for (event, purpose, users), alike in groupby(entries, key=_kind):
            first, *more = alike
            try:
                self._check(event)
            except PopulationError as error:
                raise LedgerError(self._ledger.path, first.index + 2, str(error)) from None
            self._account.compose(event, 1 + len(more), purpose, users)
        self._booked += len(entries)


def _kind(entry: LedgerEntry) -> tuple[Event, str, str]:
    return entry.event, entry.purpose, entry.users or ""
