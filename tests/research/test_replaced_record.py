"""The bound for a replaced record, against integration over the plane and its own inequalities."""

import math

import numpy as np
import pytest
from dp_accounting import NeighboringRelation, dp_event
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlens.accountant.dp.renyi import DEFAULT_ORDERS, epsilons
from fedlens_research.table1.replaced_record import log_ternary, replaced_divergences

WHOLE = tuple(float(a) for a in range(2, 65))

corners = st.tuples(st.floats(0, 1), st.floats(-math.pi / 3, math.pi / 3), st.floats(0, 1))


def plane(z):
    points = np.linspace(-8 * z - 1, 8 * z + 1, 400)
    x, y = np.meshgrid(points, points)
    return x, y, (points[1] - points[0]) ** 2


def density(x, y, mean, z):
    return np.exp(-((x - mean[0]) ** 2 + (y - mean[1]) ** 2) / (2 * z * z)) / (2 * math.pi * z * z)


@pytest.mark.parametrize("z", [0.7, 2.0, 6.0])
@pytest.mark.parametrize("q", [0.01, 0.3, 0.9])
@pytest.mark.parametrize(
    "means",
    [((1, 0), (0.5, math.sqrt(0.75))), ((0.5, 0), (-0.5, 0)), ((1, 0), (0, 0)), ((0, 0), (1, 0))],
)
def test_no_pair_of_mixtures_is_further_apart(z, q, means):
    x, y, cell = plane(z)
    common = (1 - q) * density(x, y, (0, 0), z)
    mu, nu = (common + q * density(x, y, mean, z) for mean in means)
    for alpha in (1.5, 2.0, 3.0, 5.5):
        moment = (mu**alpha * nu ** (1 - alpha)).sum() * cell
        bound = replaced_divergences(q, z, (alpha,))[0]
        assert math.log(moment) / (alpha - 1) <= bound * (1 + 1e-6) + 1e-9


@settings(deadline=None, max_examples=100)
@given(corners, st.floats(0.8, 100), st.sampled_from((2, 4, 6, 10, 16)))
def test_ternary_divergences_are_bounded_for_every_triangle(corner, z, j):
    length, angle, other = corner
    u = np.array([length, 0.0])
    v = other * np.array([math.cos(angle), math.sin(angle)])
    s = 1 / (z * z)

    def term(i):
        mean = (j - i) * u + i * v
        return math.exp(s / 2 * (mean @ mean - (j - i) * u @ u - i * v @ v))

    total = math.fsum((-1) ** i * math.comb(j, i) * term(i) for i in range(j + 1))
    rounding = 1e-13 * 2**j * math.exp(j * j * s / 2)
    assert total <= math.exp(log_ternary(j, z)[j - 2]) * (1 + 1e-9) + rounding


@pytest.mark.parametrize("rate", [0.001, 0.05, 0.5])
@pytest.mark.parametrize("noise", [0.7, 4.0, 40.0])
def test_sharper_than_the_bound_for_mechanisms_of_every_kind(rate, noise):
    """The published bound as another library has it, noise over the replace-one sensitivity."""
    theirs = RdpAccountant([2.0, 3.0], NeighboringRelation.REPLACE_ONE)
    release = dp_event.GaussianDpEvent(noise)
    theirs.compose(dp_event.SampledWithoutReplacementDpEvent(1000, int(rate * 1000), release), 500)
    spent = 500 * replaced_divergences(rate, noise, (2.0, 3.0))
    for delta in (1e-6, 1e-10):
        ours = epsilons(spent, np.array([2.0, 3.0]), delta).min()
        assert 0.2 * theirs.get_epsilon(delta) < ours <= theirs.get_epsilon(delta) * (1 + 1e-9)


@settings(deadline=None, max_examples=40)
@given(st.floats(1e-6, 0.999), st.floats(0.1, 1000), st.floats(1.01, 3))
def test_divergences_move_the_right_way(q, z, factor):
    base = replaced_divergences(q, z, DEFAULT_ORDERS)
    slack = 1 + 1e-9
    whole = np.array(WHOLE)
    assert (replaced_divergences(q, z, WHOLE) <= whole / (2 * z * z) * slack).all()
    assert (replaced_divergences(q, z * factor, DEFAULT_ORDERS) <= base * slack).all()
    assert (replaced_divergences(min(0.9999, q * factor), z, DEFAULT_ORDERS) >= base / slack).all()
    assert (np.diff(replaced_divergences(q, z, WHOLE)) > 0).all()
    assert np.isfinite(base).all() and (base > 0).all()


def test_no_noise_is_infinite():
    assert np.isinf(replaced_divergences(0.1, 0.0, (2.0, 3.5))).all()
