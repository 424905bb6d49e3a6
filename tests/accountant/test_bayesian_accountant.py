import math
import time
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_sides import left_log_moments, right_log_moments

from fedlens.accountant.bayesian.accountant import BayesianAccountant, TooManyRounds
from fedlens.accountant.bayesian.confidence import sound_cost, student_quantile
from fedlens.accountant.bayesian.costs import (
    divergence_epsilon_by_order,
    epsilon_by_order,
    hoelder_cost,
    plug_in_cost,
)
from fedlens.accountant.bayesian.norms import NORM_BINS, NormHistogram
from fedlens.accountant.dp.moments import MomentsAccountant
from fedlens.accountant.dp.renyi import renyi_divergences
from fedlens.accountant.events import SubsampledGaussian

CLIP = 0.35
EVENT = SubsampledGaussian("user", "poisson", "add-remove", 0.05, 1.5, CLIP)


def histogram(low=0.2, high=0.6, count=400, seed=0):
    norms = np.random.default_rng(seed).uniform(low * CLIP, high * CLIP, count)
    return NormHistogram.from_norms(norms, CLIP)


def spent(rounds=10, evidence=None, total=10, delta=1e-8, event=EVENT, **keywords):
    accountant = BayesianAccountant(total, delta, **keywords)
    for _ in range(rounds):
        accountant.compose(event, evidence)
    return accountant


def epsilons(accountant):
    bounds = accountant.as_published(), accountant.corrected(), accountant.sound()
    return np.array([bound.epsilon for bound in bounds])


def test_figures_are_what_the_formulas_say():
    evidence, delta, total, lambdas = histogram(), 1e-8, 10, (2, 8, 30)
    weights = np.array(evidence.counts, float)
    edges = np.arange(1, NORM_BINS + 1) / NORM_BINS
    left = left_log_moments(lambdas, 0.05, edges, 1.5)[:, weights > 0]
    right = right_log_moments(lambdas, 0.05, edges, 1.5)[:, weights > 0]
    weights = weights[weights > 0]
    published = 7 * np.maximum(plug_in_cost(left, weights), plug_in_cost(right, weights))
    gamma = 0.01 * delta / (total * len(lambdas))
    corrected = 7 * hoelder_cost(
        left, weights, power=total, rounds=total, quantile=student_quantile(gamma, 400)
    )
    failure = 7 * len(lambdas) * gamma
    accountant = spent(7, evidence, total, delta, lambdas=lambdas)
    orders = np.array(lambdas, float)
    expected = epsilon_by_order(corrected, orders, delta - failure)
    assert accountant.corrected().epsilon == pytest.approx(expected.min(), rel=1e-12)
    assert accountant.corrected().order == orders[expected.argmin()]
    assert accountant.confidence_failure == pytest.approx(failure)
    expected = epsilon_by_order(published, orders, delta)
    assert accountant.as_published().epsilon == pytest.approx(expected.min(), rel=1e-12)
    clip = left_log_moments(lambdas, 0.05, [1.0], 1.5)[:, 0]
    sound = 7 * sound_cost(left, weights, clip, power=total, rounds=total, gamma=gamma)
    expected = divergence_epsilon_by_order(sound, orders, delta - failure)
    assert accountant.sound().epsilon == pytest.approx(expected.min(), rel=1e-12)
    assert accountant.sound_failure == pytest.approx(failure)


def test_the_sound_figure_at_the_clip_is_the_moments_accountant():
    """At whole orders up to 512 both convert the same divergences in the same way."""
    moments = MomentsAccountant(tuple(range(2, 514)))
    moments.compose(EVENT, 10)
    for evidence in (None, NormHistogram.from_norms(np.full(80, CLIP), CLIP)):
        accountant = spent(10, evidence, lambdas=range(1, 513))
        bound = moments.epsilon(1e-8)
        assert accountant.sound().epsilon == pytest.approx(bound.epsilon, rel=1e-12)
        assert accountant.sound().order == bound.order - 1
        assert accountant.sound_failure == 0


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 3000), st.floats(0.3, 1.0))
def test_the_sound_figure_is_never_above_the_clip_s(seed, count, high):
    """However few norms there are, and whatever the failures of its bounds take from delta."""
    found = spent(10, histogram(0.0, high, count, seed), total=50)
    assert found.sound().epsilon <= spent(10, None, total=50).sound().epsilon
    assert found.corrected().epsilon <= spent(10, None, total=50).corrected().epsilon


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.floats(1.0, 1.6))
def test_larger_norms_never_cost_less(seed, factor):
    norms = np.random.default_rng(seed).uniform(0.1, 0.6, 100) * CLIP
    less, more = epsilons(spent(10, norms)), epsilons(spent(10, factor * norms))
    assert (
        less[[0, 2]] <= more[[0, 2]] * (1 + 1e-12)
    ).all()  # a t bound may: its spread counts too


