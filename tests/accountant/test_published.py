"""Bayesian figures of released norms: functions of releases, with bounds that cover the noise."""

from dataclasses import replace

import numpy as np
import pytest

from fedlens.accountant.bayesian.accountant import BayesianAccountant, MixedEvents, TooManyRounds
from fedlens.accountant.bayesian.confidence import places
from fedlens.accountant.bayesian.noised_norms import (
    PUBLIC_BINS,
    NoisedNorms,
    noised_norms,
    split_noise,
)
from fedlens.accountant.bayesian.norms import NormHistogram
from fedlens.accountant.bayesian.pooled import Pool
from fedlens.accountant.bayesian.published import PublishedAccountant
from fedlens.accountant.events import GaussianRelease, SubsampledGaussian
from fedlens.accountant.noise.bits import FixedBits

EVENT = SubsampledGaussian("user", "poisson", "add-remove", 0.1, 6.0, 0.5)
DELTA = 1e-8
USERS = 200_000
LARGE = 10**7


def drawn(low=0.2, high=0.5, share=0.02, seed=0, users=USERS, event=EVENT):
    """A round's noised norms, uniform between shares of the clip."""
    source = np.random.default_rng(seed)
    cohort = source.binomial(users, event.sampling_rate)
    norms = source.uniform(low, high, min(cohort, 20_000)) * event.clipping_norm
    counts = np.array(NormHistogram.from_norms(norms, event.clipping_norm).counts)
    return noised_norms(
        counts * (cohort / norms.size),
        clipping_norm=event.clipping_norm,
        noise=split_noise(event.noise_multiplier, share).norms,
        source=FixedBits(seed),
    )


def spent(*rounds, total=20, users=USERS, **keywords):
    accountant = PublishedAccountant(total, DELTA, users, **keywords)
    for event, norms in rounds:
        accountant.compose(event, norms)
    return accountant


def figures(accountant):
    return accountant.as_published().epsilon, accountant.corrected().epsilon


def at_clip(rounds, total=20, event=EVENT):
    accountant = BayesianAccountant(total, DELTA)
    accountant.compose(event, None, rounds)
    return accountant


def test_smaller_norms_cost_less_and_none_more_than_the_clip():
    small = figures(spent(*[(EVENT, drawn(0.0, 0.1, seed=n)) for n in range(20)]))
    middle = figures(spent(*[(EVENT, drawn(0.2, 0.5, seed=n)) for n in range(20)]))
    large = figures(spent(*[(EVENT, drawn(0.9, 1.0, seed=n)) for n in range(20)]))
    worst = at_clip(20)
    assert small[0] < middle[0] < large[0] <= worst.as_published().epsilon * (1 + 1e-9)
    assert small[1] < middle[1] < large[1] <= worst.sound().epsilon
    assert small[1] < 0.8 * worst.sound().epsilon


def test_a_round_without_norms_is_charged_at_the_clip():
    norms = [drawn(seed=n) for n in range(5)]
    some = figures(spent(*[(EVENT, one) for one in norms], (EVENT, None)))
    alone = figures(spent(*[(EVENT, one) for one in norms]))
    assert alone[0] < some[0] and alone[1] < some[1]
    none = spent((EVENT, None), (EVENT, None))
    assert none.corrected().epsilon == at_clip(2).sound().epsilon
    unknown = spent((EVENT, norms[0]), (EVENT, norms[1]), users=None)
    assert figures(unknown) == figures(none) and unknown.rounds_with_norms == 0


def test_the_figures_cover_both_parts_of_a_round():
    """Norms of nearly nothing still cost what the histogram does: the share s of a clipped one."""
    none = NoisedNorms(0.5, split_noise(6.0, 0.25).norms, (LARGE * 0.1, *[0.0] * 15))
    found = spent((EVENT, none), total=1, users=LARGE).as_published().epsilon
    half = replace(EVENT, noise_multiplier=12.0)  # s = 1/4: as at half the clip
    least = at_clip(1, 1, half).as_published().epsilon
    assert found == pytest.approx(least, rel=0.02)


def test_more_noise_on_the_norms_never_lowers_the_estimate():
    exact = tuple(np.array(drawn(0.1, 0.4).counts).round().clip(0).tolist())
    found = [
        spent(*[(EVENT, NoisedNorms(0.5, noise, exact))] * 20).corrected().epsilon
        for noise in (20.0, 200.0, 2000.0)
    ]
    assert found[0] <= found[1] <= found[2]


