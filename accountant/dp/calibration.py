"""Planning: how much noise a budget needs, and how many rounds it allows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from fedlens.accountant.bounds import require_count, require_probability
from fedlens.accountant.dp.differential import DifferentialAccountant
from fedlens.accountant.events import LEAST_NOISE, Event, Sampler, SubsampledGaussian
from fedlens.foundation.errors import WrongUse

Method = Literal["best", "rdp"]

_METHODS = ("best", "rdp")
_MOST_NOISE = 1e9
_MOST_ROUNDS = 10**9
_SLACK = 2e-5
LEAST_EPSILON = 1e-9
"""Smaller targets are refused: they ask for more noise than numbers can tell apart."""


class CalibrationError(WrongUse):
    """A target that no noise, or every number of rounds, reaches."""


def noise_for(
    *,
    epsilon: float,
    delta: float,
    rounds: int,
    sampling_rate: float,
    sampler: Sampler = "poisson",
    method: Method = "best",
) -> float:
    """The least noise multiplier with which ``rounds`` releases stay within (ε, δ).

    Args:
        epsilon: the target, above 0.
        delta: in (0, 1).
        rounds: how many releases, at least 1.
        sampling_rate: q in (0, 1].
        sampler: who takes part, as in `SubsampledGaussian`.
        method: ``best`` for the least of all bounds, ``rdp`` for the moments accountant alone.

    Returns:
        z, noise over the clipping norm; the accountant's epsilon at this
        z is at most ``epsilon``, and z is at most a relative 1e-4 above the least such.

    Raises:
        WrongUse: an argument is out of range; `CalibrationError` where no noise multiplier
            below 1e9 is enough.
    """
    require_count("rounds", rounds)
    _check(epsilon, delta, method)
    event = SubsampledGaussian("user", sampler, "add-remove", sampling_rate, 1.0, 1.0)

    def at(noise: float, how: Method) -> float:
        return _epsilon(replace(event, noise_multiplier=noise), rounds, delta, how)

    try:
        start = _least(lambda noise: at(noise, "rdp"), epsilon, 1.0)
    except CalibrationError:
        if method == "rdp":
            raise
        start = 1.0  # the moments accountant's orders end somewhere; the tight one has none
    return start if method == "rdp" else _least(lambda noise: at(noise, "best"), epsilon, start)


def rounds_within(event: Event, *, epsilon: float, delta: float, method: Method = "best") -> int:
    """The largest number of occurrences of ``event`` that stays within (ε, δ); 0 if none does.

    Args:
        event: what would be released again and again.
        epsilon: the budget, above 0.
        delta: in (0, 1).
        method: ``best`` for the least of all bounds, ``rdp`` for the moments accountant alone.

    Raises:
        WrongUse: an argument is out of range; `CalibrationError` where more than 10^9 stay
            within the budget.
    """
    _check(epsilon, delta, method)

    def within(count: int, how: Method) -> bool:
        return _epsilon(event, count, delta, how) <= epsilon

    floor = _most(lambda count: within(count, "rdp"), 0)
    return floor if method == "rdp" else _most(lambda count: within(count, "best"), floor)


def _check(epsilon: float, delta: float, method: str) -> None:
    require_probability("delta", delta)
    if not (math.isfinite(epsilon) and epsilon >= LEAST_EPSILON):
        raise WrongUse(
            f"epsilon = {epsilon!r} cannot be used: give a finite number, at least "
            f"{LEAST_EPSILON:g}"
        )
    if method not in _METHODS:
        raise WrongUse(f"method = {method!r} cannot be used: choose 'best' or 'rdp'")


def _epsilon(event: Event, count: int, delta: float, method: Method) -> float:
    accountant = DifferentialAccountant()
    accountant.compose(event, count)
    return (accountant.rdp(delta) if method == "rdp" else accountant.epsilon(delta)).epsilon


def _least(epsilon_at: Callable[[float], float], target: float, start: float) -> float:
    """The smallest noise, up to `_SLACK`, from which on epsilon is within the target."""
    low, high = _bracket(epsilon_at, target, start)
    if low == high:
        return high
    heights = [math.log(max(epsilon_at(noise), 1e-300) / target) for noise in (low, high)]
    while high > low * (1 + _SLACK):
        middle = _between(math.log(low), math.log(high), *heights)
        found = epsilon_at(middle)
        height = math.log(max(found, 1e-300) / target)
        if found <= target:
            high, heights = middle, [heights[0] / 2, height]
        else:
            low, heights = middle, [height, heights[1] / 2]
    return high


def _between(low: float, high: float, above: float, below: float) -> float:
    """Where a chord in log-log coordinates meets the target, kept off the ends (Illinois)."""
    share = above / (above - below) if math.isfinite(above) and above > below else 0.5
    margin = min(0.4 * _SLACK / (high - low), 0.5)
    return math.exp(low + min(max(share, margin), 1 - margin) * (high - low))


def _bracket(
    epsilon_at: Callable[[float], float], target: float, start: float
) -> tuple[float, float]:
    """A noise that is not enough and one that is, not far apart; twice `LEAST_NOISE` if it is."""
    low, high, stride = 0.0, start, 1.3
    while epsilon_at(high) > target:
        low, high, stride = high, high * stride, min(stride * stride, 8.0)
        if high > _MOST_NOISE:
            raise CalibrationError(
                f"no noise multiplier up to {_MOST_NOISE:g} reaches this budget: give a larger "
                "epsilon or delta, or fewer rounds"
            )
    stride = 1.3
    while low == 0.0:
        below = max(high / stride, LEAST_NOISE)
        if epsilon_at(below) > target:
            low = below
        elif below == LEAST_NOISE:
            return below, below
        else:
            high, stride = below, min(stride * stride, 8.0)
    return low, high


def _most(within: Callable[[int], bool], floor: int) -> int:
    """The largest count at which ``within`` holds, knowing that it does at ``floor``."""
    low, high = floor, floor + max(1, floor // 8)
    while within(high):
        if high > _MOST_ROUNDS:
            raise CalibrationError(
                f"more than {_MOST_ROUNDS:,} rounds stay within this budget: it does not bound them"
            )
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if within(middle) else (low, middle)
    return low