def test_neither_the_unit_of_length_nor_the_order_of_norms_matters():
    norms = np.random.default_rng(4).uniform(0.1, 0.6, 500) * CLIP
    base = epsilons(spent(10, norms))
    shuffled = epsilons(spent(10, norms[::-1]))
    np.testing.assert_array_equal(shuffled, base)
    scaled = SubsampledGaussian("user", "poisson", "add-remove", 0.05, 1.5, 1000 * CLIP)
    np.testing.assert_allclose(epsilons(spent(10, 1000 * norms, event=scaled)), base, rtol=1e-9)


def test_the_sound_figure_needs_no_variance_and_no_number_of_norms():
    """What the corrected figure charges at the clip, it bounds all the same."""
    equal = NormHistogram.from_norms(np.full(5000, 0.3 * CLIP), CLIP)
    for evidence in (histogram(count=63), equal):
        accountant, clip = spent(10, evidence), spent(10, None)
        assert accountant.corrected() == clip.corrected()
        assert accountant.sound().epsilon < clip.sound().epsilon


def test_without_evidence_it_charges_the_clipping_norm():
    """Then it is the moments accountant with its classical tail bound."""
    accountant = spent(10, None)
    lambdas = np.arange(1, 513)
    divergences = 10 * renyi_divergences(0.05, 1.5, tuple(float(n + 1) for n in lambdas))
    classical = (divergences - math.log(1e-8) / lambdas).min()
    assert accountant.corrected().epsilon == pytest.approx(classical, rel=1e-4)
    assert accountant.corrected().epsilon >= classical
    assert accountant.confidence_failure == 0
    assert "10 of 10 rounds had no evidence" in accountant.warnings()[0]


def test_a_smaller_update_costs_less_and_never_more_than_the_clip():
    worst = spent(10, None).corrected().epsilon
    small = spent(10, histogram(0.05, 0.2)).corrected().epsilon
    large = spent(10, histogram(0.05, 0.9)).corrected().epsilon
    assert small < large < worst
    assert spent(10, histogram()).warnings() == ()


def test_all_norms_at_the_clip_need_no_estimate():
    full = NormHistogram.from_norms(np.full(100, CLIP), CLIP)
    accountant = spent(10, full)
    assert accountant.corrected() == spent(10, None).corrected()
    assert accountant.warnings() == ()


@pytest.mark.parametrize(
    ("evidence", "warning"),
    [
        (histogram(count=63), "fewer than 64 norms"),
        (NormHistogram.from_norms([], CLIP), "no evidence"),
        (NormHistogram.from_norms(np.full(500, 0.5 * CLIP), CLIP), "all equal"),
    ],
)
def test_unsound_evidence_is_charged_at_the_clipping_norm(evidence, warning):
    accountant = spent(4, evidence)
    assert accountant.corrected() == spent(4, None).corrected()
    assert f"4 of 4 rounds had {warning}" in accountant.warnings()[0] or (
        warning in accountant.warnings()[0]
    )


def test_one_norm_that_outweighs_the_rest_is_charged_at_the_clipping_norm():
    norms = np.append(np.full(2000, 0.05), 0.9) * CLIP
    norms[:1000] *= 1.5
    accountant = spent(10, NormHistogram.from_norms(norms, CLIP), lambdas=range(20, 64))
    expected = spent(10, None, lambdas=range(20, 64)).corrected()
    assert accountant.corrected().epsilon == pytest.approx(expected.epsilon, rel=1e-3)
    assert any("outweighs" in line for line in accountant.warnings())


def test_a_grid_that_is_too_short_is_reported():
    assert any("end of those" in line for line in spent(2, histogram(), lambdas=(1, 2)).warnings())


