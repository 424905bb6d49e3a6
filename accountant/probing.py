"""What a probe costs before it is asked, and what its answer says after.

A probe is one number in [0, 1] a user. The sum over all enrolled users is released with normal
noise of standard deviation z (sensitivity 1: one user added or removed), over their fixed number.
The noise is known, so the interval of an answer is exact, and its width is known beforehand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fedlens.accountant.account import Account
from fedlens.accountant.bayesian.noised_norms import split_noise
from fedlens.accountant.bounds import require_count
from fedlens.accountant.dp.calibration import noise_for
from fedlens.accountant.dp.differential import DifferentialAccountant
from fedlens.accountant.events import Event, SubsampledGaussian
from fedlens.accountant.ledger.population import Population
from fedlens.accountant.ledger.spending import PROBE
from fedlens.accountant.noise.shares import ONE_SHARE, NoiseSharing

WIDE = 1.959964
"""Standard deviations on either side of a mean in which 95% of normal numbers lie."""


@dataclass(frozen=True)
class ProbePrice:
    """What a probe would cost and tell."""

    asked_epsilon: float
    """DP ε that was offered for it."""
    epsilon: float
    """DP ε of the probe alone, at ``delta``: at most what was offered."""
    delta: float
    noise_multiplier: float
    """z: standard deviation of the noise on the sum, relative to its sensitivity 1. A little goes
    to the norms that Bayesian figures are made of."""
    users: int
    """N."""
    half_width: float
    """Half of the 95% interval of the mean over the enrolled users, in users' measure [0, 1]."""
    together: float
    """DP ε at ``delta`` of the probe and what was spent before: by the population, or without one
    by the run that it is about, that whose network it asks, and the probes of both. It presumes
    that none of them, this one included, was chosen by what another released."""
    spent: float
    """The same before the probe."""
    budget: float | None
    """The population's, which holds however probes are chosen; None where there is none."""
    used: float | None
    """What part of it is used up before the probe, as its filter counts."""
    used_after: float | None
    """The same with the probe; above 1 where it would be refused."""
    probe_limit: float | None
    """DP ε that the population's owner leaves to all probes together; None for no such limit."""
    spent_on_probes: float | None
    bayesian_epsilon: float
    """Bayesian ε of the probe alone at worst, at ``bayesian_delta``; what it came to is known after
    it, for it depends on how users' numbers turn out."""
    bayesian_delta: float
    refusal: str | None
    """Why it would not be answered, in words; None where it would be."""
    waits: str | None = None
    """Why an officer has to approve it first, in words; None where it may be asked now."""

    def to_json(self) -> dict[str, Any]:
        """As a JSON object; None for what is infinite."""
        return {
            name: None if isinstance(value, float) and math.isinf(value) else value
            for name, value in asdict(self).items()
        }


def probe_event(noise_multiplier: float, released: str = "probe") -> SubsampledGaussian:
    """A probe as the ledger describes it."""
    return SubsampledGaussian(
        unit="user",
        sampler="none",
        adjacency="add-remove",
        sampling_rate=1.0,
        noise_multiplier=noise_multiplier,
        clipping_norm=1.0,
        released=released,
    )


def released_by(question: str) -> str:
    """What ledgers, by `TaskConfig.released`, call a probe's answer."""
    return f"probe {question}"


def approved_as(question: str, network_of: str = "") -> str:
    """What an officer's approvals call a question.

    Args:
        question: as it is written.
        network_of: id of the run whose network is asked, where one is: of another run's network it
            is another question.
    """
    said = released_by(question)
    return f"{said}, of the network of run {network_of}" if network_of else said


def probe_noise(epsilon: float, delta: float) -> float:
    """Z of a probe that costs DP ε at δ.

    Raises:
        WrongUse: a number out of range.
    """
    return noise_for(epsilon=epsilon, delta=delta, rounds=1, sampling_rate=1.0, sampler="none")


