"""What the Bayesian accountant refuses, charges at the clip or tells of; every kind of event."""

import math
from dataclasses import replace

import numpy as np
import pytest

from fedlens.accountant.bayesian.accountant import BayesianAccountant, MixedEvents, TooManyRounds
from fedlens.accountant.bayesian.costs import divergence_epsilon_by_order, epsilon_by_order
from fedlens.accountant.bayesian.norms import NormHistogram, norms_of
from fedlens.accountant.dp.moments import MomentsAccountant
from fedlens.accountant.events import GaussianRelease, SubsampledGaussian

CLIP = 0.35
EVENT = SubsampledGaussian("user", "poisson", "add-remove", 0.05, 1.5, CLIP)
PAIRED = SubsampledGaussian("user", "without-replacement", "replace-one", 0.05, 3.0, CLIP)
SHOT = GaussianRelease("user", "add-remove", 2.0, 20.0)
DELTA = 1e-8


def norms(low=0.2, high=0.6, count=400, seed=0):
    return np.random.default_rng(seed).uniform(low * CLIP, high * CLIP, count)


def spent(*rounds, total=10, delta=DELTA, **keywords):
    accountant = BayesianAccountant(total, delta, **keywords)
    for event, evidence in rounds:
        accountant.compose(event, evidence)
    return accountant


def figures(accountant):
    return accountant.as_published(), accountant.corrected(), accountant.sound()


class TestOneShotReleases:
    def test_they_cost_what_the_gaussian_mechanism_does(self):
        accountant = spent((SHOT, None), (SHOT, None))
        lambdas = np.arange(1.0, 65)
        cost = 2 * lambdas * (lambdas + 1) / (2 * 20.0**2)
        tail = epsilon_by_order(cost, lambdas, DELTA).min()
        accountant_64 = spent((SHOT, None), (SHOT, None), lambdas=range(1, 65))
        assert accountant_64.corrected().epsilon == pytest.approx(tail, rel=1e-12)
        assert accountant_64.as_published().epsilon == pytest.approx(tail, rel=1e-12)
        sharp = divergence_epsilon_by_order(cost, lambdas, DELTA).min()
        assert accountant_64.sound().epsilon == pytest.approx(sharp, rel=1e-12)
        assert accountant.warnings() == () and accountant.confidence_failure == 0

    def test_evidence_of_one_is_refused(self):
        with pytest.raises(ValueError, match="one-shot release"):
            spent((SHOT, norms()))

    def test_they_do_not_use_up_the_declared_rounds(self):
        accountant = spent((SHOT, None), (EVENT, norms()), (SHOT, None), total=1)
        assert accountant.rounds == 3
        with pytest.raises(TooManyRounds):
            accountant.compose(EVENT, norms())

    def test_they_add_to_the_rounds(self):
        alone, both = spent((EVENT, norms())), spent((EVENT, norms()), (SHOT, None))
        for less, more in zip(figures(alone), figures(both), strict=True):
            assert less.epsilon < more.epsilon


