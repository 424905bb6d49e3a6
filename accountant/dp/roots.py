"""Where a falling function crosses zero.

SciPy's solver would do, but importing ``scipy.optimize`` takes longer than pricing a schedule does.
"""

from __future__ import annotations

import math
from collections.abc import Callable

_MOST_STEPS = 200


def falling_root(
    function: Callable[[float], float], low: float, high: float, *, xtol: float, rtol: float
) -> float:
    """Where ``function`` crosses zero between ``low`` and ``high``, by Chandrupatla's method.

    The bracket shrinks with each step, by bisection where the function is not yet smooth on it and
    by inverse quadratic interpolation where it is.

    Args:
        function: falling, above 0 at ``low`` and at most 0 at ``high``.
        low: lower end of the bracket.
        high: upper end.
        xtol: absolute tolerance of the result.
        rtol: relative tolerance of the result.

    Returns:
        A point within ``xtol + rtol · |root|`` of the crossing, on either side of it.
    """
    a, b = high, low
    at_a, at_b = function(a), function(b)
    step = 0.5
    for _ in range(_MOST_STEPS):
        x = a + step * (b - a)
        at_x = function(x)
        if (at_x > 0) == (at_a > 0):
            c, at_c = a, at_a
        else:
            c, at_c, b, at_b = b, at_b, a, at_a
        a, at_a = x, at_x
        best, least = (a, at_a) if abs(at_a) < abs(at_b) else (b, at_b)
        margin = (xtol + rtol * abs(best)) / abs(b - a)
        if margin > 0.5 or least == 0:
            break
        step = _next_step((a, at_a), (b, at_b), (c, at_c))
        step = min(max(step, margin), 1 - margin)
    return best


def _next_step(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> float:
    """How far from ``a`` towards ``b`` to look next; each is a point and its value."""
    if not all(math.isfinite(value) for _, value in (a, b, c)):
        return 0.5
    xi = (a[0] - b[0]) / (c[0] - b[0])
    phi = (a[1] - b[1]) / (c[1] - b[1])
    if not 1 - math.sqrt(1 - xi) < phi < math.sqrt(xi):
        return 0.5
    by_b = a[1] / (b[1] - a[1]) * c[1] / (b[1] - c[1])
    by_c = (c[0] - a[0]) / (b[0] - a[0]) * a[1] / (c[1] - a[1]) * b[1] / (c[1] - b[1])
    return by_b + by_c