def test_raw_norms_cost_no_more_than_their_histogram():
    norms = np.random.default_rng(3).uniform(0.1, 0.7, 300) * CLIP
    raw, binned = spent(10, norms), spent(10, NormHistogram.from_norms(norms, CLIP))
    assert raw.corrected().epsilon <= binned.corrected().epsilon
    assert (epsilons(raw) <= epsilons(binned)).all()
    on_edges = np.repeat([0.25, 0.5], 100) * CLIP
    binned = spent(10, NormHistogram.from_norms(on_edges, CLIP)).corrected()
    assert spent(10, on_edges).corrected() == binned


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 9), st.integers(0, 100), st.floats(1.01, 2))
def test_epsilon_moves_the_right_way(rounds, seed, factor):
    evidence = histogram(seed=seed)

    def figures(rounds=rounds, delta=1e-8, **changes):
        event = SubsampledGaussian(
            "user", "poisson", "add-remove", **{**_settings, **changes}, clipping_norm=CLIP
        )
        accountant = spent(rounds, evidence, delta=delta, event=event)
        return epsilons(accountant)

    _settings = {"sampling_rate": 0.05, "noise_multiplier": 1.5}
    base = figures()
    assert (figures(rounds=rounds + 1) >= base).all()
    assert (figures(noise_multiplier=1.5 * factor) <= base).all()
    assert (figures(sampling_rate=0.05 * factor) >= base).all()
    assert (figures(delta=1e-8 * factor) <= base).all()


def test_the_order_of_rounds_does_not_matter():
    rounds = [(EVENT, histogram(seed=s, count=100 + s)) for s in range(6)]
    rounds += [(EVENT, None)]
    forward, backward = (BayesianAccountant(7, 1e-8) for _ in range(2))
    for event, evidence in rounds:
        forward.compose(event, evidence)
    for event, evidence in reversed(rounds):
        backward.compose(event, evidence)
    np.testing.assert_allclose(epsilons(forward), epsilons(backward), rtol=1e-12)


def test_a_round_of_many_releases_costs_what_many_rounds_do():
    """The same exponent over both; pooled norms are of a twentieth as many users."""
    event = SubsampledGaussian("user", "poisson", "add-remove", 0.05, 1.5, CLIP, count=20)
    together = spent(1, histogram(), total=1, event=event)
    apart = spent(20, histogram(), total=20)
    assert together.as_published().epsilon == pytest.approx(apart.as_published().epsilon)
    assert 1 < together.corrected().epsilon / apart.corrected().epsilon < 1.1
    assert spent(1, None, total=1, event=event).corrected().epsilon == pytest.approx(
        spent(20, None, total=20).corrected().epsilon
    )


def test_more_declared_rounds_cost_more_for_the_same_releases():
    few = spent(5, histogram(), total=5).corrected().epsilon
    many = spent(5, histogram(), total=500).corrected().epsilon
    assert few < many


def test_more_rounds_than_declared_raise_and_change_nothing():
    accountant = spent(3, histogram(), total=3)
    before = accountant.corrected()
    with pytest.raises(TooManyRounds, match="total_rounds = 3"):
        accountant.compose(EVENT, histogram())
    assert (accountant.corrected(), accountant.rounds) == (before, 3)


def test_evidence_of_another_clipping_norm_raises_and_changes_nothing():
    accountant = spent(3, histogram())
    before = accountant.corrected()
    with pytest.raises(ValueError, match="clipping norm"):
        accountant.compose(EVENT, NormHistogram.from_norms([0.1] * 100, 1.0))
    with pytest.raises(ValueError, match="clip first"):
        accountant.compose(EVENT, np.full(100, 2 * CLIP))
    assert (accountant.corrected(), accountant.rounds) == (before, 3)


def test_no_noise_is_infinite_and_silent():
    event = SubsampledGaussian("user", "poisson", "add-remove", 0.05, 0.0, CLIP)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        accountant = spent(2, histogram(), event=event)
        assert accountant.as_published().epsilon == math.inf
        assert accountant.corrected().epsilon == accountant.sound().epsilon == math.inf
        assert accountant.percentiles((0.5,))[0].epsilon == math.inf
        assert accountant.warnings() == ()


