"""What a configuration will spend: its account before the first round, and after the last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from fedlens.accountant.account import Account, Spending
from fedlens.accountant.bayesian.fixed_order import BudgetTooSmall, FixedOrderFilter
from fedlens.accountant.events import Event
from fedlens.accountant.ledger.prior import PriorReleases
from fedlens.accountant.statement import NoiseSource
from fedlens.server.config.schedule import scheduled, total_rounds
from fedlens.server.config.tree import Config, ConfigError

ENROLLED = "enrolled"
"""Of a ledger's header: users enrolled when the run began, where they are fewer than declared."""


def filter_of(
    config: Config, prior: PriorReleases | None = None, enrolled: int = 0
) -> FixedOrderFilter | None:
    """The privacy filter that a configuration declares, with nothing spent; None without one.

    Args:
        config: the run's.
        prior: what was released before, of the same people.
        enrolled: users over whom its claim is an average; 0 for all that are declared.

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
            users=enrolled or config.data.users,
            sharing=config.aggregation.sharing(config.data.nodes),
        )
    except BudgetTooSmall as error:
        raise ConfigError(f"privacy.bayesian_epsilon_budget: {error}") from None


def empty_account(config: Config, prior: PriorReleases | None = None, enrolled: int = 0) -> Account:
    """The account before the run's first round: what the run builds on is in it from the start.

    Differential privacy looks at no number of users. Bayesian figures are means over users, and N
    is but a bound: a mean over empty places would be too small, so it goes over those who were
    enrolled as the run began. Who comes later adds to the sum alone.
    """
    events, privacy = () if prior is None else prior.counted, config.privacy
    account = Account(
        total_rounds=total_rounds(config) + len(events),
        delta_dp=privacy.delta,
        delta_bdp=privacy.bayesian_delta,
        noise_source=noise_source(config),
        users=(enrolled or config.data.users) if privacy.unit == "user" else None,
        norms_filter=filter_of(config, prior, enrolled),
        sharing=config.aggregation.sharing(config.data.nodes),
    )
    for event in events:
        account.charge(event, None)
    return account


def planned(config: Config, prior: PriorReleases | None = None) -> Spending:
    """What all declared rounds will have spent: DP exactly, Bayesian DP at worst.

    A budget of differential privacy ends the plan where it will end the run, for no release moves
    that end.
    """
    return plan(config, prior).spending()


def plan_in(config: Config, header: Mapping[str, Any]) -> Account:
    """The whole plan of a begun run, by its ledger's header."""
    return plan(config, PriorReleases.in_header(header), enrolled_in(config, header))


def enrolled_in(config: Config, header: Mapping[str, Any]) -> int:
    """Users enrolled when a run began, by its ledger's header."""
    return int(header.get(ENROLLED, config.data.users))


def plan(config: Config, prior: PriorReleases | None, enrolled: int = 0) -> Account:
    """The account of all declared rounds, as `planned` says."""
    account = empty_account(config, prior, enrolled)
    budget = config.privacy.epsilon_budget
    for task in scheduled(config):
        for _ in range(task.rounds):
            if budget and account.would_exceed(task.event, budget):
                return account
            account.charge(task.event, None)
    return account


def own_plan(
    config: Config, prior: PriorReleases | None, enrolled: int = 0
) -> list[tuple[Event, int]]:
    """The declared rounds alone, without what the run builds on, by mechanism."""
    before = Counter(() if prior is None else prior.counted)
    return list((Counter(plan(config, prior, enrolled).schedule) - before).items())


def noise_source(config: Config) -> NoiseSource:
    """``os-entropy``, or ``fixed-seed`` in tests."""
    return "os-entropy" if config.privacy.fixed_seed < 0 else "fixed-seed"
