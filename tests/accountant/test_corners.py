"""Both accountants in the corners: tiny and huge noise, one round and many."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import log_ndtr
from scipy.stats import binom, norm

from fedlens.accountant.dp.differential import DifferentialAccountant
from fedlens.accountant.events import SubsampledGaussian

pytestmark = pytest.mark.law("5: DP figures are never below the truth")
NEGLIGIBLE = 3.0
"""An ε by which δ falls to little of what the tail of the loss is."""


def event(q, z):
    return SubsampledGaussian("user", "none" if q == 1 else "poisson", "add-remove", q, z, 1.0)


def figures(schedule, delta):
    account = DifferentialAccountant()
    for (q, z), rounds in schedule.items():
        account.compose(event(q, z), rounds)
    tight, moments = account.tight(delta).epsilon, account.rdp(delta).epsilon
    assert account.epsilon(delta).epsilon == tight <= moments
    assert account.delta(tight) <= delta * 1.1
    return tight, moments


def gaussian(mu, delta):
    """ε of one Gaussian release of sensitivity over noise μ, by its profile's logarithm."""

    def log_profile(epsilon):
        above, below = log_ndtr(mu / 2 - epsilon / mu), epsilon + log_ndtr(-mu / 2 - epsilon / mu)
        return above + math.log1p(-math.exp(min(below - above, -1e-14))) - math.log(delta)

    return brentq(log_profile, 0.0, mu * mu / 2 + 20 * mu, xtol=1e-12, rtol=1e-13)


def least_lost(schedule, delta):
    """An ε below the truth: the loss is at least that of those rounds that the unit was in.

    In k rounds of q and z it is at least normal, of mean k/(2z²) and variance k/z², and
    k·log(q) + (T − k)·log(1 − q) more; δ(ε) is at least P(loss > ε + s)·(1 − exp(−s)).
    """
    mean, variance, mass = np.zeros(1), np.zeros(1), np.ones(1)
    for (q, z), rounds in schedule.items():
        k = np.arange(binom.ppf(1e-12, rounds, q), binom.isf(1e-12, rounds, q) + 1)
        lost = k / (2 * z * z) + k * math.log(q) + (rounds - k) * math.log1p(-q)
        mean = np.add.outer(mean, lost).ravel()
        variance = np.add.outer(variance, k / (z * z)).ravel()
        mass = np.multiply.outer(mass, binom.pmf(k, rounds, q)).ravel()

    def left(epsilon):
        above = norm.sf(epsilon + NEGLIGIBLE, mean, np.sqrt(np.maximum(variance, 1e-9)))
        return mass @ above * -math.expm1(-NEGLIGIBLE) - delta

    return brentq(left, -NEGLIGIBLE, mean.max() + 50 * math.sqrt(variance.max()))


@pytest.mark.parametrize("z", [0.01, 0.1, 100.0, 1000.0])
@pytest.mark.parametrize("rounds", [1, 7, 10**6])
def test_all_take_part(z, rounds):
    mu = math.sqrt(rounds) / z
    for delta in (1e-3, 1e-5, 1e-9):
        if norm.cdf(mu / 2) - norm.cdf(-mu / 2) <= delta:
            assert figures({(1, z): rounds}, delta)[0] == 0
            continue
        tight, moments = figures({(1, z): rounds}, delta)
        truth = gaussian(mu, delta)
        assert tight == pytest.approx(truth, rel=1e-9, abs=1e-10)
        assert moments <= 1.2 * truth + 0.02


@pytest.mark.parametrize(
    "schedule",
    [
        {(0.01, 0.01): 1},
        {(0.3, 0.01): 10},
        {(0.01, 0.01): 1000},
        {(0.004, 0.001): 1000},
        {(0.01, 0.01): 10**6},
        {(0.9, 1e-5): 10},
        {(0.05, 0.01): 100, (0.01, 0.02): 300},
    ],
)
@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-9])
def test_tiny_noise(schedule, delta):
    tight, moments = figures(schedule, delta)
    least = least_lost(schedule, delta)
    assert least <= tight <= 1.02 * least
    assert moments <= 1.4 * least


@pytest.mark.parametrize(("q", "rounds"), [(0.02, 1), (0.01, 1000)])
def test_little_noise(q, rounds):
    for delta in (1e-3, 1e-5):
        tight, moments = figures({(q, 0.1): rounds}, delta)
        least = least_lost({(q, 0.1): rounds}, delta)
        assert least <= tight <= 1.2 * least
        assert moments <= 1.4 * least


@pytest.mark.parametrize("z", [100.0, 1000.0])
@pytest.mark.parametrize("q", [0.01, 0.3])
def test_huge_noise(q, z):
    """Rounds that tell next to nothing each add up to a Gaussian release of μ² = T·q²·(e^(1/z²)−1).

    One of them loses q·(2Φ(1/(2z)) − 1) in total variation, which is below δ here.
    """
    assert figures({(q, z): 1}, 1e-2) == (0.0, 0.0)
    for mu in (0.1, 1.0, 3.0):
        rounds = math.ceil((mu * z / q) ** 2)
        tight, moments = figures({(q, z): rounds}, 1e-5)
        truth = gaussian(q * math.sqrt(rounds * math.expm1(z**-2)), 1e-5)
        assert tight == pytest.approx(truth, rel=2e-3)
        assert moments <= 1.2 * truth