@pytest.mark.parametrize("noise", [1e-6, 0.05, 1e6])
@pytest.mark.parametrize("rate", [1e-9, 0.5, 1.0])
def test_extreme_settings_give_finite_figures_without_numpy_warnings(rate, noise):
    event = SubsampledGaussian("user", "poisson", "add-remove", rate, noise, CLIP)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        accountant = spent(2, histogram(), total=10**6, event=event)
        figures = epsilons(accountant)
    assert all(0 <= figure < math.inf for figure in figures)


def test_nothing_booked_costs_nothing():
    accountant = BayesianAccountant(5, 1e-10)
    assert accountant.corrected().epsilon == accountant.as_published().epsilon == 0
    assert accountant.warnings() == ()


@pytest.mark.parametrize("form", ["norms", "histogram"])
def test_a_round_is_quick(form):
    source = np.random.default_rng(1)
    rounds = [source.uniform(0.05, 1.0, 64) * CLIP for _ in range(60)]
    if form == "histogram":
        rounds = [NormHistogram.from_norms(norms, CLIP) for norms in rounds]
    accountant, taken = spent(1, rounds[0], total=1000), []
    for evidence in rounds:
        started = time.process_time()
        accountant.compose(EVENT, evidence)
        taken.append(time.process_time() - started)
    assert np.median(taken) < 0.02  # 4 ms on a quiet machine: the benchmark has the figure


@pytest.mark.parametrize(
    ("name", "keywords"),
    [
        ("total_rounds", {"total_rounds": 0}),
        ("total_rounds", {"total_rounds": 1.5}),
        ("delta", {"delta": 0.0}),
        ("delta", {"delta": 1.0}),
        ("lambdas", {"lambdas": ()}),
        ("lambdas", {"lambdas": (0, 1)}),
        ("lambdas", {"lambdas": (1.5,)}),
        ("failure_share", {"failure_share": 1.0}),
        ("least_norms", {"least_norms": 2}),
    ],
)
def test_bad_settings_are_refused_by_name(name, keywords):
    with pytest.raises(ValueError, match=name):
        BayesianAccountant(**{"total_rounds": 3, "delta": 1e-9, **keywords})


class TestNormHistogram:
    @settings(deadline=None)
    @given(st.lists(st.floats(0, CLIP), max_size=50))
    def test_every_norm_is_rounded_up_by_less_than_a_bin(self, norms):
        counted = NormHistogram.from_norms(norms, CLIP)
        edges = np.repeat(np.arange(1, NORM_BINS + 1) / NORM_BINS * CLIP, counted.counts)
        gaps = edges - np.sort(norms)
        assert counted.total == len(norms)
        assert ((gaps >= 0) & (gaps <= CLIP / NORM_BINS * (1 + 1e-9))).all()

    def test_edges_belong_to_the_bin_below_them(self):
        for bin_ in range(NORM_BINS):
            counts = NormHistogram.from_norms([(bin_ + 1) / NORM_BINS * CLIP], CLIP).counts
            assert counts[bin_] == 1

    def test_json_gives_an_equal_histogram(self):
        assert NormHistogram.from_json(histogram().to_json()) == histogram()
        for wrong in ({}, {"clipping_norm": 1, "counts": 3}, {"clipping_norm": "x", "counts": []}):
            with pytest.raises(ValueError, match=r"histogram|could not convert"):
                NormHistogram.from_json(wrong)

    @pytest.mark.parametrize("norms", [[-0.1], [math.nan], [CLIP * 1.01], [[0.1]], 0.1])
    def test_bad_norms_are_refused(self, norms):
        with pytest.raises(ValueError, match="norms"):
            NormHistogram.from_norms(norms, CLIP)

    def test_bad_counts_are_refused(self):
        zeros = (0,) * NORM_BINS
        for clip, counts in (
            (0.0, zeros),
            (1.0, zeros[1:]),
            (1.0, (-1, *zeros[1:])),
            (1.0, (2**60, *zeros[1:])),
        ):
            with pytest.raises(ValueError, match=r"clipping_norm|counts"):
                NormHistogram(clip, counts)
        with pytest.raises(ValueError, match="counts"):
            NormHistogram(1.0, (1.5, *zeros[1:]))

    def test_rounding_above_the_clip_is_forgiven(self):
        assert NormHistogram.from_norms([CLIP * (1 + 1e-9)], CLIP).counts[-1] == 1
