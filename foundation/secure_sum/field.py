"""Shamir's secret sharing over a prime field: ``threshold`` shares give a secret, fewer nothing.

A. Shamir, "How to Share a Secret", Communications of the ACM 22 (1979). The secret is the value at
0 of a random polynomial of degree ``threshold`` − 1, a share its value at another point. Python's
integers take no constant time: this is for secrets of one round, on the machine that holds them.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

from fedlens.foundation.secure_sum.errors import SecureSumError

PRIME = 2**256 + 297
"""The least prime above 2^256, so every 32-byte secret is an element of the field."""
SHARE_BYTES = 33
"""Bytes of a share."""


def split(secret: int, threshold: int, points: Sequence[int]) -> dict[int, int]:
    """Shares of a secret by their points, the polynomial from the operating system's entropy.

    Args:
        secret: in [0, PRIME).
        threshold: how many shares give it back, 1 to ``len(points)``.
        points: distinct and in [1, PRIME).

    Raises:
        SecureSumError: an argument is out of its range.
    """
    random = [secrets.randbelow(PRIME) for _ in range(threshold - 1)]
    return evaluate([secret, *random], points, threshold)


def evaluate(polynomial: Sequence[int], points: Sequence[int], threshold: int) -> dict[int, int]:
    """Values of a polynomial, its constant term first, at distinct points other than 0.

    Raises:
        SecureSumError: a point or a coefficient is out of the field, or there are too few points.
    """
    _check_points(points)
    if not 1 <= threshold <= len(points) or len(polynomial) != threshold:
        raise SecureSumError(f"threshold {threshold} of {len(points)} shares: give 1 to that many")
    if not all(0 <= c < PRIME for c in polynomial):
        raise SecureSumError("a secret is no element of the field: give a number below 2^256")
    shares = {}
    for point in points:
        value = 0
        for coefficient in reversed(polynomial):  # Horner
            value = (value * point + coefficient) % PRIME
        shares[point] = value
    return shares


def weights_at_zero(points: Sequence[int]) -> dict[int, int]:
    """Lagrange's weights: the secret is the sum of weight x share over these points.

    Raises:
        SecureSumError: points repeat, or are 0 or out of the field.
    """
    _check_points(points)
    found = {}
    for own in points:
        above, below = 1, 1
        for other in points:
            if other != own:
                above = above * other % PRIME
                below = below * (other - own) % PRIME
        found[own] = above * pow(below, -1, PRIME) % PRIME
    return found


def combined(shares: Mapping[int, int], weights: Mapping[int, int]) -> int:
    """The secret of which ``shares`` are, at the points of ``weights``."""
    return sum(weight * shares[point] for point, weight in weights.items()) % PRIME


def _check_points(points: Sequence[int]) -> None:
    if len(set(points)) != len(points) or not all(0 < point < PRIME for point in points):
        raise SecureSumError("points of shares must be distinct numbers above 0")
