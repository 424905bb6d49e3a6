"""What a run builds on: another run's filter, split or label model, and what that cost."""

from __future__ import annotations

from fedlens.accountant.events import Event
from fedlens.accountant.ledger.prior import PriorReleases
from fedlens.client.contract import PREFIX
from fedlens.server.config.tree import Config
from fedlens.server.learning.label_models import (
    NamingCost,
    check_label_model,
    kept_naming,
    naming_releases,
)
from fedlens.server.learning.pretrained_filter import (
    PretrainedFilter,
    check_filter,
    kept_pretrained,
    named_filter,
    pretrained_settings,
)
from fedlens.server.ledger.prior_runs import check_probed_models, cost_of_models
from fedlens.server.ledger.private_split import PrivateSplit, check_split, kept_split, named_model
from fedlens.server.run.directory import RunDirectory


def check_earlier(config: Config) -> None:
    """Refuse a new run that cannot build on what it names, before nodes are asked anything.

    Raises:
        ConfigError, PopulationError: as `check_filter`, `check_split`, `check_label_model` and
            `check_probed_models`.
    """
    check_filter(config)
    check_split(config)
    check_label_model(config)
    check_probed_models(config)


def released_before(config: Config) -> list[Event]:
    """What a new run's figures will include of the run that it builds on; nothing without one.

    Raises:
        ConfigError: there is no such run.
    """
    named = []
    if taken := pretrained_settings(config):
        named.append(named_filter(taken))
    if config.split.active:
        named.append(named_model(config))
    found = [one.released(one.opened()[0]) for one in named]
    if by_model := naming_releases(config):
        found.append(by_model)
    return [event for one in found for event in one.in_bulk]


def load_prior(directory: RunDirectory) -> PriorReleases | None:
    """What the run released that this one builds on; None where it builds on none, or not yet.

    Raises:
        RunDirectoryError: what was kept was damaged.
    """
    given = _load_given(directory)
    return None if given is None else given.prior


def with_cost(statement: str, directory: RunDirectory) -> str:
    """What a run promises, with what it builds on and what that cost, where it does.

    And, where its users are made up of records that somebody gave, that they are.
    """
    given, config = _load_given(directory), directory.config()
    costs = "" if given is None else given.cost, cost_of_models(config), _made_up(config)
    return " ".join([statement, *(cost for cost in costs if cost)])


def _made_up(config: Config) -> str:
    """In words, whom a simulation over own data protects; empty where its users are people."""
    kind, colon, _ = config.data.name.partition(":")
    if not colon or kind == PREFIX or config.data.scheme == "column":
        return ""
    return (
        "The users are made up: records of the data were dealt out to them at random, and it is "
        "they who are protected. A person whose records are among the data is not, unless "
        "data.scheme = 'column' keeps each person's records together."
    )


def _load_given(directory: RunDirectory) -> PretrainedFilter | PrivateSplit | NamingCost | None:
    return kept_pretrained(directory) or kept_split(directory) or kept_naming(directory)
