"""Rounding of privacy figures: never to a better promise than the exact one."""

from __future__ import annotations

import math

_SLACK = 1e-9
"""Share of a unit by which a float may lie above what it stands for."""


def rounded_up(value: float, digits: int) -> float:
    """The least number of ``digits`` significant digits that is not below ``value``.

    Zero, what is not finite, and what is too small to be rounded stay as they are.
    """
    if value == 0 or not math.isfinite(value):
        return value
    unit = 10.0 ** (math.floor(math.log10(abs(value))) + 1 - digits)
    if unit == 0.0:
        return value
    return float(f"{math.ceil(value / unit - _SLACK) * unit:.{digits}g}")


def rounded_down(value: float, digits: int) -> float:
    """The greatest number of ``digits`` significant digits that is not above ``value``.

    For what is known to leak at least, or is left to spend: neither must be said to be more than it
    is.
    """
    return 0.0 - rounded_up(-value, digits)
