"""Noise that nodes add together: its law, its scale, and what of a sum is exact."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedlens.accountant.dp.renyi import renyi_divergences
from fedlens.accountant.noise import lattice
from fedlens.accountant.noise import shares as discrete
from fedlens.accountant.noise.bits import FixedBits
from fedlens.accountant.noise.shares import (
    LEAST_SHARE,
    OffLattice,
    discrete_normal,
    noised_layout,
    plain_layout,
    share_scale,
)
from fedlens.foundation.errors import WrongUse

CLIP = 0.3


def law(scale: float, reach: int) -> np.ndarray:
    """N_Z(0, scale²) at −reach .. reach."""
    points = np.arange(-reach, reach + 1)
    heights = np.exp(-(points**2) / (2 * scale**2))
    return heights / heights.sum()


def agrees(draws: np.ndarray, probabilities: np.ndarray) -> float:
    reach = len(probabilities) // 2
    counts = np.array([(draws == j).sum() for j in range(-reach, reach + 1)])
    expected = probabilities * len(draws)
    kept = expected > 5
    statistic = ((counts - expected)[kept] ** 2 / expected[kept]).sum()
    return float(stats.chi2.sf(statistic, kept.sum() - 1))


# One share


@pytest.mark.parametrize("scale", [1, 2, 3, 10])
@pytest.mark.law("secure sums: the nodes' noise is what the ledger states")
def test_a_share_has_the_law_of_the_discrete_gaussian(scale):
    draws = discrete_normal(400_000, scale, FixedBits(scale, 1))
    assert agrees(draws, law(scale, 6 * scale)) > 1e-4


@pytest.mark.parametrize("scale", [2**36 + 12345, 3 * 2**40 + 7, 2**52])
def test_a_large_share_is_normal_up_to_high_moments(scale):
    draws = discrete_normal(300_000, scale, FixedBits(scale, 2)) / scale
    assert stats.kstest(draws, "norm").pvalue > 1e-4
    for order, exact in ((2, 1), (4, 3), (6, 15)):
        spread = math.sqrt(math.prod(range(1, 2 * order, 2)) - exact**2)
        assert abs((draws**order).mean() - exact) < 5 * spread / math.sqrt(len(draws))


def test_what_floats_decide_of_a_share_is_what_exact_arithmetic_decides():
    words, scale = FixedBits(1).words(3 * 2000), 2**37 + 3
    fast = discrete._kept(words, scale, FixedBits(2))
    exact = discrete._kept(words, scale, FixedBits(2), doubt=2.0)
    np.testing.assert_array_equal(fast, exact)


@pytest.mark.parametrize("scale", [0, -1, 2**52 + 1])
def test_a_scale_that_cannot_be_drawn_is_refused(scale):
    with pytest.raises(WrongUse):
        discrete_normal(1, scale, FixedBits(0))


# The sum of shares


@pytest.mark.parametrize(("shares", "scale"), [(2, 2), (3, 2), (4, 5), (10, 3)])
def test_a_sum_of_shares_has_the_law_of_one_discrete_gaussian(shares, scale):
    draws = sum(discrete_normal(200_000, scale, FixedBits(scale, i)) for i in range(shares))
    together = scale * math.sqrt(shares)
    assert agrees(draws, law(together, math.ceil(6 * together))) > 1e-4


@pytest.mark.parametrize(("shares", "scale"), [(2, 1), (3, 1), (5, 1), (12, 1)])
@pytest.mark.law("secure sums: the nodes' noise is what the ledger states")
def test_the_correction_of_a_sum_is_within_what_is_proved(shares, scale):
    """Exact convolution against the bound of `fedlens.accountant.noise.shares`, where it can be
    seen.
    """
    one = law(scale, 60)
    whole = one
    for _ in range(shares - 1):
        whole = np.convolve(whole, one)
    reach = len(whole) // 2
    exact = law(scale * math.sqrt(shares), reach)
    seen = slice(reach - 6 * scale, reach + 6 * scale + 1)
    worst = abs(np.log(whole[seen] / exact[seen])).max()
    assert 0 < worst <= 10 * (shares - 1) * math.exp(-(math.pi**2) * scale**2)


@pytest.mark.parametrize(("central", "whole"), [(1.0, 1.5), (2.0, 2.25), (3.0, 3.2)])
def test_a_discrete_gaussian_is_a_rounding_of_a_gaussian_with_less_noise(central, whole):
    """The second step of the proof, by quadrature: N_Z(x, s²) out of N(x, s₀²)."""
    spread = math.sqrt(whole**2 - central**2)
    t = np.linspace(-60, 60, 240_001)
    density = np.exp(-(t**2) / (2 * central**2)) / (central * math.sqrt(2 * math.pi))
    integers = np.arange(-80, 81)
    shape = np.exp(-((integers[:, None] - t[None, ::40]) ** 2) / (2 * spread**2)).sum(0)
    normal = np.interp(t, t[::40], shape)
    exact = law(whole, 80)
    for y in range(6):
        kernel = np.exp(-((y - t) ** 2) / (2 * spread**2)) / normal
        found = np.trapezoid(density * kernel, t)
        bound = 10 * math.exp(-2 * math.pi**2 * spread**2) + 1e-6
        bound += 10 * math.exp(-2 * math.pi**2 * central**2)
        assert abs(math.log(found / exact[80 + y])) <= bound


@pytest.mark.parametrize("order", [2, 3, 8])
@pytest.mark.parametrize(("q", "scale", "shift"), [(0.3, 3, 2), (0.1, 2, 1), (0.5, 5, 5)])
def test_a_subsampled_sum_diverges_no_more_than_the_gaussian_does(order, q, scale, shift):
    """Both directions, computed exactly on the integers, against the accountants' curve."""
    points = np.arange(-60 * scale, 60 * scale + 1)
    weight = np.log(np.exp(-(points**2) / (2 * scale**2)).sum())
    here = -(points**2) / (2 * scale**2) - weight
    there = -((points - shift) ** 2) / (2 * scale**2) - weight
    mixed = np.logaddexp(math.log1p(-q) + here, math.log(q) + there)
    bound = float(renyi_divergences(q, scale / shift, (float(order),))[0])
    for above, below in ((mixed, here), (here, mixed)):
        moment = np.logaddexp.reduce(order * above + (1 - order) * below)
        assert 0 < moment / (order - 1) <= bound * (1 + 1e-9)


