"""Mechanisms and bounds in words that a reader without formulas can check."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fedlens.accountant.bounds import Bound
from fedlens.accountant.events import Event, GaussianRelease, SubsampledGaussian
from fedlens.foundation.rounding import rounded_up

Schedule = Sequence[tuple[Event, int]]
"""Different events, each with how often it happened."""

_KINDS_NAMED = 4
_CAUTION = 0.2
"""δ of more than this share of 1/N is warned of."""
_METHODS = {
    "rdp": "moments accountant of order {order:g}",
    "analytic": "closed form of the privacy loss",
    "contour": "privacy loss by contour inversion",
    "participation": "privacy loss by numbers of participations",
}
METHODS = tuple(_METHODS)
"""Names of the computations that can give a differential privacy figure."""


def shown(value: float, digits: int = 3) -> str:
    """An ε or δ with some significant digits, rounded up: what is shown never promises too much."""
    if math.isinf(value):
        return "infinite"
    return f"{rounded_up(value, digits):.{digits}g}"


def percentage(share: float) -> str:
    """A share of a budget that is used, rounded up to a tenth of a per cent."""
    return f"{math.ceil(1000 * share) / 10:g}%"


def method_in_words(bound: Bound) -> str:
    """Which computation gave a bound."""
    return _METHODS.get(bound.method, bound.method).format(order=bound.order)


def neighbours_in_words(event: Event) -> str:
    """Between which data sets the guarantee holds."""
    if event.unit == "user":
        return "adding or removing one user with all of their data"
    return "adding or removing one record (not all of a user's)"


def releases_in_words(schedule: Schedule) -> str:
    """What was released how often, under which sampling and noise."""
    parts = [_release(event, times) for event, times in schedule[:_KINDS_NAMED]]
    left = len(schedule) - _KINDS_NAMED
    if left > 0:
        parts.append(f"{left} more kinds of release, which the ledger lists")
    return "; ".join(parts)


def differential(schedule: Schedule, bound: Bound, delta: float) -> str:
    """The differential privacy guarantee in one sentence.

    Args:
        schedule: what was released, one event at least, all of one unit.
        bound: a finite ε at ``delta``.
        delta: δ.
    """
    return (
        f"({shown(bound.epsilon)}, {shown(delta)})-differential privacy for "
        f"{neighbours_in_words(schedule[0][0])}, whatever they and the others hold: "
        f"{releases_in_words(schedule)} ({method_in_words(bound)})."
    )


def delta_in_words(delta: float, users: int) -> str:
    """How δ stands to 1/N for N enrolled users."""
    if delta * users < _CAUTION:
        return (
            f"How many users are enrolled is public: N = {users}, of whom one may have no data. "
            f"δ is {shown(delta * users, 2)} of 1/N."
        )
    return (
        f"Caution: δ = {shown(delta)} is not far below 1/N = {1 / users:.3g}; publishing "
        "one person's data outright could satisfy a δ above it. Choose a smaller one."
    )


def _release(event: Event, times: int) -> str:
    if isinstance(event, GaussianRelease):
        number = times * event.count
        what = f"{event.released} released once" if number == 1 else f"{event.released}, {number}×"
        return (
            f"{what}, from all users' data, noise {event.noise_multiplier:g} times its sensitivity"
        )
    rounds = "1 round" if times == 1 else f"{times} rounds"
    if event.count > 1:
        rounds += f" of {event.count} noised releases each"
    return f"{rounds}, {_drawn(event)}, noise {event.noise_multiplier:g} times the clipping norm"


def _drawn(event: SubsampledGaussian) -> str:
    if event.sampler == "none" or event.sampling_rate == 1:
        return f"every {event.unit} in each of them"
    return (
        f"each {event.unit} drawn with probability {event.sampling_rate:g} by Poisson sampling "
        "whose outcome is kept secret"
    )
