"""Tight (ε, δ) of a composition: closed forms where there are any, else the contour.

Both bound what is really lost when the worst pair of neighbours is attacked by the best test. The
closed forms are exact, and the contour is to about 1e-8 in ε where dozens of units' worth of
participation add up; with few participations (a rate of 1e-6, a handful of rounds) it may lie well
above the truth, never below. Of tiny noise the count of participations tells more. Moments
accountants lose up to tens of per cent everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from fedlens.accountant.bounds import NO_ORDER, NOTHING_SPENT, UNBOUNDED, Bound
from fedlens.accountant.dp.binomial import Floats
from fedlens.accountant.dp.contour import (
    QUICK,
    Composition,
    ContourLine,
    ContourPlace,
    epsilon_bounds,
    lattice_moments,
    line,
    log_chernoff,
    place,
    saddle,
)
from fedlens.accountant.dp.loss import DIRECTIONS, Direction
from fedlens.accountant.dp.participation import participation_delta, participation_epsilon
from fedlens.accountant.dp.profiles import (
    gaussian_delta,
    gaussian_epsilon,
    sampled_delta,
    sampled_epsilon,
)
from fedlens.accountant.dp.roots import falling_root
from fedlens.accountant.events import PricedMechanism

ANALYTIC, CONTOUR, PARTICIPATION = "analytic", "contour", "participation"
_PRECISION = 1e-11
_LEFT = 2
_TRIES = 5
_SETTLED = 1e-6
_NOTHING = -700.0


def tight_epsilon(counts: Mapping[PricedMechanism, int], delta: float) -> Bound:
    """The least ε ≥ 0 that goes with ``delta``, rounded up; `UNBOUNDED` where none is known.

    Args:
        counts: how often each mechanism was released; noise is over the sensitivity.
        delta: in (0, 1).
    """
    if not counts:
        return NOTHING_SPENT
    what = Composition.of(counts)
    if what is None:
        return UNBOUNDED
    if not what.sampled:
        return Bound(gaussian_epsilon(delta, math.sqrt(what.mu_squared)), NO_ORDER, ANALYTIC)
    if _single(what):
        mechanism = what.sampled[0][0]
        epsilon = sampled_epsilon(delta, mechanism.sampling_rate, 1 / mechanism.noise)
        return Bound(epsilon, NO_ORDER, ANALYTIC)
    if _total_variation(what) <= delta:
        return Bound(0.0, NO_ORDER, ANALYTIC)
    contour = min(_contour_epsilon(what, delta), _one_by_one(what, delta))
    patterns = participation_epsilon(what, delta)
    if math.isinf(min(contour, patterns)):
        return UNBOUNDED
    method = CONTOUR if contour <= patterns else PARTICIPATION
    return Bound(min(contour, patterns), NO_ORDER, method)


def tight_delta(counts: Mapping[PricedMechanism, int], epsilon: float) -> float:
    """The δ that goes with ``epsilon`` ≥ 0, rounded up; 1 where none is known."""
    if not counts or math.isinf(epsilon):
        return 0.0
    what = Composition.of(counts)
    if what is None:
        return 1.0
    if not what.sampled:
        return gaussian_delta(epsilon, math.sqrt(what.mu_squared))
    if _single(what):
        mechanism = what.sampled[0][0]
        return sampled_delta(epsilon, mechanism.sampling_rate, 1 / mechanism.noise)
    found = max(_contour_delta(what, direction, epsilon) for direction in DIRECTIONS)
    return min(found, participation_delta(what, epsilon), _total_variation(what))


def _total_variation(what: Composition) -> float:
    """A bound on δ(0), and so on every δ(ε): total variation distances at most add up."""
    plain = gaussian_delta(0.0, math.sqrt(what.mu_squared)) if what.mu_squared else 0.0
    return plain + math.fsum(
        count * sampled_delta(0.0, m.sampling_rate, 1 / m.noise) for m, count in what.sampled
    )


def _one_by_one(what: Composition, delta: float) -> float:
    """Releases of one sort, each at an equal share of δ: ε adds up. Good where few take part."""
    if what.mu_squared or len(what.sampled) > 1:
        return math.inf
    mechanism, count = what.sampled[0]
    each = sampled_epsilon(delta / count, mechanism.sampling_rate, 1 / mechanism.noise)
    return count * each


def _single(what: Composition) -> bool:
    return what.mu_squared == 0 and len(what.sampled) == 1 and what.sampled[0][1] == 1


def _contour_epsilon(what: Composition, delta: float) -> float:
    """Remove first: adding seldom costs more, and mostly a Chernoff bound shows that at once."""
    target, found = math.log(delta), 0.0
    for direction in DIRECTIONS:
        moments = lattice_moments(what, direction)
        if math.isfinite(found) and log_chernoff(moments, found).min() > target:
            found = max(found, _one_way(what, direction, moments, target))
    return found


def _one_way(what: Composition, direction: Direction, moments: Floats, target: float) -> float:
    """The least ε found on a few lines, all of them valid.

    The first line lies left of the saddle at the Chernoff bound, the truth being below that bound;
    the following ones are at the saddle of what was found.
    """
    bounds = epsilon_bounds(moments, target)
    found = float(bounds.min())
    if not math.isfinite(found) or found <= 0:
        return max(found, 0.0)
    at = kept = max(int(bounds.argmin()) - _LEFT, 0)
    for _ in range(_TRIES):
        before = found
        where = place(what, direction, moments, at, (found, target), QUICK)
        found = _root(line(what, direction, where), target, found)
        if found < before:
            kept = at
        best = saddle(moments, found)
        if best == at or (abs(best - at) <= _LEFT and found > before * (1 - _SETTLED) - _SETTLED):
            break
        at = best
    where = _smoothest(what, direction, moments, kept, (found, target))
    return _root(line(what, direction, where), target, found)


def _smoothest(
    what: Composition, direction: Direction, moments: Floats, at: int, target: tuple[float, float]
) -> ContourPlace:
    """The place near abscissa number ``at`` that needs the least extra release."""
    near = [i for i in (at, at + _LEFT, at - _LEFT) if 0 <= i < moments.size]
    finite = [i for i in near if math.isfinite(moments[i])]
    places = (place(what, direction, moments, i, target) for i in finite)
    return min(places, key=lambda where: where.extra)


def _root(on: ContourLine, target: float, high: float) -> float:
    """The least ε ≥ 0 on this line whose δ, rounded up, is at most the target."""
    if on.log_delta(high) > target:
        return high  # the bound that it came from holds by itself
    if on.log_delta(0.0) <= target:
        return 0.0
    root = falling_root(
        lambda epsilon: on.log_delta(epsilon) - target, 0.0, high, xtol=_PRECISION, rtol=1e-12
    )
    step = _PRECISION
    while root < high and on.log_delta(root) > target:
        root, step = root + step, step * 2
    return min(root, high)


def _contour_delta(what: Composition, direction: Direction, epsilon: float) -> float:
    moments = lattice_moments(what, direction)
    found = min(float(log_chernoff(moments, epsilon).min()), 0.0)
    at = saddle(moments, epsilon)
    if found < _NOTHING or not math.isfinite(moments[at]):
        return math.exp(max(found, _NOTHING))
    kept = at
    for nearer in range(at, -1, -_LEFT):
        before, where = found, place(what, direction, moments, nearer, (epsilon, found), QUICK)
        found = min(found, line(what, direction, where).log_delta(epsilon))
        kept = nearer if found < before else kept
        if nearer < at and found > before - _SETTLED:
            break
    where = _smoothest(what, direction, moments, kept, (epsilon, found))
    found = min(found, line(what, direction, where).log_delta(epsilon))
    return math.exp(max(found, _NOTHING))
