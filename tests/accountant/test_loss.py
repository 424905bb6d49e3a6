"""Characteristic functions of privacy losses, and the bound on how they fall."""

import math

import numpy as np
import pytest

from fedlens.accountant.dp.contour import decay
from fedlens.accountant.dp.loss import DIRECTIONS, log_characteristic, tilted
from fedlens.accountant.dp.renyi import renyi_divergences

SETTINGS = [
    (0.01, 1.0, 6.0),
    (1e-4, 1.0, 9.0),
    (0.02, 0.3, 0.4),
    (0.5, 10.0, 20.0),
    (0.9, 0.5, 1.0),
]


def directly(q, z, t, direction, s):
    """M(1+ζ) or M(−ζ) over its value at s = 0, summed on a very fine grid."""
    x = np.linspace(-14 * z - t - 1, 14 * z + t + 2, 2_000_001)
    ell = np.logaddexp(math.log1p(-q), math.log(q) + (2 * x - 1) / (2 * z * z))
    w = (1 + t if direction == "remove" else -t) * ell - 0.5 * (x / z) ** 2
    weight = np.exp(w - w.max())
    phase = s * ell if direction == "remove" else -s * ell
    return complex((weight * np.exp(1j * phase)).sum() / weight.sum())


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("q", "z", "t"), SETTINGS)
def test_characteristic_functions_agree_with_a_fine_sum(q, z, t, direction):
    step = 0.37
    grid = log_characteristic(tilted(q, z, t, direction, 100 * step), 0, 100, step)
    for k in (0, 1, 7, 50, 99):
        value = directly(q, z, t, direction, k * step)
        assert np.exp(grid[k]) == pytest.approx(value, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("start", [0, 64, 1000])
def test_any_stretch_of_the_grid_is_the_same(start):
    law = tilted(0.01, 1.0, 5.0, "remove", 200.0)
    whole = log_characteristic(law, 0, start + 77, 0.1)
    np.testing.assert_allclose(log_characteristic(law, start, 77, 0.1), whole[start:], atol=1e-13)


@pytest.mark.parametrize(("q", "z"), [(0.01, 1.0), (1e-4, 1.0), (0.02, 0.3), (0.4, 30.0)])
def test_the_log_moment_is_a_renyi_divergence(q, z):
    for t in (0.3, 2.0, 11.7):
        expected = t * renyi_divergences(q, z, (1 + t,))[0]
        assert tilted(q, z, t, "remove", 0.0).log_moment == pytest.approx(expected, rel=1e-9)
        assert tilted(q, z, t, "add", 0.0).log_moment <= expected * (1 + 1e-9)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("q", "z", "t"), SETTINGS)
def test_the_bound_holds_from_its_frequency_on(q, z, t, direction):
    fall = decay(q, z, t, direction)
    top = 300.0
    law = tilted(q, z, t, direction, top)
    sizes = log_characteristic(law, 0, 3000, top / 3000).real
    largest_later = np.maximum.accumulate(sizes[::-1])[::-1]
    for k in range(1, 3000, 97):
        assert largest_later[k] <= fall.log_bound(k * top / 3000) + 1e-14
    assert fall.log_bound(1e9) < -1e-5
    assert fall.log_bound(0.0) == 0.0
