"""Where populations lie, and which of them a run's configuration may spend from."""

from __future__ import annotations

from dataclasses import replace

from fedlens.accountant.events import Event
from fedlens.accountant.ledger.population import Population, PopulationError
from fedlens.accountant.ledger.prior import PriorReleases
from fedlens.accountant.ledger.terms import population_folder
from fedlens.accountant.wording import shown
from fedlens.server.config.schedule import scheduled
from fedlens.server.config.tree import Config

__all__ = ["check_registry", "check_room", "joined", "population_folder", "registry_url"]

REGISTRY = "members.db"
"""In a population's folder: the store with its nodes and users, which all its runs share."""


def registry_url(named: str) -> str:
    """URL of the registry of a population, named as `population_folder` takes it."""
    return f"sqlite:///{population_folder(named) / REGISTRY}"


def check_registry(named: str, population: Population) -> None:
    """Refuse a population whose registry is lost: no one would be revoked in a new one.

    Every run opens it before it is granted anything.

    Raises:
        PopulationError: it granted something, and has none.
    """
    path = population_folder(named) / REGISTRY
    if len(population.ledger) and not path.exists():
        raise PopulationError(
            f"{path} is gone, and with it who is revoked: bring it back from a backup, or, where "
            "no one ever was, make an empty file of that name"
        )


def joined(config: Config) -> Population | None:
    """The population that a run spends from, or None where it is alone.

    Raises:
        PopulationError: there is none of that name, or the run is not of its kind.
        LedgerError: its ledger cannot be trusted.
    """
    named, privacy = config.privacy.population, config.privacy
    if not named:
        return None
    population = Population.open(population_folder(named))
    terms = population.terms
    for key, given, fixed in (
        ("privacy.unit", privacy.unit, terms.unit),
        ("privacy.delta", privacy.delta, terms.delta),
    ):
        if given != fixed:
            raise PopulationError(
                f"{key} = {given!r}, but population {named!r} has {fixed!r}: its runs must agree"
            )
    if 0 < terms.users < config.data.users:
        raise PopulationError(
            f"data.users = {config.data.users}, but population {named!r} has {terms.users}: "
            "a run may enrol some of its population, not more"
        )
    if privacy.fixed_seed >= 0:
        raise PopulationError(
            f"privacy.fixed_seed = {privacy.fixed_seed}: noise that can be repeated protects "
            f"no user, so such a run cannot spend from population {named!r}"
        )
    return population


def check_room(
    config: Config,
    prior: PriorReleases | None = None,
    users: str = "",
    declares: str = "privatizer.other_people",
) -> None:
    """Refuse a new run of several tasks that what is left of its population's budget cannot pay.

    A run of one task stops before the round that would pass the budget. Of several tasks the last
    would be cut off after the first were paid for. Another run may still take what is left
    meanwhile: then this one stops like any other.

    Args:
        config: the run's.
        prior: what the run spent whose filter or model is taken: booked first, where it was not
            yet.
        users: whom the run is about, as ledgers name them; empty for the slice it names.
        declares: key of the setting that declares the other run to be about other people.

    Raises:
        PopulationError: naming the task at which the budget is passed; or what `joined` says.
        LedgerError: the population's ledger cannot be trusted.
    """
    schedule, population = scheduled(config), joined(config)
    if population is None or (config.split.active and not users):
        return  # which side it is shows once its model is read
    first = [] if prior is None or prior.other_people else population.missing(prior).in_bulk
    events: list[Event] = []
    if len(schedule) > 1:
        events = [replace(task.event, count=task.event.count * task.rounds) for task in schedule]
    fitting = population.affordable([*first, *events], users or config.data.slice)
    if fitting < len(first):
        raise PopulationError(
            f"privacy.population = {config.privacy.population!r} has too little left to pay what "
            "the run that this one builds on cost the same people: take a larger budget, build on "
            f"another run, or declare {declares} = true if no user of this run was one of that"
        )
    if fitting == len(first) + len(events):
        return
    fitting -= len(first)
    raise PopulationError(
        f"privacy.population = {config.privacy.population!r} has too little left for this run: the "
        f"schedule passes the budget {population.terms.epsilon_budget:g} in its task "
        f"{schedule[fitting].name!r} ({population.percent_spent()} used; spent so far: DP ε = "
        f"{shown(population.spent().epsilon)} if no run was chosen by another's releases): "
        "give more noise or fewer rounds, or a population with a larger budget"
    )