class TestReplacedUnits:
    def distances(self, seed=0, count=200):
        return np.random.default_rng(seed).uniform(0.1 * CLIP, 0.9 * CLIP, count)

    def test_pairs_closer_together_cost_less_and_never_more_than_the_clip(self):
        near = spent(*[(PAIRED, self.distances() / 3)] * 10)
        far = spent(*[(PAIRED, self.distances())] * 10)
        worst = spent(*[(PAIRED, None)] * 10)
        for a, b, c in zip(figures(near), figures(far), figures(worst), strict=True):
            assert a.epsilon <= b.epsilon <= c.epsilon
        assert near.corrected().epsilon < worst.corrected().epsilon / 2

    def test_without_evidence_it_is_the_moments_accountant_s_bound(self):
        accountant, moments = spent(*[(PAIRED, None)] * 10), MomentsAccountant()
        moments.compose(PAIRED, 10)
        whole = moments.epsilon(DELTA)
        assert accountant.sound().epsilon == pytest.approx(whole.epsilon, rel=0.02)
        assert accountant.sound().epsilon >= whole.epsilon * (1 - 1e-12)

    def test_everybody_taking_part_costs_the_exact_gaussian_moment(self):
        event = SubsampledGaussian("user", "none", "replace-one", 1.0, 8.0, CLIP)
        d, lambdas = self.distances(), np.array([4.0, 9.0])
        accountant = spent((event, d), total=1, lambdas=(4, 9))
        moments = np.multiply.outer(lambdas * (lambdas + 1), (d / (8 * CLIP)) ** 2 / 2)
        published = np.log(np.exp(moments).mean(axis=1))
        expected = epsilon_by_order(published, lambdas, DELTA).min()
        assert accountant.as_published().epsilon == pytest.approx(expected, rel=1e-9)

    def test_norms_in_a_histogram_are_refused(self):
        with pytest.raises(ValueError, match="disjoint pairs"):
            spent((PAIRED, NormHistogram.from_norms(norms(), CLIP)))

    def test_distances_up_to_twice_the_clip_are_taken_and_no_more(self):
        assert spent((PAIRED, np.full(100, 2 * CLIP))).corrected() == (
            spent((PAIRED, None)).corrected()
        )
        with pytest.raises(ValueError, match="norms"):
            spent((PAIRED, np.full(100, 2.01 * CLIP)))


class TestRefused:
    @pytest.mark.parametrize("extra", [1, 5])
    def test_more_rounds_than_declared(self, extra):
        accountant = spent((EVENT, norms()), total=1)
        before = figures(accountant)
        with pytest.raises(TooManyRounds, match="total_rounds = 1"):
            accountant.compose(EVENT, norms(), extra)
        assert figures(accountant) == before

    def test_failure_that_leaves_nothing_of_delta(self):
        """1,000 rounds, 5 orders and gamma = 1e-12: the bounds alone may fail with 5e-9."""
        settings = {"lambdas": (2, 4, 8, 16, 32), "gamma": 1e-12}
        with pytest.raises(ValueError, match=r"delta = 1e-10 .* gamma = 1e-12: .* 5e-09"):
            BayesianAccountant(1000, 1e-10, **settings)
        BayesianAccountant(1000, 1e-8, **settings)

    @pytest.mark.parametrize("gamma", [0.0, -1e-9, 0.5, math.nan])
    def test_confidence_out_of_range(self, gamma):
        with pytest.raises(ValueError, match="gamma"):
            BayesianAccountant(10, DELTA, gamma=gamma)

    @pytest.mark.parametrize(
        "other",
        [
            SubsampledGaussian("record", "poisson", "add-remove", 0.05, 1.5, CLIP),
            PAIRED,
            GaussianRelease("user", "replace-one", 1.0, 5.0),
        ],
    )
    def test_another_unit_or_adjacency(self, other):
        accountant = spent((EVENT, norms()))
        before = figures(accountant)
        with pytest.raises(MixedEvents, match=r"unit|adjacency"):
            accountant.compose(other, None)
        assert (figures(accountant), accountant.rounds) == (before, 1)

    def test_what_was_refused_fixes_no_adjacency(self):
        accountant = BayesianAccountant(10, DELTA)
        with pytest.raises(ValueError, match="disjoint pairs"):
            accountant.compose(PAIRED, NormHistogram.from_norms(norms(), CLIP))
        accountant.compose(EVENT, norms())
        assert accountant.rounds == 1

    def test_two_norms_where_they_are_to_be_estimated(self):
        with pytest.raises(ValueError, match="3 at least"):
            spent((EVENT, norms(count=2)), charge_doubtful=False)
        assert spent((EVENT, norms(count=2))).corrected() == spent((EVENT, None)).corrected()

    @pytest.mark.parametrize("shares", [(0.0,), (-0.1,), (1.1,), (math.nan,)])
    def test_shares_out_of_range(self, shares):
        with pytest.raises(ValueError, match="shares"):
            spent((EVENT, norms())).percentiles(shares)

    def test_a_figure_that_there_is_not(self):
        with pytest.raises(ValueError, match="figure"):
            spent((EVENT, norms())).percentiles((0.5,), "as_published")

    @pytest.mark.parametrize("updates", [np.zeros(3), np.zeros((2, 2), dtype=int)])
    def test_updates_of_another_shape_or_dtype(self, updates):
        with pytest.raises(ValueError, match="updates"):
            norms_of(updates)


