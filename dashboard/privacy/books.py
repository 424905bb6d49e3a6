"""The ledgers of some people, read and checked: what they spent in total, and what is left."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from fedlens.accountant.events import Event
from fedlens.accountant.ledger.high_water import HighWaterMark
from fedlens.accountant.ledger.ledger import Ledger
from fedlens.accountant.ledger.officer import Decision, OfficerRules, WaitingProbe
from fedlens.accountant.ledger.population import Population, PopulationError
from fedlens.accountant.ledger.spending import PROBE, Share
from fedlens.accountant.ledger.terms import LEDGER, population_folder
from fedlens.accountant.ledger.together import LedgersTogether, plan_in_header
from fedlens.accountant.probing import probe_event, probe_noise
from fedlens.dashboard.access.session import store_of
from fedlens.dashboard.privacy.people import People, all_people, by_run
from fedlens.foundation.errors import FedlensError
from fedlens.store import RoundRecord, RunRecord

BUDGET = "privacy.epsilon_budget"
DELTA, BAYESIAN_DELTA = 1e-5, 1e-10
"""Where neither settings nor figures say which."""
PROBES = (0.1, 0.3, 1.0)
"""DP ε of the probes that it is said of how many are left."""
MOST_PLANS = 3
MOST_BOUGHT = 10_000
"""So many are counted at most where it is said what is left would buy."""


@dataclass(frozen=True)
class PrivacyTotal:
    """What some people's privacy was spent by, everything together."""

    epsilon: float
    """DP ε at ``delta``: the binding figure. Infinite without a guarantee."""
    delta: float
    epsilon_at_bayesian: float
    """DP ε at ``bayesian_delta``."""
    bayesian: float
    """Bayesian ε at ``bayesian_delta``, sound."""
    bayesian_delta: float
    budget: float | None
    """DP ε at ``delta`` that it is held against; None where none was set."""
    used: float | None
    """What part of the budget is used: as the population's filter counts, or ε over budget."""


class Chain(NamedTuple):
    """A ledger as it was found."""

    name: str
    path: Path
    ledger: Ledger | None
    problem: str = ""
    """What is wrong with it, in words; empty where its chain holds."""


