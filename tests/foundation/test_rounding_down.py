"""Lower bounds are never shown larger than they are."""

from __future__ import annotations

import math

import pytest

from fedlens.foundation.rounding import rounded_down, rounded_up


@pytest.mark.parametrize("value", [1.2399, 0.0123999, 123_999.0, 1e-9, 1.23, 0.1 + 0.2, 1.0])
def test_rounded_down_is_the_greatest_below(value: float) -> None:
    down, up = rounded_down(value, 3), rounded_up(value, 3)
    assert down <= value * (1 + 1e-9)
    assert value - down < 0.011 * value
    assert down <= up


def test_zero_and_infinity_stay() -> None:
    assert rounded_down(0.0, 3) == 0
    assert rounded_down(math.inf, 3) == math.inf
