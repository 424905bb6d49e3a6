"""The bracketing root finder, against closed forms."""

from __future__ import annotations

import math

import pytest

from fedlens.accountant.dp.roots import falling_root


@pytest.mark.parametrize(
    ("function", "low", "high", "root"),
    [
        (lambda x: 2 - x * x, 0.0, 5.0, math.sqrt(2)),
        (lambda x: -math.atan(x - 700), 0.0, 1000.0, 700.0),
        (lambda x: math.log(max(math.exp(-x * x), 1e-300)) + 11.5, 0.0, 1e3, math.sqrt(11.5)),
        (lambda x: math.inf if x < 1e-9 else 1 / x - 1e6, 0.0, 1.0, 1e-6),
        (lambda x: (1 - x) ** 5, 0.0, 3.0, 1.0),
        (lambda x: 1.0 if x < 0.3 else -1.0, 0.0, 1.0, 0.3),
    ],
)
def test_a_root_is_found_to_the_tolerance_in_few_steps(function, low, high, root):
    asked = []

    def counted(x: float) -> float:
        asked.append(x)
        return function(x)

    found = falling_root(counted, low, high, xtol=1e-12, rtol=1e-12)
    assert found == pytest.approx(root, abs=2e-12 * (1 + root))
    assert len(asked) <= 80
