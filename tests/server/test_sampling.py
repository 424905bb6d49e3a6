"""Poisson sampling of users: independent, with the stated probability."""

import numpy as np
import pytest
from scipy import stats

from fedlens.accountant.noise.bits import FixedBits
from fedlens.server.federation.roster import Roster, draw_users, take_everyone

ROSTER = Roster(node_ids=(7, 8, 9), users=(40, 10, 1))


def draws(q, repeats, seed=0):
    source = FixedBits(seed)
    counts = np.zeros((repeats, ROSTER.total), dtype=bool)
    starts = np.cumsum([0, *ROSTER.users[:-1]])
    for i in range(repeats):
        for start, users in zip(starts, draw_users(ROSTER, q, source), strict=True):
            counts[i, [start + u for u in users]] = True
    return counts


@pytest.mark.law("1: each user is drawn with probability q")
def test_every_user_takes_part_with_probability_q():
    taken = draws(0.3, 4000)
    p_values = [stats.binomtest(int(n), 4000, 0.3).pvalue for n in taken.sum(0)]
    assert min(p_values) > 1e-5


@pytest.mark.law("1: each user is drawn with probability q")
def test_the_cohorts_size_is_binomial_and_pairs_are_independent():
    taken = draws(0.3, 4000)
    sizes = taken.sum(1)
    assert sizes.var() == pytest.approx(ROSTER.total * 0.3 * 0.7, rel=0.1)
    together = np.mean(taken[:, 0] & taken[:, 1])
    assert together == pytest.approx(0.09, abs=0.02)


def test_at_rate_one_everybody_is_drawn_once():
    assert draw_users(ROSTER, 1.0, FixedBits(0)) == take_everyone(ROSTER)


def test_a_tiny_rate_gives_empty_cohorts_without_complaint():
    assert draw_users(ROSTER, 1e-9, FixedBits(0)) == [(), (), ()]


def test_a_million_users_take_the_memory_that_the_drawn_ones_take():
    import tracemalloc

    roster, source = Roster((1,), (1_000_000,)), FixedBits(0)
    tracemalloc.start()
    drawn = draw_users(roster, 1e-5, source)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(drawn[0]) < 100 and most < 100_000  # one number a user would take a megabyte
