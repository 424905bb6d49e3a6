"""Assessing known norms: agreement with outside figures, the panel, and the percentile curve."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_sides import left_log_moments
from test_bayesian_costs import DISTANCES, SETS

from fedlens.accountant.bayesian.accountant import BayesianAccountant
from fedlens.accountant.bayesian.assessment import assess
from fedlens.accountant.bayesian.costs import divergence_epsilon_by_order, epsilon_by_order
from fedlens.accountant.bayesian.percentiles import DEFAULT_SHARES, capped, percentile_curve
from fedlens.accountant.bounds import Bound
from fedlens.accountant.dp.differential import DifferentialAccountant
from fedlens.accountant.events import SubsampledGaussian

ROOMY = 40.0
"""A clipping norm so far above every distance that neither cap is reached."""
DEFAULTS = {
    "clipping_norm": 1.0,
    "noise_multiplier": 1.0,
    "sampling_rate": 0.01,
    "rounds": 200,
    "delta": 1e-6,
}
ESTIMATED = ("B1", "B2", "B3", "B4", "B5", "B6", "B10")
"""Rows of one release a round whose norms differ."""


def cohort(count=300, low=0.1, high=0.5, seed=0):
    return np.random.default_rng(seed).uniform(low, high, count)


def assessed(norms, **changes):
    return assess(norms, **{**DEFAULTS, **changes})


def of_row(case, delta, clip=ROOMY):
    return assess(
        DISTANCES[case["id"]],
        clipping_norm=clip,
        noise_multiplier=case["sigma"] / clip,
        sampling_rate=case["q"],
        rounds=case["total_steps"],
        delta=float(delta),
        orders=case["lambdas"],
        gamma=case["gamma_effective"],
    )


@pytest.fixture(params=ESTIMATED)
def case(request, oracles):
    return next(case for case in oracles["bayesian"] if case["id"] == request.param)


def test_the_figures_agree_with_sixty_digits_but_for_the_union_over_orders(case):
    """The same costs; only the failure that δ pays for is a union over orders as well here."""
    orders = np.array(case["lambdas"], dtype=float)
    costs = np.array(case["mpmath60"]["privacy_cost"])
    failure = case["total_steps"] * len(orders) * case["gamma_effective"]
    for delta in case["mpmath60"]["eps_at_delta"]:
        if not failure < float(delta):
            with pytest.raises(ValueError, match=r"delta .* gamma"):
                of_row(case, delta)
            continue
        found = of_row(case, delta)
        expected = epsilon_by_order(costs, orders, float(delta) - failure)
        assert found.confidence_failure == pytest.approx(failure)
        assert found.corrected.epsilon == pytest.approx(expected.min(), rel=1e-9)
        assert found.corrected.order == orders[expected.argmin()]
        published = case["paper_eq7_max"]["eps_at_delta"][delta]
        plain = {"B1", "B3", "B4", "B5"} & {case["id"]}
        assert not plain or found.as_published.epsilon <= published


def test_the_authors_code_agrees_where_delta_dwarfs_the_failures(oracles):
    compared = 0
    for case in oracles["bayesian"]:
        if case["id"] not in ESTIMATED or case["gamma_effective"] > 1e-15:
            continue
        found = of_row(case, 1e-5).corrected.epsilon
        assert found == pytest.approx(case["reference"]["eps_at_delta"]["1e-05"], rel=1e-6)
        compared += 1
    assert compared == 5


def test_a_row_without_variance_is_charged_at_the_clip(oracles):
    case = next(case for case in oracles["bayesian"] if case["id"] == "B7")
    found = of_row(case, 1e-5, clip=1.0)
    assert found.corrected.epsilon > 1.9 * case["reference"]["eps_at_delta"]["1e-05"]
    assert any("all equal" in line for line in found.warnings)
    assert not any("fewer" in line for line in found.warnings)


def test_a_panel_costs_what_each_user_s_own_norm_does(oracles):
    for case in oracles["extra"]["hoelder"]:
        found = assessed(
            SETS[case["set"]],
            rounds=case["T"],
            delta=case["delta"],
            orders=range(1, 65),
            panel=True,
        )
        assert found.panel.epsilon == pytest.approx(case["eps_true_fixed_norms"], rel=1e-9)


def own_epsilons(norms, rounds, delta, lambdas, convert):
    """Each user's own ε by the same conversion, float64 [m]."""
    costs = rounds * left_log_moments(lambdas, 0.01, norms, 1.0)
    orders = np.array(lambdas, dtype=float)
    return np.array([convert(c, orders, delta).min() for c in costs.T])


@pytest.mark.parametrize("figure", ["sound", "corrected"])
def test_the_percentile_curve_lies_above_what_each_user_has(oracles, figure):
    """Norms of all users there are: the curve must hold for the share that it names, counted."""
    truth = oracles["extra"]["percentile_curve"]
    norms, lambdas = SETS["min(1,0.05*(-log(1-u))**2)"], range(1, 65)
    convert = divergence_epsilon_by_order if figure == "sound" else epsilon_by_order
    own = own_epsilons(norms, truth["T"], truth["delta"], lambdas, convert)
    if figure == "corrected":
        for percent in (50, 90, 95, 99):
            assert np.percentile(own, percent) == pytest.approx(truth[f"p{percent}"], rel=0.01)
    accountant = BayesianAccountant(truth["T"], truth["delta"], lambdas=lambdas)
    event = SubsampledGaussian("user", "poisson", "add-remove", 0.01, 1.0, 1.0)
    accountant.compose(event, norms, truth["T"])
    for share, bound in zip(
        DEFAULT_SHARES, accountant.percentiles(DEFAULT_SHARES, figure), strict=True
    ):
        assert (own <= bound.epsilon).mean() >= share


