"""The tight accountant against closed forms, exact integrals over two releases, and peers."""

import math
import time
import warnings

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_ndtr, ndtr

from fedlens.accountant.bounds import UNBOUNDED
from fedlens.accountant.dp.moments import mechanism_divergences
from fedlens.accountant.dp.renyi import DEFAULT_ORDERS, epsilons
from fedlens.accountant.dp.tight import tight_delta, tight_epsilon
from fedlens.accountant.events import PricedMechanism

pytestmark = pytest.mark.law("5: DP figures are never below the truth")


def poisson(q, z):
    return PricedMechanism("gaussian", 1.0, z) if q == 1 else PricedMechanism("poisson", q, z)


def gaussian(z):
    return PricedMechanism("gaussian", 1.0, z)


def rdp(counts, delta):
    totals = sum(n * mechanism_divergences(m, DEFAULT_ORDERS) for m, n in counts.items())
    return float(epsilons(totals, np.array(DEFAULT_ORDERS), delta).min())


def loss(x, q, z):
    return np.logaddexp(math.log1p(-q), math.log(q) + (2 * x - 1) / (2 * z * z))


def one_removed(epsilon, q, z):
    """δ of one release at any real ε: P(X > c) under the mixture less e^ε times that under N(0)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        threshold = 0.5 + z * z * (np.log(np.expm1(epsilon) + q) - math.log(q))
    threshold = np.where(np.expm1(epsilon) + q > 0, threshold, -np.inf)
    above, shifted = ndtr(-threshold / z), ndtr((1 - threshold) / z)
    return (1 - q) * above + q * shifted - np.exp(epsilon) * above


def one_added(epsilon, q, z):
    left = np.expm1(-epsilon) + q
    with np.errstate(divide="ignore", invalid="ignore"):
        threshold = 0.5 + z * z * (np.log(left) - math.log(q))
    threshold = np.where(left > 0, threshold, -np.inf)
    below, shifted = ndtr(threshold / z), ndtr((threshold - 1) / z)
    return below - np.exp(epsilon) * ((1 - q) * below + q * shifted)


def two_releases(epsilon, first, second):
    """δ(ε) of two sampled releases exactly: the second one's profile averaged over the first."""
    (q, z), other = first, second
    x = np.linspace(-12 * z, 12 * z + 1, 60_001)
    p0 = np.exp(-0.5 * (x / z) ** 2) / (z * math.sqrt(2 * math.pi))
    p1 = np.exp(-0.5 * ((x - 1) / z) ** 2) / (z * math.sqrt(2 * math.pi))
    ell, cell = loss(x, q, z), x[1] - x[0]
    removed = ((1 - q) * p0 + q * p1) @ one_removed(epsilon - ell, *other) * cell
    added = p0 @ one_added(epsilon + ell, *other) * cell
    return max(removed, added)


def sampled_and_plain(epsilon, q, z, mu):
    """δ(ε) of a sampled release and a Gaussian one, exactly, the unit being removed."""
    x = np.linspace(-12 * z, 12 * z + 1, 60_001)
    p0 = np.exp(-0.5 * (x / z) ** 2) / (z * math.sqrt(2 * math.pi))
    p1 = np.exp(-0.5 * ((x - 1) / z) ** 2) / (z * math.sqrt(2 * math.pi))
    rest = epsilon - loss(x, q, z)
    profile = ndtr(mu / 2 - rest / mu) - np.exp(rest + log_ndtr(-mu / 2 - rest / mu))
    return float(((1 - q) * p0 + q * p1) @ profile * (x[1] - x[0]))


def test_all_settings_of_the_oracle(oracles):
    for case in oracles["subsampled_gaussian"]:
        counts = {poisson(case["q"], case["sigma"]): case["T"]}
        bound, peers = tight_epsilon(counts, case["delta"]), case["peers"]
        assert bound.method in {"analytic", "contour"}
        if "exact" in case:
            exact = case["exact"]["eps_exact"]
            assert exact - 1e-9 <= bound.epsilon <= exact + 1e-8, case["id"]
        else:
            prv = peers.get("prv_accountant", {})
            assert bound.epsilon >= prv.get("eps_lower", 0.0), case["id"]
            assert bound.epsilon <= peers["dpa_pld"]["eps"], case["id"]
        assert bound.epsilon <= rdp(counts, case["delta"]) + 1e-12
        assert tight_delta(counts, bound.epsilon) == pytest.approx(case["delta"], rel=1e-5)


@pytest.mark.parametrize("second", [(0.02, 0.9), (0.3, 2.0), (0.6, 0.7)])
@pytest.mark.parametrize("first", [(0.02, 0.9), (0.1, 1.5), (0.5, 4.0)])
def test_two_releases_are_never_below_the_truth_and_hardly_above(first, second):
    counts = {poisson(*first): 1}
    counts[poisson(*second)] = counts.get(poisson(*second), 0) + 1
    for delta in (1e-2, 1e-4, 1e-6):
        epsilon = tight_epsilon(counts, delta).epsilon
        assert two_releases(epsilon, first, second) <= delta * (1 + 1e-6)
        assert two_releases(epsilon * (1 - 1e-4) - 1e-4, first, second) > delta
        truth = two_releases(epsilon, first, second)
        assert truth * (1 - 1e-6) <= tight_delta(counts, epsilon) <= truth * 1.01


