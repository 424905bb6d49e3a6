"""The run's ledger, the noised norms that it released, and both accountants over them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedlens.accountant.account import Account, Spending
from fedlens.accountant.bayesian.noised_norms import NoisedNorms
from fedlens.accountant.events import SubsampledGaussian
from fedlens.accountant.ledger.evidence import Evidence, EvidenceFile, SignedLater
from fedlens.accountant.ledger.high_water import HighWaterMark
from fedlens.accountant.ledger.ledger import Ledger, LedgerEntry, LedgerError, read_header
from fedlens.accountant.ledger.one_time import OneTimeKey
from fedlens.accountant.ledger.population import OutOfBudget, Population
from fedlens.accountant.ledger.prior import HEADER, PriorReleases
from fedlens.accountant.ledger.terms import LEDGER
from fedlens.accountant.ledger.together import PLAN, plan_record
from fedlens.accountant.probing import approved_as
from fedlens.accountant.wording import shown
from fedlens.foundation.errors import WrongUse
from fedlens.foundation.profile import timed
from fedlens.server.config.schedule import ScheduledTask, total_rounds
from fedlens.server.config.tasks import TaskConfig
from fedlens.server.config.tree import Config, ConfigError
from fedlens.server.ledger.plan import (
    ENROLLED,
    empty_account,
    enrolled_in,
    noise_source,
    own_plan,
    plan_in,
)
from fedlens.server.ledger.population import joined, population_folder
from fedlens.server.run.directory import RunDirectory

SIDE = "split"
"""Under which key of a ledger's header the side of a private split stands."""


def question_of(name: str, settings: TaskConfig, run_id: str = "") -> str:
    """What a task asks, as an officer approves it: with the run whose network is asked.

    Args:
        name: of the task.
        settings: its own.
        run_id: of the run that asks it, whose own network it may ask.

    Raises:
        ConfigError: the run whose network is asked has released nothing yet.
        LedgerError: its ledger was harmed.
    """
    from fedlens.models.probes.asking import parse_probe  # with torch

    if not settings.asked:
        return settings.released
    asks_network = parse_probe(settings.asked).probe.needs_model
    network_of = run_id if asks_network else ""
    if asks_network and settings.asked_run:
        try:
            network_of = str(read_header(Path(settings.asked_run) / LEDGER)[0]["run_id"])
        except OSError as error:
            raise ConfigError(
                f"tasks.{name}.model = {settings.asked_run!r}: its ledger cannot be read "
                f"({error.strerror}); name a run that has released something"
            ) from None
    return approved_as(settings.asked, network_of)


