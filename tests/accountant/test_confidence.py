"""Confidence bounds: the sound one covers whatever the norms are, the Student-t one does not."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_sides import left_log_moments
from scipy.stats import binom

from fedlens.accountant.bayesian.confidence import mean_bound, sound_cost, student_quantile
from fedlens.accountant.bayesian.costs import hoelder_cost

REPEATS, GAMMA = 2000, 1e-2
ROUNDS, RATE, ORDER = 1000, 0.01, 8
MOST = ROUNDS * left_log_moments((ORDER,), RATE, [1.0], 1.0)[0, 0]


def _mostly_small(share):
    return lambda source, size: np.where(source.random(size) < share, 1.0, 0.1)


HEAVY = {
    "uniform": lambda source, size: source.random(size),
    "2% at the clip": _mostly_small(0.02),
    "1 in 1000 at the clip": _mostly_small(1e-3),
    "weibull": lambda source, size: np.minimum(1.0, 0.05 * source.weibull(0.5, size)),
}
NAMED = {  # in the oracle file's list of the Student-t bound's failures
    "uniform": "uniform[0,1]",
    "2% at the clip": "2% outliers at 1, rest 0.1",
    "1 in 1000 at the clip": "1e-3 outliers at 1, rest 0.1",
    "weibull": "weibull(0.5)*0.05 clipped at 1",
}


def total(norms):
    """T·log M at each norm, the exponent of what is averaged."""
    return ROUNDS * left_log_moments((ORDER,), RATE, norms.ravel(), 1.0)[0].reshape(norms.shape)


def truth(draw, source):
    """Log E M^T over the population, from draws enough for three digits."""
    x = total(draw(source, 2_000_000))
    return MOST + math.log(np.exp(x - MOST).mean())


@pytest.mark.parametrize("size", [28, 256])
@pytest.mark.parametrize("name", HEAVY)
def test_the_sound_bound_covers_where_student_s_t_fails(name, size):
    source = np.random.default_rng(7)
    true = truth(HEAVY[name], source)
    x, ones = total(HEAVY[name](source, (REPEATS, size))), np.ones(size)
    sound = sound_cost(x, ones, np.full(REPEATS, MOST), power=1, rounds=1, gamma=GAMMA)
    quantile = student_quantile(GAMMA, size)
    student = hoelder_cost(x, ones, power=1, rounds=1, quantile=quantile)
    allowed = binom.isf(1e-6, REPEATS, GAMMA)
    assert (sound < true).sum() <= allowed
    assert (student < true).sum() > allowed
    assert (sound <= MOST).all()


def test_the_misses_of_student_s_t_are_those_measured_elsewhere(oracles):
    found = [
        case for case in oracles["student_t_coverage"]
        if (case["q"], case["lam"], case["T"], case["gamma"]) == (RATE, ORDER, ROUNDS, GAMMA)
    ]  # fmt: skip
    source, compared = np.random.default_rng(11), 0
    for case in found:
        name = next((n for n, text in NAMED.items() if text == case["dist"]), None)
        if name is None:
            continue
        true = truth(HEAVY[name], source)
        x = total(HEAVY[name](source, (REPEATS, case["m"])))
        quantile = student_quantile(GAMMA, case["m"])
        student = hoelder_cost(x, np.ones(case["m"]), power=1, rounds=1, quantile=quantile)
        assert (student < true).mean() == pytest.approx(case["miss_rate"], abs=0.05)
        compared += 1
    assert compared == 12


@pytest.mark.parametrize("size", [1, 3, 28, 400])
@pytest.mark.parametrize("gamma", [1e-2, 1e-4])
def test_no_coin_escapes_and_the_bound_is_no_larger_than_it_must_be(size, gamma):
    """Coins are the hardest variables in [0, 1]; their misses are sums of binomial chances."""
    heads, weights = np.arange(size + 1), np.arange(size + 1.0)
    upper = np.array(
        [
            mean_bound(np.array([[1.0, 0.0]])[:, keep], np.array([n, size - n])[keep], gamma)[0]
            for n in weights
            for keep in [np.array([n > 0, n < size])]
        ]
    )
    chances = np.unique(np.concatenate([upper * (1 + s) for s in (-1e-9, 0, 1e-9)]))
    missed = [binom.pmf(heads, size, p)[upper < p].sum() for p in chances[chances < 1]]
    assert max(missed) <= gamma * (1 + 1e-9)
    assert max(missed) >= gamma / 20


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.floats(1e-300, 0.4))
def test_the_bound_lies_between_the_mean_and_one(values, gamma):
    row, ones = np.array([values]), np.ones(len(values))
    upper = mean_bound(row, ones, gamma)[0]
    assert np.mean(values) * (1 - 1e-12) <= upper <= 1
    assert mean_bound(row, ones, gamma / 2)[0] >= upper
    assert mean_bound(np.minimum(row * 1.5, 1), ones, gamma)[0] >= upper
    assert mean_bound(row, 2 * ones, gamma)[0] <= upper * (1 + 1e-12)
    assert mean_bound(row[:, ::-1], ones, gamma)[0] == pytest.approx(upper, rel=1e-12)


def test_much_evidence_brings_the_bound_to_the_mean():
    values = np.random.default_rng(0).beta(2, 5, 100_000)
    upper = mean_bound(values[None], np.ones(values.size), 1e-12)[0]
    hoeffding = math.sqrt(math.log(1e12) / (2 * values.size))
    assert values.mean() < upper < values.mean() + 0.6 * hoeffding


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=30),
    st.floats(1e-3, 1),
    st.floats(0.02, 50),
    st.integers(1, 10**6),
)
def test_the_sound_cost_lies_between_the_plain_mean_and_the_clip(norms, rate, noise, rounds):
    lambdas = (1, 8, 60)
    moments = left_log_moments(lambdas, rate, norms, noise)
    clip = left_log_moments(lambdas, rate, [1.0], noise)[:, 0]
    ones = np.ones(len(norms))
    sound = sound_cost(moments, ones, clip, power=rounds, rounds=rounds, gamma=1e-9)
    plain = hoelder_cost(moments, ones, power=rounds, rounds=rounds, quantile=0.0)
    assert (sound <= clip * (1 + 1e-12)).all()
    assert (sound >= plain * (1 - 1e-9) - 1e-300).all()


def test_moments_that_overflow_are_bounded_all_the_same():
    moments = left_log_moments((512,), 0.9, [0.3, 0.5, 1.0], 0.01)
    settings = {"power": 10**6, "rounds": 10**6, "gamma": 1e-20}
    weights = np.array([900.0, 99.0, 1.0])
    sound = sound_cost(moments, weights, moments[:, -1], **settings)
    assert np.isfinite(sound).all() and (sound <= moments[:, -1]).all()
    nothing = sound_cost(np.zeros((2, 3)), weights, np.zeros(2), **settings)
    assert (nothing == 0).all()


@pytest.mark.parametrize("gamma", [0.0, 0.5, -1e-9, math.nan])
def test_a_confidence_out_of_range_is_refused(gamma):
    with pytest.raises(ValueError, match="gamma"):
        mean_bound(np.zeros((1, 3)), np.ones(3), gamma)