@dataclass
class Books:
    """Everything that was read, at one moment."""

    people: People
    chains: list[Chain] = field(default_factory=list)
    """The population's first, then its runs' own."""
    population: Population | None = None
    together: LedgersTogether | None = None
    """Without a population."""
    rounds: dict[str, RoundRecord] = field(default_factory=dict)
    """The last of each run, as its store has it."""

    @property
    def problems(self) -> list[str]:
        """All that is wrong with the ledgers."""
        return [f"{one.name}: {one.problem}" for one in self.chains if one.problem]

    @property
    def readable(self) -> bool:
        """Whether what was spent is known from ledgers, not from a store's copy alone."""
        return self.population is not None or self.together is not None

    def delta(self) -> float:
        """δ that DP's ε is stated at: the population's, or the first run's."""
        if self.population is not None:
            return self.population.terms.delta
        return self._setting("privacy.delta", lambda one: one.delta_dp, DELTA)

    def bayesian_delta(self) -> float:
        """δ that Bayesian ε is stated at."""
        return self._setting("privacy.bayesian_delta", lambda one: one.delta_bdp, BAYESIAN_DELTA)

    def _setting(self, key: str, figure: Callable[[RoundRecord], float], otherwise: float) -> float:
        run = self.people.runs[0]
        given, last = run.config.get(key), self.rounds.get(run.run_id)
        if isinstance(given, int | float):
            return float(given)
        return otherwise if last is None else figure(last)

    def spent(self, delta: float) -> float:
        """DP ε at δ of everything; never below what one of the runs says of itself.

        Infinite where nothing known bounds it: a store has a run's figure at the run's own δ alone.
        """
        own = [bound for one in self.rounds.values() if (bound := _own(one, delta)) is not None]
        found = [math.inf] if any(not run.private for run in self.people.runs) else own
        if self.population is not None:
            found.append(self.population.spent(delta=delta).epsilon)
        elif self.together is not None:
            found.append(self.together.spent(delta).epsilon)
        elif len(self.rounds) > 1 or len(own) < len(self.rounds):
            return math.inf  # only ledgers say what several runs come to, or one at another δ
        return max(found, default=0.0)

    def budget(self) -> float | None:
        """DP ε that may be spent: the population's, or that at which a run stops by itself."""
        if self.population is not None:
            return self.population.terms.epsilon_budget
        own = [budget for run in self.people.runs if (budget := budget_of(run)) > 0]
        return own[0] if own and not self.people.population else None

    def used(self) -> float | None:
        """What part of the budget is used up."""
        if self.population is not None:
            return self.population.share_spent()
        budget = self.budget()
        return None if budget is None else self.spent(self.delta()) / budget

    def used_after(self, event: Event, users: str = "") -> float | None:
        """The same after one release more."""
        if self.population is not None:
            return self.population.share_spent(users, event)
        budget = self.budget()
        if budget is None or self.together is None:
            return None
        return self.together.spent_after(event, self.delta()).epsilon / budget

    def waiting(self) -> list[WaitingProbe]:
        """What runs and commands were not let ask; none where the rules cannot be read."""
        try:
            return [] if self.population is None else self.population.waiting()
        except PopulationError:
            return []  # the question who may spend says so

    def decided(self) -> tuple[Decision, ...]:
        """What an officer said of such, the last one first."""
        try:
            return (
                () if self.population is None else OfficerRules.read(self.population.folder).decided
            )
        except PopulationError:
            return ()

    def total(self) -> PrivacyTotal:
        """The figures."""
        delta, bayesian_delta = self.delta(), self.bayesian_delta()
        at_bayesian = self.spent(bayesian_delta)
        own = [one.bdp_sound for one in self.rounds.values() if one.delta_bdp == bayesian_delta]
        bayesian = min(at_bayesian, *own) if self.people.alone and own else at_bayesian
        budget, used = self.budget(), self.used()
        return PrivacyTotal(
            self.spent(delta), delta, at_bayesian, bayesian, bayesian_delta, budget, used
        )

    def shares(self) -> tuple[Share, ...]:
        """What each run and probe spent, as far as ledgers say."""
        if self.population is not None:
            return self.population.shares()
        return () if self.together is None else self.together.shares(self.delta())

    def rounds_left(self) -> list[tuple[str, int]]:
        """What the rest of the budget buys, in words, each by itself, with how many."""
        budget = self.budget()
        if budget is None or not self.readable:
            return []
        found = [
            (f"probes of ε = {epsilon:g}", self._left([self._probe(epsilon)], PROBE))
            for epsilon in PROBES
            if self._unit() == "user"
        ]
        found += [(f"whole runs like {name}", self._left(plan)) for name, plan in self._plans()]
        last = self._last_event()
        return found if last is None else [("rounds like the last one", self._left([last])), *found]

    def _left(self, events: Sequence[Event], purpose: str = "") -> int:
        if self.population is not None:
            if len(events) == 1:
                return self.population.rounds_left(events[0], MOST_BOUGHT, purpose)
            return self.population.runs_left(events, MOST_BOUGHT)
        budget = self.budget()
        if self.together is None or budget is None:
            return 0
        return self.together.runs_left(events, budget, self.delta())

    def _probe(self, epsilon: float) -> Event:
        return probe_event(probe_noise(epsilon, self.delta()))

    def _unit(self) -> str:
        return self.people.runs[0].unit

    def _plans(self) -> list[tuple[str, list[Event]]]:
        """The plans that runs' ledgers name, the newest first, each plan once."""
        found: dict[frozenset[tuple[Event, int]], str] = {}
        for chain in reversed(self.chains):
            if chain.ledger is None or chain.ledger is self._book():
                continue
            if any(entry.purpose == PROBE for entry in chain.ledger.entries):
                continue
            plan = plan_in_header(chain.ledger.header)
            if plan:
                found.setdefault(frozenset(plan.items()), chain.name)
        plans = [
            (name, [replace(e, count=e.count * n) for e, n in plan]) for plan, name in found.items()
        ]
        return plans[:MOST_PLANS]

    def _book(self) -> Ledger | None:
        return None if self.population is None else self.population.ledger

    def _last_event(self) -> Event | None:
        entries = [
            entry
            for chain in self.chains
            if chain.ledger is not None
            and (self.population is None or chain.ledger is self._book())
            for entry in chain.ledger.entries
            if entry.purpose != PROBE
        ]
        return entries[-1].event if entries else None


def _own(last: RoundRecord, delta: float) -> float | None:
    """What a run's own page says at a δ."""
    return last.dp_epsilon if last.delta_dp == delta else None


def budget_of(run: RunRecord) -> float:
    """The DP ε at which the run stops; 0 for none."""
    value = run.config.get(BUDGET, 0.0)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