class RunLedger:
    """Opened once per process; an entry is durable when its `RoundCharge` was paid.

    Where the run belongs to a population, each of its entries has an earlier one in the
    population's ledger, and the population's budget forbids rounds as the run's own does.
    """

    def __init__(
        self,
        config: Config,
        directory: RunDirectory,
        run_id: str,
        prior: PriorReleases | None = None,
        users: str = "",
        enrolled: int = 0,
    ) -> None:
        """Open the ledger of a run, or begin it.

        Args:
            config: the run's.
            directory: the run's.
            run_id: of a run that begins.
            prior: what the run spent that it builds on; a begun ledger has it in its header.
            users: the side of a private split that it is about, which its header has too.
            enrolled: users enrolled as it begins, over whom Bayesian figures are an average; 0 for
                all that are declared.

        Raises:
            LedgerError: the run's ledger or that of its population cannot be trusted.
            PopulationError: the run cannot spend from the population that it names.
            OutOfBudget: its population cannot pay what the filter cost.
            ConfigError: the Bayesian budget is too small to be kept to.
        """
        privacy = config.privacy
        self._budget, self._bayesian_budget = (
            privacy.epsilon_budget,
            privacy.bayesian_epsilon_budget,
        )
        self._population, self._users = joined(config), users or config.data.slice
        self._evidence = EvidenceFile(directory.evidence)
        if directory.ledger.exists():
            self._ledger = Ledger.open(directory.ledger)
            if self._ledger.header.get(SIDE, "") != users:
                raise LedgerError(directory.ledger, 1, "is about another side of a split, or none")
        else:
            header = _header(config, run_id, self._population, prior, users, enrolled)
            self._ledger = Ledger.create(directory.ledger, header)
        self._mark = HighWaterMark(self._ledger)
        self._account = account_of(config, directory, self._ledger, self._evidence)
        self._evidence.forget()  # every round's is in the account, and adds nothing to memory
        self._plan = plan_in(config, self._ledger.header)
        if self._population is not None:
            check_population(self._ledger, self._population)
            if (known := PriorReleases.in_header(self._ledger.header)) is not None:
                self._population.charge_prior(known)  # again without effect

    @property
    def entries(self) -> tuple[LedgerEntry, ...]:
        """The ledger's entries, the first of index 0."""
        return tuple(self._ledger.entries)

    def __len__(self) -> int:
        """How many entries there are."""
        return len(self._ledger)

    def between(self, first: int, end: int) -> tuple[LedgerEntry, ...]:
        """The entries from index ``first`` up to, and without, ``end``."""
        return self._ledger.between(first, end)

    @property
    def head(self) -> str:
        """Hash of the last line, which pins the whole chain."""
        return self._ledger.head

    @property
    def run_id(self) -> str:
        """The run that the ledger belongs to."""
        return str(self._ledger.header["run_id"])

    def check(self, head: str, entries: int) -> None:
        """Compare the ledger with what a saved state knows of it.

        Raises:
            LedgerError: it was changed or cut since.
        """
        Ledger.verify(self._ledger.path, expected_head=head, expected_entries=entries)

    @timed("accounting")
    def spending(self) -> Spending:
        """What all entries so far have spent, by both accountants."""
        return self._account.spending()

    @timed("accounting")
    def published(self) -> Spending:
        """The same with what is proved if the run ends here: see `Account.at_any_end`."""
        return self._account.at_any_end(self._plan)

    @timed("accounting")
    def refusal(
        self, event: SubsampledGaussian, purpose: str, question: str = "", times: int = 1
    ) -> str | None:
        """Why one of the run's budgets, or its population's, forbids ``event``, or None.

        So does an officer of the population who has not approved it: before anybody computes. It
        is put before them, for all ``times`` that it is to be asked.

        The decision looks at the differential privacy account, which does not depend on the data,
        and at the filter's, which is made of releases: stopping reveals nothing. That of the
        population may change until it is charged.
        """
        if self._budget and self._account.would_exceed(event, self._budget):
            spent = shown(self.spending().dp_epsilon)
            return (
                f"the next round would take DP ε above the budget {self._budget:g} "
                f"(spent {spent} in {len(self)} rounds)"
            )
        if self._account.filter_forbids(event):
            return (
                "the next round could take Bayesian ε above the budget "
                f"{self._bayesian_budget:g} ({len(self)} rounds done)"
            )
        if self._population is None:
            return None
        refused = self._population.refusal(event, purpose, self._users)
        if refused:
            return refused
        return self._population.ask_officer(
            event, purpose, self._users, question, run=self.run_id, times=times
        )

    def prepare_charge(self, task: ScheduledTask, number: int) -> RoundCharge:
        """What a round of a task is to be paid with; nothing is written yet.

        Raises:
            OutOfBudget: one of the run's budgets, or its population's, forbids the round.
        """
        event, purpose = task.event, task.settings.purpose
        question = question_of(task.name, task.settings, self.run_id)
        reason = self.refusal(event, purpose, question, task.last - number + 1)
        if reason is not None:
            raise OutOfBudget(reason)
        return RoundCharge(self, event, number, purpose, question)

    def seal(self, norms: NoisedNorms) -> Evidence:
        """Noised norms with a salted commitment to them; nothing is written."""
        return self._evidence.seal(norms)

    def append(
        self,
        event: SubsampledGaussian,
        number: int,
        purpose: str,
        digest: str | None,
        question: str = "",
    ) -> LedgerEntry:
        """Put a round's entry on disk: in the population's ledger first, then in the run's.

        A crash between the two leaves a round that the population paid for and that was not
        released, never the reverse.

        Args:
            event: the round's.
            number: the round.
            purpose: what it is for.
            digest: commitment to its noised norms, or the key that is to sign them.
            question: of a probe, as `question_of` says.

        Raises:
            OutOfBudget: another run took what was left of the population's budget. Nothing was
                written, and nothing may be released.
        """
        with self._mark.held(self._ledger):  # another copy of the folder may go on meanwhile
            if self._population is not None:
                self._population.charge(
                    event,
                    run=self.run_id,
                    number=number,
                    purpose=purpose,
                    users=self._users,
                    question=question,
                )
            entry = self._ledger.append(
                event, round=number, purpose=purpose, evidence_digest=digest
            )
            self._mark.raise_to(self._ledger)
        return entry

    def book(self, entry: LedgerEntry, evidence: Evidence | None) -> None:
        """Put an entry's noised norms on disk, then both into both accounts."""
        if evidence is not None:
            self._evidence.append(entry.index, evidence)
        self._account.charge(entry.event, None if evidence is None else evidence.histogram)


