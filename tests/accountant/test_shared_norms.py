"""Figures from norms whose noise nodes added together: there is more of it than is charged."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedlens.accountant.bayesian.fixed_order import FixedOrderFilter
from fedlens.accountant.bayesian.noised_norms import PUBLIC_BINS, NoisedNorms, split_noise
from fedlens.accountant.bayesian.pooled import Pool
from fedlens.accountant.bayesian.published import PublishedAccountant
from fedlens.accountant.events import SubsampledGaussian
from fedlens.accountant.noise.shares import NoiseSharing, noised_layout

Z, SHARE, RATE, USERS, ROUNDS, GAMMA = 6.0, 0.02, 0.1, 20_000, 50, 1e-12
NOISE = split_noise(Z, SHARE)
EVENT = SubsampledGaussian("user", "poisson", "add-remove", RATE, Z, 1.0)
LONE, MOST = NoiseSharing(), NoiseSharing(honest=1, parties=10)


def drawn_deviation(sharing: NoiseSharing) -> float:
    """Of the noise on a count when all nodes survive, by the layout that they draw it for."""
    layout = noised_layout(
        4, 1.0, USERS, PUBLIC_BINS,
        multipliers=(NOISE.update, NOISE.norms), honest=sharing.honest, parties=sharing.parties,
    )  # fmt: skip
    return layout.norms.scale * layout.norms.pitch * math.sqrt(sharing.parties)


@pytest.mark.parametrize("honest, parties", [(1, 1), (3, 5), (1, 10), (4, 10), (97, 100)])
def test_the_noise_that_is_reckoned_with_is_no_less_than_what_is_drawn(honest, parties):
    sharing = NoiseSharing(honest, parties)
    found = sharing.deviation(NOISE.norms, 1.0, PUBLIC_BINS)
    assert found >= drawn_deviation(sharing)
    assert found == pytest.approx(NOISE.norms * sharing.excess, rel=1e-3)


def failures(told: NoiseSharing) -> float:
    """How often the bound lies below the truth where ten nodes add noise and one is charged."""
    source = np.random.default_rng(0)
    values = np.linspace(0.02, 1, PUBLIC_BINS)[None] ** 2
    users = source.multinomial(USERS, [1 / PUBLIC_BINS] * PUBLIC_BINS)
    truth = float(values[0] @ users) / USERS
    shape = 3000, PUBLIC_BINS
    noise = source.normal(0, drawn_deviation(MOST) * math.sqrt(ROUNDS), shape)
    counts = source.binomial(users * ROUNDS, RATE, shape) + noise
    pools = [Pool(EVENT, NOISE.norms, ROUNDS, one, told) for one in counts]
    return float(np.mean([p.bounded_mean(values, USERS, GAMMA)[0] < truth for p in pools]))


@pytest.mark.law("5: bounds on norms hold whatever they react to")
def test_a_bound_holds_with_the_noise_of_all_nodes_and_fails_with_the_charged_one():
    assert failures(MOST) == 0.0
    assert failures(LONE) > 1e9 * GAMMA


def test_a_filter_and_an_estimate_go_by_the_noise_of_all_nodes():
    norms = NoisedNorms(1.0, NOISE.norms, (600.0,) * 4 + (0.0,) * (PUBLIC_BINS - 4))
    spent, told = [], []
    for sharing in (LONE, MOST):
        claim = FixedOrderFilter(
            [(EVENT, ROUNDS)], epsilon=1.0, delta=1e-10, users=USERS, sharing=sharing
        )
        account = PublishedAccountant(ROUNDS, 1e-10, USERS, sharing=sharing)
        for _ in range(ROUNDS // 2):
            claim.charge(EVENT, norms)
            account.compose(EVENT, norms)
        spent.append(claim.spent())
        told.append(account.corrected().epsilon)
    assert spent[1] > spent[0] and told[1] > told[0]