def test_the_curve_rises_to_what_holds_for_everybody():
    found = assessed(cohort(5000), rounds=1000, users=20_000)
    costs = [point.bound.epsilon for point in found.percentiles]
    assert costs == sorted(costs) and costs[0] < costs[-1] <= found.dp.epsilon
    assert [p.meaningful for p in found.percentiles] == [p <= 0.9999 for p in DEFAULT_SHARES]
    assert all(p.meaningful for p in assessed(cohort()).percentiles)
    panel = assessed(cohort(100), panel=True).percentiles
    assert [p.meaningful for p in panel] == [p <= 0.99 for p in DEFAULT_SHARES]


def test_markov_takes_its_share_of_what_the_failures_leave():
    event = SubsampledGaussian("user", "poisson", "add-remove", 0.01, 1.0, 1.0)
    accountant = BayesianAccountant(100, 1e-6, lambdas=(20,))
    accountant.compose(event, cohort(5000), 100)
    whole, tenth = (
        accountant.corrected().epsilon,
        accountant.percentiles((0.9,), "corrected")[0],
    )
    assert tenth.epsilon == pytest.approx(whole + math.log(10) / 20, rel=1e-12)
    (everybody,) = accountant.percentiles((1.0,), "corrected")
    bare = BayesianAccountant(100, 1e-6, lambdas=(20,))
    bare.compose(event, None, 100)
    assert everybody == bare.corrected()
    with pytest.raises(ValueError, match="users"):
        percentile_curve(accountant, whole, users=0)


def test_differential_privacy_caps_and_is_named():
    """Norms at the clip: nothing is gained, and the figures say whose they are."""
    found = assessed(np.full(200, 1.0))
    assert found.sound == Bound(found.dp.epsilon, found.dp.order, "dp")
    assert found.confidence_failure == 0 and found.warnings == ()
    assert found.corrected.epsilon > found.dp.epsilon and found.corrected.method == ""
    less, more = Bound(1.0, 7.0), Bound(2.0, 9.0, "rdp")
    assert capped(less, more) == less
    assert capped(more, less) == Bound(1.0, 7.0, "dp")


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.floats(0, 1), min_size=3, max_size=40),
    st.floats(1e-3, 1),
    st.floats(0.5, 8),
    st.integers(1, 2000),
    st.sampled_from([1e-12, 1e-8, 1e-3]),
)
@pytest.mark.law("5: no Bayesian figure is above DP")
def test_no_figure_is_above_differential_privacy(norms, rate, noise, rounds, delta):
    found = assessed(norms, sampling_rate=rate, noise_multiplier=noise, rounds=rounds, delta=delta)
    differential = DifferentialAccountant()
    event = SubsampledGaussian("user", "poisson", "add-remove", rate, noise, 1.0)
    differential.compose(event, rounds)
    assert found.dp == differential.epsilon(delta)
    curves = (*found.percentiles, *found.percentiles_corrected)
    for bound in (found.sound, *(point.bound for point in curves)):
        assert 0 <= bound.epsilon <= found.dp.epsilon
        assert bound.method == "dp" or bound.order >= 1
    clip = BayesianAccountant(rounds, delta)
    clip.compose(event, None, rounds)
    assert 0 <= found.corrected.epsilon <= clip.corrected().epsilon


def test_the_sound_figure_gains_where_cohorts_are_large_and_norms_small():
    few, many = (assessed(cohort(n), rounds=1000) for n in (100, 20_000))
    assert many.corrected.epsilon < many.sound.epsilon < 0.9 * many.dp.epsilon
    assert many.sound.epsilon < few.sound.epsilon


def test_without_noise_nothing_is_promised():
    found = assessed(cohort(), noise_multiplier=0.0, panel=True)
    for name in ("as_published", "corrected", "sound", "dp", "panel"):
        assert getattr(found, name).epsilon == math.inf
    assert all(point.bound.epsilon == math.inf for point in found.percentiles)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"norms": []}, "norms"),
        ({"norms": [0.1, 0.2]}, "3"),
        ({"norms": [0.1, 0.2, 1.1]}, "clipping_norm"),
        ({"norms": [0.1, math.nan, 0.2]}, "norms"),
        ({"norms": [[0.1, 0.2, 0.3]]}, "norms"),
        ({"rounds": 0}, "rounds"),
        ({"rounds": 2.5}, "rounds"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"orders": (0.5,)}, "lambdas"),
        ({"orders": ()}, "lambdas"),
        ({"gamma": 0.7}, "gamma"),
        ({"gamma": 1e-6}, "delta"),
        ({"users": 0}, "users"),
        ({"sampling_rate": 0.0}, "sampling_rate"),
        ({"clipping_norm": 0.0}, "clipping_norm"),
        ({"sampler": "without-replacement"}, "sampler"),
        ({"unit": "household"}, "unit"),
    ],
)
def test_what_cannot_be_assessed_is_refused_by_name(changes, named):
    arguments = {"norms": [0.1, 0.2, 0.3], **DEFAULTS, **changes}
    with pytest.raises(ValueError, match=named):
        assess(**arguments)


def test_every_figure_is_there_and_frozen():
    found = assessed(cohort())
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.dp = found.sound
    assert found.panel is None
    assert len(found.percentiles) == len(DEFAULT_SHARES)