def open_books(people: People) -> Books:
    """Read all ledgers of some people and check their chains now."""
    books = Books(people)
    for run in people.runs:
        rounds = store_of(run.run_id).rounds(run.run_id)
        if rounds:
            books.rounds[run.run_id] = rounds[-1]
    if people.population:
        _open_population(books)
    names = {run.run_id: run.name for run in people.runs}
    own = [
        _checked(names.get(run_id, folder.name), folder / LEDGER)
        for run_id, folder in people.folders.items()
    ]
    for chain in own:
        books.chains.append(_held_against(books.population, chain))
    if not people.population:
        _add_up(books)
    return books


def check_mirrors(books: Books) -> None:
    """Compare runs' own ledgers with the copies that their stores have of them."""
    folders = {folder / LEDGER: run_id for run_id, folder in books.people.folders.items()}
    known = {run.run_id for run in books.people.runs}
    for place, chain in enumerate(books.chains):
        run_id = folders.get(chain.path)
        if chain.ledger is None or chain.problem or run_id not in known or run_id is None:
            continue
        hashes = [entry.hash for entry in chain.ledger.entries]
        for row in store_of(run_id).ledger(run_id):
            if hashes[row.index : row.index + 1] != [row.entry_hash]:
                problem = f"its store has another entry {row.index}, or the ledger was cut"
                books.chains[place] = chain._replace(problem=problem)
                break


def _add_up(books: Books) -> None:
    read = [one.ledger for one in books.chains if one.ledger is not None]
    missing = {run.run_id for run in books.people.runs} - set(books.people.folders)
    if not read or missing or books.problems:
        return
    try:
        books.together = LedgersTogether(read)
    except FedlensError as error:
        last = books.chains[-1]
        books.chains[-1] = last._replace(problem=str(error))


def _open_population(books: Books) -> None:
    named = books.people.population
    path = population_folder(named) / LEDGER
    try:
        books.population = Population.read(path.parent)
        books.chains.append(Chain(f"population {books.people.name}", path, books.population.ledger))
    except (FedlensError, OSError) as error:
        books.chains.append(Chain(f"population {books.people.name}", path, None, _why(error)))


def _checked(name: str, path: Path) -> Chain:
    try:
        return Chain(name, path, HighWaterMark.read(path))
    except (FedlensError, OSError) as error:
        return Chain(name, path, None, _why(error))


def _held_against(population: Population | None, chain: Chain) -> Chain:
    """A run's own ledger against that of the population that it names."""
    ledger = chain.ledger
    if population is None or ledger is None:
        return chain
    if ledger.header.get("population") != population.identity:
        return chain._replace(problem="it belongs to another population than the one it names now")
    try:
        population.require_entries(str(ledger.header["run_id"]), ledger.entries)
    except FedlensError as error:
        return chain._replace(problem=_why(error))
    return chain


def _why(error: Exception) -> str:
    """What is wrong, without saying where on this machine the files lie."""
    if isinstance(error, OSError):
        return f"it cannot be read: {error.strerror}"
    return _FOLDERS.sub("", str(getattr(error, "problem", error)))


def total_of(people: People) -> PrivacyTotal:
    """What some people's privacy was spent by; computed anew once a ledger has grown."""
    if not people.folders and not people.population:
        return open_books(people).total()
    paths = [folder / LEDGER for folder in people.folders.values()]
    if people.population:
        paths.append(population_folder(people.population) / LEDGER)
    statuses = tuple((run.run_id, run.status) for run in people.runs)
    return _total(people.key, statuses, tuple(_stamp(path) for path in paths), _Unkeyed(people))


_FOLDERS = re.compile(r"(?<!\S)/(?:[^\s/]+/)+")
ENDED = ("finished", "stopped-by-budget")


class Totals:
    """What is spent in total of the people of each run: the same on every page.

    Made once for a page; each total is computed when it is asked for.
    """

    def __init__(self) -> None:
        self._people = by_run(all_people())
        self._found: dict[str, PrivacyTotal] = {}

    def beyond(self, run: RunRecord) -> PrivacyTotal | None:
        """The total, where it is more than the run's own figure; None where that is all."""
        people = self._people.get(run.run_id)
        if people is None or (people.alone and run.status in ENDED):
            return None
        if people.key not in self._found:
            self._found[people.key] = total_of(people)
        return self._found[people.key]


def _stamp(path: Path) -> tuple[str, int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return str(path), 0, 0, 0
    return str(path), found.st_ino, found.st_size, found.st_ctime_ns


class _Unkeyed:
    """Something that a cache hands on and does not go by."""

    def __init__(self, people: People) -> None:
        self.people = people

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Unkeyed)

    def __hash__(self) -> int:
        return 0


@lru_cache(maxsize=4096)
def _total(_key: str, _runs: object, _files: object, given: _Unkeyed) -> PrivacyTotal:
    return open_books(given.people).total()
