"""Shamir's shares: known values, any threshold of them, and nothing from fewer."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedlens.foundation.secure_sum import SecureSumError
from fedlens.foundation.secure_sum.field import PRIME, combined, evaluate, split, weights_at_zero


def test_known_values():
    """1234 + 166x + 94x², the textbook's polynomial, whose values are below the field's size."""
    shares = evaluate([1234, 166, 94], range(1, 7), 3)
    assert list(shares.values()) == [1494, 1942, 2578, 3402, 4414, 5614]
    for points in combinations(range(1, 7), 3):
        assert combined(shares, weights_at_zero(points)) == 1234


def test_the_field_is_one():
    """Fermat's test to several bases, and Lucas's proof of the small factors of PRIME − 1."""
    assert PRIME > 2**256 and all(pow(base, PRIME - 1, PRIME) == 1 for base in (2, 3, 5, 7, 11, 13))
    odd, twos = PRIME - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in range(2, 60):  # Miller and Rabin
        x = pow(base, odd, PRIME)
        found = x in (1, PRIME - 1)
        for _ in range(twos - 1):
            x = x * x % PRIME
            found = found or x == PRIME - 1
        assert found


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_threshold_of_shares_gives_the_secret_back(data):
    secret = data.draw(st.integers(0, PRIME - 1))
    points = data.draw(st.lists(st.integers(1, 4096), min_size=1, max_size=12, unique=True))
    threshold = data.draw(st.integers(1, len(points)))
    shares = split(secret, threshold, points)
    chosen = data.draw(st.permutations(points))[:threshold]
    assert combined(shares, weights_at_zero(chosen)) == secret
    if threshold > 1:  # and one fewer gives something else, but with probability 1/PRIME
        assert combined(shares, weights_at_zero(chosen[1:])) != secret


def test_weights_are_lagranges():
    points = [1, 3, 4, 9]
    for own, weight in weights_at_zero(points).items():
        exact = Fraction(1)
        for other in points:
            if other != own:
                exact *= Fraction(other, other - own)
        assert (weight * exact.denominator - exact.numerator) % PRIME == 0


@pytest.mark.law("secure sums: too few shares open nothing")
def test_fewer_shares_than_the_threshold_are_uniform_whatever_the_secret():
    for secret in (0, PRIME - 1):
        drawn = [split(secret, 3, [1, 2, 3])[point] for point in (1, 2) for _ in range(4000)]
        counts = [sum(1 for share in drawn if share * 16 // PRIME == k) for k in range(16)]
        assert stats.chisquare(counts).pvalue > 1e-6


@pytest.mark.parametrize(
    "arguments",
    [(1, 0, [1, 2]), (1, 3, [1, 2]), (1, 2, [0, 1]), (1, 2, [1, 1]), (PRIME, 2, [1, 2]),
     (-1, 2, [1, 2]), (1, 2, [1, PRIME])],
)  # fmt: skip
def test_what_cannot_be_shared_is_refused(arguments):
    with pytest.raises(SecureSumError):
        split(*arguments)