class TestToldInPlanning:
    @pytest.mark.parametrize("count", [3, 63])
    def test_few_norms_are_estimated_and_told_of(self, count):
        accountant = spent((EVENT, norms(count=count)), total=1, charge_doubtful=False)
        assert accountant.corrected().epsilon < spent((EVENT, None), total=1).corrected().epsilon
        assert any("fewer than 64 norms" in line for line in accountant.warnings())
        assert accountant.confidence_failure > 0

    def test_one_norm_that_outweighs_the_others_is_estimated_and_told_of(self):
        heavy = np.append(norms(0.05, 0.1, 2000), 0.9 * CLIP)
        planned = spent((EVENT, heavy), lambdas=range(20, 64), charge_doubtful=False)
        charged = spent((EVENT, heavy), lambdas=range(20, 64))
        assert any("outweighs" in line for line in planned.warnings())
        assert planned.corrected().epsilon < charged.corrected().epsilon

    def test_norms_that_are_all_equal_are_charged_all_the_same(self):
        planned = spent((EVENT, np.full(16, 0.1 * CLIP)), charge_doubtful=False)
        assert planned.corrected() == spent((EVENT, None)).corrected()
        assert any("all equal" in line for line in planned.warnings())

    def test_enough_norms_are_not_told_of(self):
        assert spent((EVENT, norms()), charge_doubtful=False).warnings() == ()


def test_like_rounds_may_be_booked_at_once():
    together = BayesianAccountant(10, DELTA)
    together.compose(EVENT, norms(), 7)
    apart = spent(*[(EVENT, norms())] * 7)
    for a, b in zip(figures(together), figures(apart), strict=True):
        assert a.epsilon == pytest.approx(b.epsilon, rel=1e-12)
    assert together.confidence_failure == pytest.approx(apart.confidence_failure)
    assert together.rounds == 7


def test_gamma_is_what_the_bounds_fail_with():
    settings, rounds = {"lambdas": (2, 4, 8)}, [(EVENT, norms(count=100))] * 10
    strict = spent(*rounds, gamma=1e-15, **settings)
    loose = spent(*rounds, gamma=1e-12, **settings)
    assert strict.confidence_failure == pytest.approx(3e-14)
    assert loose.sound_failure == pytest.approx(3e-11)
    assert strict.corrected().epsilon > loose.corrected().epsilon
    assert strict.sound().epsilon > loose.sound().epsilon


def test_norms_in_one_pass_are_norms():
    source = np.random.default_rng(3)
    for size in (0, 1, 8191, 8192, 30_001):
        for dtype in (np.float32, np.float64):
            updates = source.normal(size=(5, size)).astype(dtype)
            expected = np.linalg.norm(updates.astype(np.float64), axis=1)
            np.testing.assert_allclose(norms_of(updates), expected, rtol=1e-6)
            np.testing.assert_allclose(norms_of(updates[::2]), expected[::2], rtol=1e-6)


@pytest.mark.parametrize("figure", ["sound", "corrected"])
def test_pooled_norms_of_several_releases_tell_of_each_user_once(figure):
    """The same 40 users, pooled over 8 releases, are 40 independent users and not 320."""
    eight = replace(EVENT, count=8, noise_multiplier=3.0)
    cohort = norms(high=0.4, count=40)
    more = norms(high=0.4, count=320)
    pooled, ample = (
        spent((eight, np.repeat(cohort, 8)), least_norms=3),
        spent((eight, np.repeat(more, 8)), least_norms=3),
    )
    of_one = spent((eight, np.repeat(cohort, 1)), least_norms=3)
    found = [getattr(account, figure)().epsilon for account in (ample, pooled, of_one)]
    assert found[0] < found[1] <= found[2]