class RoundCharge:
    """What one round costs, for one purpose: it pays for one release.

    Where a crash keeps noised norms from the disk after the round's entry, the round is charged at
    the clipping norm from then on.
    """

    def __init__(
        self,
        ledger: RunLedger,
        event: SubsampledGaussian,
        number: int,
        purpose: str,
        question: str = "",
    ) -> None:
        self.event, self._number = event, number
        self._purpose, self._question = purpose, question
        self._ledger, self._paid = ledger, False

    @timed("accounting")
    def pay(self, norms: NoisedNorms | None = None) -> LedgerEntry:
        """Put the round's entry on disk, then its noised norms, then both into both accounts.

        Raises:
            OutOfBudget: another run took what was left of the population's budget. Nothing was
                written, and nothing may be released.
            WrongUse: it has paid for a release already.
        """
        sealed = self._ledger.seal(norms) if norms is not None else None
        entry = self._append(sealed.digest if sealed else None)
        self._ledger.book(entry, sealed)
        return entry

    @timed("accounting")
    def pay_ahead(self, *, norms: bool) -> RoundPaidAhead:
        """Put the round's entry on disk before its noised sum, norms and all, can be known.

        Args:
            norms: whether norms are to come. Where a crash comes before them, the round is charged
                at the clipping norm.

        Raises:
            OutOfBudget, WrongUse: as `pay`.
        """
        key = OneTimeKey() if norms else None
        entry = self._append(None if key is None else key.public)
        return RoundPaidAhead(self._ledger, entry, key)

    def _append(self, digest: str | None) -> LedgerEntry:
        if self._paid:
            raise WrongUse(f"round {self._number} is paid for: its noise must not be drawn again")
        entry = self._ledger.append(self.event, self._number, self._purpose, digest, self._question)
        self._paid = True
        return entry


@dataclass(frozen=True)
class RoundPaidAhead:
    """A round whose entry is on disk, and whose norms are to come or never will."""

    ledger: RunLedger
    entry: LedgerEntry
    key: OneTimeKey | None
    """Signs the norms that the entry commits to."""

    @timed("accounting")
    def book(self, norms: NoisedNorms | None) -> None:
        """Count the round with its norms, or at the clipping norm where there are none."""
        signed = None if self.key is None or norms is None else SignedLater.by(self.key, norms)
        self.ledger.book(self.entry, signed)


def account_of(
    config: Config, directory: RunDirectory, ledger: Ledger, evidence: EvidenceFile
) -> Account:
    """Both accountants over a ledger and the noised norms that its run released.

    Raises:
        LedgerError: the ledger was begun for another configuration.
    """
    if ledger.header.get("config_sha256") != config.digest():
        raise LedgerError(ledger.path, 1, "belongs to another configuration than config.toml")
    prior = PriorReleases.in_header(ledger.header)
    account = empty_account(config, prior, enrolled_in(config, ledger.header))
    account.replay(ledger.entries, evidence)
    return account


def check_population(ledger: Ledger, population: Population) -> None:
    """Hold a run's ledger against that of its population.

    Raises:
        LedgerError: the run was begun with another population.
        PopulationError: an entry of the run is not in the population's ledger.
    """
    if ledger.header.get("population") != population.identity:
        raise LedgerError(
            ledger.path, 1, f"belongs to another population than {population.ledger.path}"
        )
    population.require_entries(str(ledger.header["run_id"]), ledger.entries)


def population_of(config: Config, ledger: Ledger) -> Population | None:
    """The population that a run spends from to readers; both chains hold.

    Raises:
        PopulationError: it is not there, or lacks an entry of the run.
        LedgerError: its ledger cannot be trusted, or the run's was begun with another one.
    """
    if not config.privacy.population:
        return None
    population = Population.read(population_folder(config.privacy.population))
    check_population(ledger, population)
    return population


def spending_of(config: Config, directory: RunDirectory) -> Spending:
    """What a run's ledger says it has spent, to readers, to whom any end may have been chosen.

    Raises:
        LedgerError: the ledger cannot be trusted, or is of another configuration.
    """
    ledger = Ledger.read(directory.ledger)
    account = account_of(config, directory, ledger, EvidenceFile(directory.evidence))
    return account.at_any_end(plan_in(config, ledger.header))


def _header(
    config: Config,
    run_id: str,
    population: Population | None,
    prior: PriorReleases | None,
    users: str,
    enrolled: int,
) -> dict[str, object]:
    fewer = 0 < enrolled < config.data.users
    return {
        "run_id": run_id,
        "config_sha256": config.digest(),
        "users": config.data.users,
        "rounds_declared": total_rounds(config),
        "unit": config.privacy.unit,
        "noise_source": noise_source(config),
        PLAN: plan_record(own_plan(config, prior, enrolled)),
        **({} if population is None else {"population": population.identity}),
        **({} if prior is None else {HEADER: prior.to_json()}),
        **({SIDE: users} if users else {}),
        **({ENROLLED: enrolled} if fewer else {}),
    }
