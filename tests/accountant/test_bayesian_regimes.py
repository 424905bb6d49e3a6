"""What the Bayesian accountant refuses, charges at the clip or tells of; every kind of event."""

import math

import numpy as np
import pytest

from fedlens.accountant.bayesian.accountant import BayesianAccountant, MixedEvents, TooManyRounds
from fedlens.accountant.bayesian.costs import divergence_epsilon_by_order, epsilon_by_order
from fedlens.accountant.events import GaussianRelease, SubsampledGaussian

CLIP = 0.35
EVENT = SubsampledGaussian("user", "poisson", "add-remove", 0.05, 1.5, CLIP)
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
            GaussianRelease("record", "add-remove", 1.0, 5.0),
        ],
    )
    def test_another_unit(self, other):
        accountant = spent((EVENT, norms()))
        before = figures(accountant)
        with pytest.raises(MixedEvents, match="unit"):
            accountant.compose(other, None)
        assert (figures(accountant), accountant.rounds) == (before, 1)