@pytest.mark.parametrize(("q", "z", "mu"), [(0.01, 1.0, 0.2), (0.2, 0.6, 1.0), (0.5, 5.0, 0.05)])
def test_a_sampled_release_beside_a_plain_one(q, z, mu):
    counts = {poisson(q, z): 1, gaussian(1 / mu): 1}
    for delta in (1e-2, 1e-5, 1e-8):
        epsilon = tight_epsilon(counts, delta).epsilon
        assert sampled_and_plain(epsilon, q, z, mu) == pytest.approx(delta, rel=1e-5)


@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-7])
def test_mixed_events_agree_with_a_pessimistic_grid(delta):
    parts = {poisson(0.01, 1.0): 500, poisson(0.05, 2.5): 200, gaussian(8.0): 2, gaussian(20.0): 3}
    theirs = PLDAccountant(value_discretization_interval=1e-4)
    for mechanism, count in parts.items():
        release = dp_event.GaussianDpEvent(mechanism.noise)
        theirs.compose(dp_event.PoissonSampledDpEvent(mechanism.sampling_rate, release), count)
    ours = tight_epsilon(parts, delta).epsilon
    assert theirs.get_epsilon(delta) - 1e-3 <= ours <= theirs.get_epsilon(delta)


def test_where_a_grid_fails_at_tiny_deltas_this_does_not(oracles):
    case = oracles["extra"]["pld_anticonservative"]
    counts = {poisson(case["q"], case["sigma"]): case["T"]}
    ours = tight_epsilon(counts, case["delta"]).epsilon
    assert case["dp_accounting_pld"]["1e-5"] < case["exact"] <= ours <= case["exact"] + 1e-9


mechanisms = st.builds(poisson, st.sampled_from((1e-3, 0.02, 0.2, 1.0)), st.floats(0.5, 10))
parts = st.dictionaries(mechanisms, st.integers(1, 3000), min_size=1, max_size=3)
SLACK = 2e-3
"""Of δ, where smoothing enters: few participations."""


@settings(deadline=None, max_examples=25)
@given(parts, st.floats(1e-12, 0.05))
def test_never_above_the_moments_accountant_and_inverse_to_delta(counts, delta):
    bound = tight_epsilon(counts, delta)
    assert bound.epsilon <= rdp(counts, delta) * (1 + 1e-9) + 5e-4
    if bound.epsilon > 0:
        assert tight_delta(counts, bound.epsilon) <= delta * (1 + SLACK)


@settings(deadline=None, max_examples=25)
@given(
    st.floats(0.002, 0.5),
    st.floats(0.7, 8),
    st.integers(50, 5000),
    st.floats(1e-10, 1e-2),
    st.floats(1.05, 2),
)
def test_moves_the_right_way(q, z, rounds, delta, factor):
    def epsilon(q=q, z=z, rounds=rounds, delta=delta):
        return tight_epsilon({poisson(q, z): rounds}, delta).epsilon

    base = epsilon()
    slack = 1e-4 * base + 1e-6
    assert epsilon(rounds=math.ceil(rounds * factor)) >= base - slack
    assert epsilon(z=z * factor) <= base + slack
    assert epsilon(q=min(0.99, q * factor)) >= base - slack
    assert epsilon(delta=min(0.5, delta * factor)) <= base + slack


def test_plain_gaussians_add_as_their_squares():
    split = tight_epsilon({gaussian(2.0): 3, gaussian(5.0): 10}, 1e-6)
    whole = tight_epsilon({gaussian((3 / 4 + 10 / 25) ** -0.5): 1}, 1e-6)
    assert split.epsilon == pytest.approx(whole.epsilon, rel=1e-12)
    assert split.method == "analytic"


@pytest.mark.parametrize("z", [1e-6, 1e-3, 0.05, 0.3, 3.0, 1e3, 1e8])
@pytest.mark.parametrize("q", [1e-12, 1e-3, 0.4, 0.999999])
def test_extreme_settings_are_silent_and_bounded(q, z):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for rounds in (1, 3, 10**9):
            counts = {poisson(q, z): rounds}
            bound = tight_epsilon(counts, 1e-8)
            assert bound.epsilon >= 0
            assert 0 <= tight_delta(counts, 1.0) <= 1


def test_no_noise_is_unbounded():
    assert tight_epsilon({gaussian(0.0): 1}, 1e-5) == UNBOUNDED
    assert tight_epsilon({}, 1e-5).epsilon == 0
    assert tight_delta({}, 0.0) == 0


def test_a_million_rounds_take_no_longer_than_a_few():
    for q, z in ((0.01, 3.3), (0.001, 0.83), (1e-4, 1.07)):
        started = time.process_time()
        tight_epsilon({poisson(q, z): 10**6}, 1e-9)
        assert time.process_time() - started < 2.0


def test_another_round_of_a_known_release_is_quick():
    release = poisson(0.013, 1.234)
    tight_epsilon({release: 1000}, 1e-6)
    started = time.process_time()
    for rounds in range(1001, 1021):
        tight_epsilon({release: rounds}, 1e-6)
    assert (time.process_time() - started) / 20 < 0.03
