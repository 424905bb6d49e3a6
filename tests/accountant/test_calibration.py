"""Noise and rounds for a target: enough, and no more than needed."""

import math

import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlens.accountant.dp.calibration import CalibrationError, noise_for, rounds_within
from fedlens.accountant.dp.differential import DifferentialAccountant
from fedlens.accountant.events import GaussianRelease, SubsampledGaussian

GOOD = {"sampling_rate": 0.1, "rounds": 10, "epsilon": 1.0, "delta": 1e-5}


def spent(event, rounds, delta, method="best"):
    accountant = DifferentialAccountant()
    accountant.compose(event, rounds)
    return (accountant.rdp(delta) if method == "rdp" else accountant.epsilon(delta)).epsilon


@pytest.mark.parametrize("method", ["best", "rdp"])
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 30.0])
@pytest.mark.parametrize(("rate", "rounds"), [(1.0, 1), (0.01, 1), (0.01, 1000)])
def test_the_noise_is_enough_and_no_more(rate, rounds, epsilon, method, make_event):
    noise = noise_for(sampling_rate=rate, rounds=rounds, epsilon=epsilon, delta=1e-6, method=method)
    assert spent(make_event(rate, noise), rounds, 1e-6, method) <= epsilon
    assert spent(make_event(rate, noise * (1 - 1e-4)), rounds, 1e-6, method) > epsilon


def test_the_noise_is_less_than_that_of_peers(oracles):
    misc = oracles["timing"]["misc"]
    goal = {"sampling_rate": 0.01, "rounds": 10_000, "epsilon": 1.0, "delta": 1e-5}
    best, moments = noise_for(**goal), noise_for(**goal, method="rdp")
    assert best <= misc["dpa_calibrate_pld"]["sigma"]
    assert best < moments <= misc["opacus_calibrate_rdp"]["sigma"]
    peer = PLDAccountant(value_discretization_interval=1e-4)
    release = dp_event.GaussianDpEvent(best)
    peer.compose(dp_event.PoissonSampledDpEvent(0.01, release), 10_000)
    assert peer.get_epsilon(1e-5) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("method", ["best", "rdp"])
@pytest.mark.parametrize("epsilon", [0.8, 2.0, 5.0])
def test_the_rounds_are_the_most_that_stay_within(epsilon, method, make_event):
    event = make_event(0.02, 2.0)
    rounds = rounds_within(event, epsilon=epsilon, delta=1e-6, method=method)
    assert rounds >= 1
    assert spent(event, rounds, 1e-6, method) <= epsilon < spent(event, rounds + 1, 1e-6, method)


def test_an_event_of_several_releases_counts_as_one_round(make_event):
    single = rounds_within(make_event(), epsilon=1.0, delta=1e-6)
    assert rounds_within(make_event(count=10), epsilon=1.0, delta=1e-6) == single // 10


def test_no_round_and_every_round(make_event):
    assert rounds_within(make_event(1.0, 0.2), epsilon=1.0, delta=1e-6) == 0
    assert rounds_within(make_event(noise=0.0), epsilon=1.0, delta=1e-6) == 0
    plain = GaussianRelease("user", "add-remove", 1.0, 1e12)
    with pytest.raises(CalibrationError, match="rounds stay within"):
        rounds_within(plain, epsilon=5.0, delta=1e-3)


@settings(deadline=None, max_examples=5)
@given(st.floats(0.005, 0.3), st.integers(50, 2000), st.floats(0.3, 8))
def test_noise_and_rounds_invert_each_other(rate, rounds, epsilon):
    noise = noise_for(sampling_rate=rate, rounds=rounds, epsilon=epsilon, delta=1e-6)
    event = SubsampledGaussian("user", "poisson", "add-remove", rate, noise, 1.0)
    allowed = rounds_within(event, epsilon=epsilon, delta=1e-6)
    assert rounds <= allowed <= rounds * (1 + 1e-3) + 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sampling_rate", 0.0),
        ("sampling_rate", 1.5),
        ("rounds", 0),
        ("rounds", 2.5),
        ("epsilon", 0.0),
        ("epsilon", math.inf),
        ("epsilon", math.nan),
        ("delta", 0.0),
        ("delta", math.nan),
        ("method", "prv"),
        ("sampler", "shuffle"),
    ],
)
def test_refusals_name_the_argument(name, value):
    with pytest.raises(ValueError, match=name):
        noise_for(**{**GOOD, name: value})