def test_a_histogram_that_noise_has_wiped_out_is_charged_at_the_clip():
    wiped = NoisedNorms(0.5, 40.0, (-3.0,) * PUBLIC_BINS)
    assert figures(spent((EVENT, wiped), total=1))[0] == at_clip(1, 1).as_published().epsilon


def test_what_is_refused_changes_nothing():
    accountant = spent((EVENT, drawn()), total=1)
    before = figures(accountant)
    with pytest.raises(TooManyRounds):
        accountant.compose(EVENT, drawn())
    with pytest.raises(MixedEvents):
        spent((EVENT, None)).compose(replace(EVENT, unit="record"), None)
    assert figures(accountant) == before


def test_one_shot_releases_and_missing_noise_are_what_they_are():
    shot = GaussianRelease("user", "add-remove", 1.0, 20.0)
    both, alone = spent((EVENT, drawn()), (shot, None)), spent((EVENT, drawn()))
    assert both.corrected().epsilon > alone.corrected().epsilon
    assert spent().corrected().epsilon == 0.0
    naked = spent((replace(EVENT, noise_multiplier=0.0), None))
    assert naked.corrected().epsilon == naked.as_published().epsilon == np.inf


def test_for_most_users_the_estimate_is_larger():
    accountant = spent(*[(EVENT, drawn(0.0, 0.1, seed=n)) for n in range(20)])
    found = [accountant.for_share(share).epsilon for share in (0.0, 0.5, 0.9, 0.999)]
    assert found == sorted(found) and found[0] == accountant.corrected().epsilon
    assert found[-1] <= at_clip(20).sound().epsilon


class TestPooledBounds:
    """Users whose values react to what was released of them, seen through cohorts and noise."""

    ROUNDS, RUNS, PEOPLE, GAMMA = 25, 400, 400, 0.1

    def broken(self, noise, *, missing=0):
        """How often the bound lies below the truth after some round, for a heavy tail of values."""
        source = np.random.default_rng(5)
        values = places(np.linspace(0.2, 12, PUBLIC_BINS)[None], np.array([12.0]))
        event = replace(EVENT, sampling_rate=0.2, noise_multiplier=0.5)
        broken = 0
        for _ in range(self.RUNS):
            pool, truth, fails = Pool.of(event, noise), 0.0, False
            bins = source.integers(0, 4, self.PEOPLE)
            for number in range(1, self.ROUNDS + 1):
                seen = np.bincount(
                    bins[missing:][source.random(self.PEOPLE - missing) < 0.2],
                    minlength=PUBLIC_BINS,
                )
                noised = seen + source.normal(0, noise, PUBLIC_BINS)
                pool = pool.joined(NoisedNorms(0.5, noise, tuple(noised.tolist())))
                truth += values[0, bins].sum()
                mean = truth / (self.PEOPLE * number)
                fails |= pool.bounded_mean(values, self.PEOPLE, self.GAMMA)[0] < mean
                up = seen[-4:].sum() == 0  # unseen at the top: go there
                bins[:20] = PUBLIC_BINS - 1 if up else number % PUBLIC_BINS
            broken += fails
        return broken / self.RUNS

    @pytest.mark.parametrize("noise", [0.6, 5.0])
    @pytest.mark.parametrize("missing", [0, 1])
    @pytest.mark.law("5: bounds on norms hold whatever they react to")
    def test_the_bound_holds_at_every_round_at_once(self, noise, missing):
        assert self.broken(noise, missing=missing) < self.GAMMA

    def test_with_many_rounds_and_little_noise_it_comes_close(self):
        values = places(np.linspace(0.2, 4, PUBLIC_BINS)[None], np.array([4.0]))
        counts = np.zeros(PUBLIC_BINS)
        counts[5] = 0.1 * LARGE
        pool = Pool.of(EVENT, 10.0)
        for _ in range(50):
            pool = pool.joined(NoisedNorms(0.5, 10.0, tuple(counts.tolist())))
        for found in (
            pool.bounded_mean(values, LARGE, 1e-12)[0],
            pool.estimated_mean(values, LARGE, 7.0)[0],
        ):
            assert values[0, 5] <= found < 1.02 * values[0, 5]
