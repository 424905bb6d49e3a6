"""The run's ledger, the noised norms that it released, and both accountants over them."""

from __future__ import annotations

from accountant.account import Account, Spending
from accountant.bayesian.fixed_order import BudgetTooSmall, FixedOrderFilter
from accountant.bayesian.noised_norms import NoisedNorms
from accountant.events import SubsampledGaussian
from accountant.ledger.evidence import EvidenceFile
from accountant.ledger.ledger import Ledger, LedgerEntry, LedgerError
from accountant.ledger.population import Population
from accountant.ledger.prior import HEADER, PriorReleases
from accountant.statement import NoiseSource
from foundation.profile import timed
from server.config.reading import written_digest
from server.config.tasks import TRAINING
from server.config.tree import Config, ConfigError
from server.population import joined, population_folder
from server.run_directory import RunDirectory
from server.schedule import scheduled, total_rounds

SIDE = "split"
"""Under which key of a ledger's header the side of a private split stands."""


class RunLedger:
    """Opened once per process; entries are durable when `charge` returns.

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
    ) -> None:
        """Open the ledger of a run, or begin it.

        Args:
            config: the run's.
            directory: the run's.
            run_id: of a run that begins.
            prior: what the run spent that it builds on; a begun ledger has it in its header.
            users: the side of a private split that it is about, which its header has too.

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
            header = _header(config, run_id, self._population, prior, users)
            self._ledger = Ledger.create(directory.ledger, header)
        self._account = account_of(config, directory, self._ledger, self._evidence)
        self._plan = _plan(config, PriorReleases.in_header(self._ledger.header))
        if self._population is not None:
            check_population(self._ledger, self._population)
            if (known := PriorReleases.in_header(self._ledger.header)) is not None:
                self._population.charge_prior(known)  # again without effect

    @property
    def entries(self) -> tuple[LedgerEntry, ...]:
        """The ledger's entries, the first of index 0."""
        return tuple(self._ledger.entries)

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
    def refusal(self, event: SubsampledGaussian, purpose: str = TRAINING) -> str | None:
        """Why one of the run's budgets, or its population's, forbids ``event``, or None.

        The decision looks at the differential privacy account, which does not depend on the data,
        and at the filter's, which is made of releases: stopping reveals nothing. That of the
        population may change until `charge`.
        """
        if self._budget and self._account.would_exceed(event, self._budget):
            spent = self.spending().dp_epsilon
            return (
                f"the next round would take DP ε above the budget {self._budget:g} "
                f"(spent {spent:.4g} in {len(self.entries)} rounds)"
            )
        if self._account.filter_forbids(event):
            return (
                "the next round could take Bayesian ε above the budget "
                f"{self._bayesian_budget:g} ({len(self.entries)} rounds done)"
            )
        if self._population is None:
            return None
        return self._population.refusal(event, purpose, self._users)

    @timed("accounting")
    def charge(
        self,
        event: SubsampledGaussian,
        number: int,
        norms: NoisedNorms | None,
        purpose: str = TRAINING,
    ) -> None:
        """Put a round's entry on disk, then its noised norms, then both into both accounts.

        The entry in the population's ledger comes first: a crash between the two leaves a round
        that the population paid for and that was not released, never the reverse. The run's entry
        carries a salted commitment to the norms. Where a crash keeps these from the disk, the round
        is charged at the clipping norm from then on.

        Raises:
            OutOfBudget: another run took what was left of the population's budget. Nothing was
                written, and nothing may be released.
        """
        if self._population is not None:
            self._population.charge(
                event, run=self.run_id, number=number, purpose=purpose, users=self._users
            )
        sealed = self._evidence.seal(norms) if norms is not None else None
        entry = self._ledger.append(
            event,
            round=number,
            purpose=purpose,
            evidence_digest=sealed.digest if sealed else None,
        )
        if sealed is not None:
            self._evidence.append(entry.index, sealed)
        self._account.charge(event, norms)


def account_of(
    config: Config, directory: RunDirectory, ledger: Ledger, evidence: EvidenceFile
) -> Account:
    """Both accountants over a ledger and the noised norms that its run released.

    A run that an earlier version began is known by the settings that there were then: those that
    came later have their defaults.

    Raises:
        LedgerError: the ledger was begun for another configuration.
    """
    written = written_digest(directory.settings_file)
    if ledger.header.get("config_sha256") not in {config.digest(), written}:
        raise LedgerError(ledger.path, 1, "belongs to another configuration than config.toml")
    prior = PriorReleases.in_header(ledger.header)
    account = _empty_account(config, prior)
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
    return account.at_any_end(_plan(config, PriorReleases.in_header(ledger.header)))


def filter_of(config: Config, prior: PriorReleases | None = None) -> FixedOrderFilter | None:
    """The privacy filter that a configuration declares, with nothing spent; None without one.

    Args:
        config: the run's.
        prior: what was released before, of the same people.

    Raises:
        ConfigError: its budget is too small to be kept to.
    """
    privacy, before = config.privacy, () if prior is None else prior.counted
    if not privacy.bayesian_epsilon_budget:
        return None
    try:
        return FixedOrderFilter(
            [
                *((event, 1) for event in before),
                *((task.event, task.rounds) for task in scheduled(config)),
            ],
            epsilon=privacy.bayesian_epsilon_budget,
            delta=privacy.bayesian_delta,
            users=config.data.users,
        )
    except BudgetTooSmall as error:
        raise ConfigError(f"privacy.bayesian_epsilon_budget: {error}") from None


def _empty_account(config: Config, prior: PriorReleases | None = None) -> Account:
    """The account before the run's first round: what the run builds on is in it from the start."""
    events, privacy = () if prior is None else prior.counted, config.privacy
    account = Account(
        total_rounds=total_rounds(config) + len(events),
        delta_dp=privacy.delta,
        delta_bdp=privacy.bayesian_delta,
        noise_source=noise_source(config),
        users=config.data.users if privacy.unit == "user" else None,
        norms_filter=filter_of(config, prior),
    )
    for event in events:
        account.charge(event, None)
    return account


def planned(config: Config, prior: PriorReleases | None = None) -> Spending:
    """What all declared rounds will have spent: DP exactly, Bayesian DP at worst.

    A budget of differential privacy ends the plan where it will end the run, for no release moves
    that end.
    """
    return _plan(config, prior).spending()


def _plan(config: Config, prior: PriorReleases | None) -> Account:
    account, budget = _empty_account(config, prior), config.privacy.epsilon_budget
    for task in scheduled(config):
        for _ in range(task.rounds):
            if budget and account.would_exceed(task.event, budget):
                return account
            account.charge(task.event, None)
    return account


def noise_source(config: Config) -> NoiseSource:
    """``os-entropy``, or ``fixed-seed`` in tests."""
    return "os-entropy" if config.privacy.fixed_seed < 0 else "fixed-seed"


def _header(
    config: Config,
    run_id: str,
    population: Population | None,
    prior: PriorReleases | None,
    users: str,
) -> dict[str, object]:
    return {
        "run_id": run_id,
        "config_sha256": config.digest(),
        "users": config.data.users,
        "rounds_declared": total_rounds(config),
        "unit": config.privacy.unit,
        "noise_source": noise_source(config),
        **({} if population is None else {"population": population.identity}),
        **({} if prior is None else {HEADER: prior.to_json()}),
        **({SIDE: users} if users else {}),
    }