def price_of(
    epsilon: float,
    delta: float,
    users: int,
    *,
    bayesian_delta: float = 1e-10,
    norms_share: float = 0.02,
    sharing: NoiseSharing = ONE_SHARE,
    population: Population | None = None,
    asked: str = "",
    question: str = "",
    prior: Sequence[Event] = (),
) -> ProbePrice:
    """The price of a probe that costs DP ε at δ by itself.

    Args:
        epsilon: ε > 0.
        delta: δ in (0, 1).
        users: N, enrolled users that are asked.
        bayesian_delta: δ of the Bayesian figure.
        norms_share: share of the privacy that goes to noised norms, in [0, 1).
        sharing: who adds the noise.
        population: whose budget pays.
        asked: slice of the population that is asked, ``attribute=value``; empty for everyone.
        question: that is asked, as `approved_as` calls it.
        prior: what was released of the same users, where no population counts it.

    Raises:
        WrongUse: a number out of range.
    """
    require_count("users", users)
    noise = probe_noise(epsilon, delta)
    event = probe_event(noise)
    own = Account(1, delta, bayesian_delta, users=users)
    own.charge(event, None)
    spent, together = _composed(event, delta, population, asked, prior)
    terms = None if population is None else population.terms
    limit = None if terms is None else (terms.probe_epsilon or None)
    return ProbePrice(
        asked_epsilon=epsilon,
        epsilon=own.spending().dp_epsilon,
        delta=delta,
        noise_multiplier=noise,
        users=users,
        half_width=WIDE * deviation_of(noise, users, norms_share, sharing),
        together=together,
        spent=spent,
        budget=None if terms is None else terms.epsilon_budget,
        used=None if population is None else population.share_spent(asked),
        used_after=None if population is None else population.share_spent(asked, event),
        probe_limit=limit,
        spent_on_probes=None if population is None else population.spent_on_probes().epsilon,
        bayesian_epsilon=own.spending().bdp_sound,
        bayesian_delta=bayesian_delta,
        refusal=None if population is None else population.refusal(event, PROBE, asked),
        waits=None if population is None else population.waits(event, PROBE, asked, question),
    )


def _composed(
    event: Event, delta: float, population: Population | None, asked: str, prior: Sequence[Event]
) -> tuple[float, float]:
    """ε at δ before and after; of the users that are asked, where slices are apart."""
    if population is not None:
        return population.spent(asked).epsilon, population.spent_after(event, asked).epsilon
    account = DifferentialAccountant()
    for one in prior:
        account.compose(one)
    before = account.epsilon(delta).epsilon
    account.compose(event)
    return before, account.epsilon(delta).epsilon


def deviation_of(
    noise_multiplier: float,
    users: int,
    norms_share: float,
    sharing: NoiseSharing = ONE_SHARE,
) -> float:
    """Standard deviation of the noise on the mean over users, in users' measure [0, 1].

    Where nodes add the noise it is that of all of them, which is the largest there can be.
    """
    return split_noise(noise_multiplier, norms_share).update / users * sharing.excess


@dataclass(frozen=True)
class Estimate:
    """A noised mean of users' numbers with its 95% intervals, all within [0, 1]."""

    value: float
    low: float
    """Of the mean over the enrolled users: the noise alone."""
    high: float
    wider_low: float
    """Of those whom the enrolled users were drawn from at random: noise and the draw."""
    wider_high: float


def estimate_of(mean: float, deviation: float, users: int) -> Estimate:
    """What a noised mean says.

    Args:
        mean: as released; noise may have taken it out of [0, 1].
        deviation: standard deviation of its noise.
        users: N. Numbers in [0, 1] of mean m vary by m (1 − m) at most, which the wider interval
            goes by: it is never too narrow for that.
    """
    value = min(1.0, max(0.0, mean))
    half = WIDE * deviation
    middle = min(1.0, max(0.0, mean + math.copysign(min(half, abs(0.5 - mean)), 0.5 - mean)))
    wider = WIDE * math.hypot(deviation, math.sqrt(middle * (1 - middle) / users))

    def within(number: float) -> float:
        return min(1.0, max(0.0, number))

    return Estimate(
        value, within(mean - half), within(mean + half), within(mean - wider), within(mean + wider)
    )