@settings(max_examples=60, deadline=None)
@given(
    st.floats(1e-3, 1000),
    st.floats(1e-6, 1e3),
    st.integers(1, 10**6),
    st.integers(1, 200),
)
@pytest.mark.law("secure sums: the nodes' noise is what the ledger states")
def test_the_honest_shares_reach_the_multiplier_with_one_to_spare(z, clip, size, honest):
    share = share_scale(z, clip, size, honest)
    central = lattice.noise_scale(z, clip, size)
    assert honest * share**2 >= (central + 1) ** 2
    assert honest * (share - 1) ** 2 < (central + 1) ** 2
    step = Fraction(lattice.pitch(clip))
    assert honest * (share * step) ** 2 >= (Fraction(z) * Fraction(clip)) ** 2


def test_noise_too_little_to_share_is_refused():
    assert share_scale(1e-6, 1.0, 10, 400_000) >= LEAST_SHARE
    with pytest.raises(WrongUse, match="too little"):
        share_scale(1e-6, 1.0, 10, 10**9)
    with pytest.raises(WrongUse, match="honest"):
        share_scale(1.0, 1.0, 10, 0)
    assert share_scale(0.0, 1.0, 10, 3) == share_scale(1.0, 1.0, 0, 3) == 0


# What is summed


def sums(nodes: int, size: int, users: int) -> list[np.ndarray]:
    """Sums of clipped users as nodes compute them, on the lattice of sums."""
    source, step = np.random.default_rng(nodes), lattice.pitch(CLIP, lattice.SUM_BITS)
    rows = source.normal(size=(nodes, users, size))
    rows *= CLIP / np.linalg.norm(rows, axis=2, keepdims=True)
    return list((np.trunc(rows / step) * step).sum(axis=1))


def test_plain_parts_add_up_to_the_sum_exactly():
    parts = sums(5, 40, 7)
    layout = plain_layout(40, CLIP, 35, 64)
    norms = np.arange(64)
    whole = sum(layout.encoded(part, norms, FixedBits(0), FixedBits(0)) for part in parts)
    total, counts = layout.decoded(whole)
    np.testing.assert_array_equal(total, sum(parts))
    np.testing.assert_array_equal(counts, 5 * norms)
    assert abs(whole).max() <= layout.largest


def test_noised_parts_add_up_to_the_sum_and_the_noise_of_all():
    parts, honest = sums(5, 20_000, 3), 3
    layout = noised_layout(20_000, CLIP, 15, 16, multipliers=(2.0, 14.0), honest=honest, parties=5)
    norms = np.arange(16)
    whole = sum(
        layout.encoded(part, norms, FixedBits(i, 1), FixedBits(i, 2))
        for i, part in enumerate(parts)
    )
    total, counts = layout.decoded(whole)
    noise = (total - sum(parts)) / CLIP
    assert noise.std() == pytest.approx(2.0 * math.sqrt(5 / 3), rel=0.03)
    assert (counts - 5 * norms).std() == pytest.approx(14 * math.sqrt(5 / 3), rel=0.6)
    assert abs(whole).max() <= layout.largest


@pytest.mark.parametrize("users", [1, 10**3, 10**6])
@pytest.mark.law("secure sums: the sum is exact")
def test_no_sum_of_users_passes_the_room_that_is_kept(users):
    for layout in (
        plain_layout(10, CLIP, users, 64),
        noised_layout(10, CLIP, users, 16, multipliers=(2.0, 9.0), honest=1, parties=2),
    ):
        step = layout.update.pitch
        assert layout.update.largest * step >= users * CLIP
        assert layout.norms.largest * layout.norms.pitch >= users


def test_a_sum_off_the_lattice_is_not_sent():
    layout = plain_layout(3, CLIP, 5, 64)
    step = layout.update.pitch
    for total in (np.array([0.0, step / 2, 0.0]), np.array([0.0, math.nan, 0.0]), np.zeros(4)):
        with pytest.raises(OffLattice):
            layout.encoded(total, np.zeros(64, dtype=np.int64), FixedBits(0), FixedBits(0))
