"""The run's ledger, its private evidence, and both accountants over them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from accountant.account import Account, Spending
from accountant.bayesian.norms import NormHistogram
from accountant.events import SubsampledGaussian
from accountant.ledger.evidence import EvidenceFile
from accountant.ledger.ledger import Ledger, LedgerEntry, LedgerError
from accountant.ledger.population import Population
from accountant.ledger.prior import HEADER, PriorReleases
from accountant.statement import NoiseSource
from foundation.rounding import rounded_up
from server.config.tree import Config
from server.population import joined, population_folder
from server.run_directory import RunDirectory
from server.schedule import scheduled, total_rounds

FAILURE_SHARE = 0.01
"""Share of δ that confidence bounds may fail with at most; how much they do tells of cohorts."""


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
    ) -> None:
        """Open the ledger of a run, or begin it.

        Args:
            config: the run's.
            directory: the run's.
            run_id: of a run that begins.
            prior: what the run spent whose filter it takes; a begun ledger has it in its header.

        Raises:
            LedgerError: the run's ledger or that of its population cannot be trusted.
            PopulationError: the run cannot spend from the population that it names.
            OutOfBudget: its population cannot pay what the filter cost.
        """
        privacy = config.privacy
        self._budget = privacy.epsilon_budget
        self._population = joined(config)
        self._evidence = EvidenceFile(directory.evidence)
        if directory.ledger.exists():
            self._ledger = Ledger.open(directory.ledger)
        else:
            header = _header(config, run_id, self._population, prior)
            self._ledger = Ledger.create(directory.ledger, header)
        self._account = account_of(config, self._ledger, self._evidence)
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

    def spending(self) -> Spending:
        """What all entries so far have spent, by both accountants, fit to be shown."""
        return presentable(self._account.spending())

    def refusal(self, event: SubsampledGaussian) -> str | None:
        """Why the run's budget, or its population's, forbids ``event``, or None.

        The decision looks at the differential privacy account alone: it does not depend on the
        data, so stopping reveals nothing. That of the population may change until `charge`.
        """
        if self._budget and self._account.would_exceed(event, self._budget):
            spent = self.spending().dp_epsilon
            return (
                f"the next round would take DP ε above the budget {self._budget:g} "
                f"(spent {spent:.4g} in {len(self.entries)} rounds)"
            )
        return None if self._population is None else self._population.refusal(event)

    def charge(
        self, event: SubsampledGaussian, number: int, evidence: NormHistogram | None
    ) -> None:
        """Put a round's entry on disk, then its private evidence, then into both accounts.

        The entry in the population's ledger comes first: a crash between the two leaves a round
        that the population paid for and that was not released, never the reverse. The run's entry
        only carries a salted commitment to the evidence. Evidence that a crash keeps from the disk
        is charged at the clipping norm from then on.

        Raises:
            OutOfBudget: another run took what was left of the population's budget. Nothing was
                written, and nothing may be released.
        """
        if self._population is not None:
            self._population.charge(event, run=self.run_id, number=number)
        sealed = self._evidence.seal(evidence) if evidence is not None else None
        entry = self._ledger.append(
            event,
            round=number,
            purpose="training round",
            evidence_digest=sealed.digest if sealed else None,
        )
        if sealed is not None:
            self._evidence.append(entry.index, sealed)
        self._account.charge(event, evidence)


def account_of(config: Config, ledger: Ledger, evidence: EvidenceFile) -> Account:
    """Both accountants over a ledger and the evidence that its run kept.

    Raises:
        LedgerError: the ledger was begun for another configuration.
    """
    if ledger.header.get("config_sha256") != config.digest():
        raise LedgerError(ledger.path, 1, "belongs to another configuration than config.toml")
    account = _empty_account(config, PriorReleases.in_header(ledger.header))
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
    """What a run's ledger says it has spent, to readers.

    Raises:
        LedgerError: the ledger cannot be trusted, or is of another configuration.
    """
    ledger = Ledger.read(directory.ledger)
    return presentable(account_of(config, ledger, EvidenceFile(directory.evidence)).spending())


def _empty_account(config: Config, prior: PriorReleases | None = None) -> Account:
    """The account before the run's first round: what its filter cost is in it from the start."""
    events = () if prior is None else prior.counted
    account = Account(
        total_rounds=total_rounds(config) + len(events),
        delta_dp=config.privacy.delta,
        delta_bdp=config.privacy.bayesian_delta,
        noise_source=noise_source(config),
    )
    for event in events:
        account.charge(event, None)
    return account


def presentable(spending: Spending) -> Spending:
    """The figures as they are shown.

    The Bayesian ones are computed from private norms without noise. Rounding them up to two digits,
    and saying of their warnings only that there are some, shows less of these norms; it is no
    guarantee, which the statement says. The corrected and the sound figure are never above DP at
    the same δ, since differential privacy implies Bayesian differential privacy.
    """
    most = spending.dp_epsilon_at_bdp_delta
    weak = ("some rounds rest on few or uneven norms, or on none, and were charged at the clip",)
    return replace(
        spending,
        bdp_as_published=rounded_up(spending.bdp_as_published, 2),
        bdp_corrected=min(rounded_up(spending.bdp_corrected, 2), most),
        bdp_sound=min(rounded_up(spending.bdp_sound, 2), most),
        bdp_order=0.0,  # it moves with the norms
        confidence_failure=0.0 if not spending.rounds else FAILURE_SHARE * spending.delta_bdp,
        percentiles=_rounded_curve(spending.percentiles, most),
        percentiles_corrected=_rounded_curve(spending.percentiles_corrected, most),
        warnings=weak if spending.warnings else (),
    )


def _rounded_curve(curve: Mapping[str, float], most: float) -> dict[str, float]:
    return {share: min(rounded_up(epsilon, 2), most) for share, epsilon in curve.items()}


def planned(config: Config, prior: PriorReleases | None = None) -> Spending:
    """What all declared rounds will have spent: DP exactly, Bayesian DP at worst."""
    account = _empty_account(config, prior)
    for task in scheduled(config):
        for _ in range(task.rounds):
            account.charge(task.event, None)
    return presentable(account.spending())


def noise_source(config: Config) -> NoiseSource:
    """``os-entropy``, or ``fixed-seed`` in tests."""
    return "os-entropy" if config.privacy.fixed_seed < 0 else "fixed-seed"


def _header(
    config: Config, run_id: str, population: Population | None, prior: PriorReleases | None
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
    }
