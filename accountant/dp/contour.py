"""Tight privacy profiles of composed subsampled Gaussians: a transform inverted on a line.

Let L be the privacy loss of a pair, under its first distribution, and K(ζ) = log E exp(ζ·L). From
δ(ε) = E[(1 − exp(ε − L))₊] the two-sided Laplace transform of δ is exp(K(ζ))/(ζ(ζ+1)), and so, for
every t > 0,

    δ(ε) = (1/2π) ∫ exp(K(t+is) − ε(t+is)) / ((t+is)(t+is+1)) ds.

Under composition K adds up. Both directions, the unit removed or added throughout, are inverted and
the larger δ counts. What is returned is an upper bound, by four observations:

* The trapezoid rule of step h gives Σₖ δ(ε+2πk/h)·exp(2πkt/h), whose terms are nowhere negative
  (Poisson summation): it errs upwards only, and h is taken so that it errs little.
* What is cut off above |s| = S is at most exp(K(t)−εt)·B/(πS), where B bounds the characteristic
  function of the tilted loss from S on (`fedlens.accountant.dp.contour`). It is added.
* Where the characteristic function falls too slowly (few participations), one more Gaussian
  release of variance v is accounted for than there was: K gains v·ζ(ζ+1)/2, which falls as
  exp(−vs²/2). Composition with anything can only raise δ; v is the least that the work limit
  allows.
* Rounding, that of thousands of rounds included, is bounded and added.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedlens.accountant.dp.binomial import Floats
from fedlens.accountant.dp.loss import (
    MOST_NODES,
    Complexes,
    Direction,
    cumulant_generator,
    log_characteristic_grid,
    node_count,
    tilted,
)
from fedlens.accountant.events import PricedMechanism

# How fast a characteristic function must fall: a bound that holds from a frequency on, for ever.
#
# If a density lies above a stack of uniform densities of masses mᵢ and widths Wᵢ, the triangle
# inequality gives |E exp(isL)| ≤ 1 − Σ mᵢ·(1 − |sin(sWᵢ/2)/(sWᵢ/2)|). Replacing the last factor
# by its largest value from s on makes the bound fall monotonely, so its value at S serves all s ≥
# S.

_LEVELS = 80
_DEEPEST = 1e-7
_SECOND_LOBE = 0.2173
"""Above the largest |sin(u)/u| beyond its first zero, 0.21723."""


@dataclass(frozen=True)
class Decay:
    """A stack of uniform densities below the density of a tilted loss."""

    masses: Floats
    half_widths: Floats

    def log_bound(self, s: float) -> float:
        """An upper bound on log |E exp(is'L)| for every s' ≥ ``s``."""
        gained = float(self.masses @ (1 - _largest_sinc(s * self.half_widths)))
        return math.log1p(-min(gained, 1 - 1e-16))


def _largest_sinc(u: Floats) -> Floats:
    safe = np.maximum(u, 1e-12)
    later = np.minimum(_SECOND_LOBE, 1 / safe)
    first = np.where(u < math.pi, np.sin(safe) / safe, 0.0)
    result: Floats = np.maximum(first, later) * (1 - 1e-15)
    return np.where(u < 1e-6, 1.0, result)


@functools.lru_cache(maxsize=256)
def decay(q: float, z: float, t: float, direction: Direction) -> Decay:
    """Of one release's loss under the law tilted by t; noise z is over sensitivity."""
    law = tilted(q, z, t, direction, 40.0 * z)
    cell = law.points[1] - law.points[0]
    with np.errstate(over="ignore"):
        odds = (1 - q) / q * np.exp(-(2 * law.points - 1) / (2 * z * z))
    density = law.weights / cell * (z * z) * (1 + odds)
    usable = np.isfinite(density)
    loss, density = np.sort(law.loss[usable]), density[usable]
    if direction == "add":
        density = density[::-1]
    pieces = [_stack(loss[a:b], density[a:b]) for a, b in _humps(density)]
    masses = np.concatenate([piece[0] for piece in pieces])
    return Decay(masses * (1 - 1e-9), np.concatenate([piece[1] for piece in pieces]))


def _humps(density: Floats) -> list[tuple[int, int]]:
    """Ranges between local minima."""
    inner = density[1:-1]
    valleys = np.flatnonzero((inner < density[:-2]) & (inner <= density[2:])) + 1
    ends = [0, *valleys.tolist(), density.size]
    return [(a, b) for a, b in itertools.pairwise(ends) if b - a >= 2]


def _stack(loss: Floats, density: Floats) -> tuple[Floats, Floats]:
    """Layers of one hump: masses and half widths, each the inner one between two levels."""
    levels = density.max() * np.geomspace(1.0, _DEEPEST, _LEVELS)[1:]
    peak = int(density.argmax())
    left = np.searchsorted(density[: peak + 1], levels, side="left")
    right = density.size - 1 - np.searchsorted(density[peak:][::-1], levels, side="left")
    widths = loss[right] - loss[np.minimum(left, peak)]
    thickness = levels - np.append(levels[1:], 0.0)
    return thickness * widths, widths / 2


LATTICE = tuple(2.0 ** (i / 4) for i in range(-48, 49))
"""Abscissas t: neighbouring queries share one, and so share all that was computed on its line."""

_ALIAS = 23.0
"""Periods and cuts change δ by less than exp(−_ALIAS) of its size."""
_FIRST = 64
_MOST_POINTS = 1 << 16
QUICK, THOROUGH = 1.5e7, 3e8
"""Limits of work: complex multiplications for one line."""
_UNIT = 2.3e-16


@dataclass(frozen=True)
class Composition:
    """What was released: subsampled releases with their counts, and Gaussian ones as a whole."""

    sampled: tuple[tuple[PricedMechanism, int], ...]
    """``poisson`` mechanisms, sorted, each once."""
    mu_squared: float
    """Σ count/z² over all ``gaussian`` mechanisms: they compose to one with noise 1/μ."""

    @classmethod
    def of(cls, counts: Mapping[PricedMechanism, int]) -> Composition | None:
        """None where something was booked that has no noise."""
        if any(m.noise == 0 for m in counts):
            return None
        plain = [(m, n) for m, n in counts.items() if m.sampling_rate == 1]
        sampled = sorted((m, n) for m, n in counts.items() if m.sampling_rate < 1)
        return cls(tuple(sampled), math.fsum(n / m.noise / m.noise for m, n in plain))


@dataclass(frozen=True)
class ContourPlace:
    """Where a transform is inverted."""

    at: int
    """Index of the abscissa in `LATTICE`."""
    step: float
    """h: distance of neighbouring points."""
    count: int
    """How many points there are from the real axis upwards."""
    extra: float
    """v: variance of the release that was never made, 0 where none is needed."""


class ContourLine:
    """One vertical line t + is: δ of a composition in one direction, as a function of ε."""

    def __init__(
        self, place: ContourPlace, log_moment: float, points: Complexes, loose: tuple[float, float]
    ) -> None:
        """Keep what does not depend on ε.

        Args:
            place: where the line is, and how it is sampled.
            log_moment: K(t).
            points: exp(K(t+is) − K(t))/(ζ(ζ+1)) at s = 0, h, 2h, …, complex128 [points].
            loose: what cut and rounding add to the integral, over exp(K(t) − εt).
        """
        self.place = place
        self._t, self._log_moment, self._loose = LATTICE[place.at], log_moment, sum(loose)
        self._points = points.copy()
        self._points[0] /= 2
        self._s = np.arange(points.size) * place.step

    def log_delta(self, epsilon: float) -> float:
        """Logarithm of an upper bound on δ(ε)."""
        angle = -epsilon * self._s
        total = self._points.real @ np.cos(angle) - self._points.imag @ np.sin(angle)
        value = max(float(total), 0.0) * self.place.step / math.pi + self._loose
        return float(self._log_moment - epsilon * self._t + math.log(max(value, 1e-300)))


def lattice_moments(what: Composition, direction: Direction) -> Floats:
    """K(t) of the composition at each abscissa of `LATTICE`, float64; ∞ where it costs too much."""
    t = np.array(LATTICE)
    total = t * (t + 1) / 2 * what.mu_squared
    for mechanism, count in what.sampled:
        q, z = mechanism.sampling_rate, mechanism.noise
        total = total + count * cumulant_generator(q, z, direction, LATTICE)
    result: Floats = total
    return result


def log_chernoff(moments: Floats, epsilon: float) -> Floats:
    """Log of the bound on δ(ε) at each abscissa: E exp(tL)·exp(−εt)·tᵗ/(t+1)^(t+1)."""
    t = np.array(LATTICE)
    result: Floats = moments - epsilon * t - _log_peak(t)
    return result


def epsilon_bounds(moments: Floats, log_delta: float) -> Floats:
    """The ε at which that bound equals δ, at each abscissa, float64."""
    t = np.array(LATTICE)
    result: Floats = (moments - log_delta - _log_peak(t)) / t
    return result


def _log_peak(t: Floats) -> Floats:
    """Log of (t+1)^(t+1)/t^t, the inverse of the largest (1 − exp(−y))₊·exp(−ty)."""
    result: Floats = (t + 1) * np.log(t + 1) - t * np.log(t)
    return result


def place(
    what: Composition,
    direction: Direction,
    moments: Floats,
    at: int,
    target: tuple[float, float],
    work: float = THOROUGH,
) -> ContourPlace:
    """How to sample the line at abscissa number ``at`` so that it serves near a target.

    Args:
        what: the releases.
        direction: whether the unit is removed or added.
        moments: `lattice_moments` of that direction, finite at ``at``.
        at: index in `LATTICE`.
        target: ε and log δ of the point of the profile that should be right to nine digits.
        work: how much of it is worth doing.
    """
    epsilon, log_delta = target
    step = _step(moments, at, epsilon, log_delta)
    needed = float(moments[at]) - epsilon * LATTICE[at] - log_delta + _ALIAS
    return ContourPlace(at, step, *_cut(what, direction, LATTICE[at], step, (needed, work)))


def saddle(moments: Floats, epsilon: float) -> int:
    """Index of the abscissa at which the integrand for ε is least, and so most peaked."""
    t = np.array(LATTICE)
    return int(np.argmin(moments - epsilon * t - np.log(t * (t + 1))))


def _step(moments: Floats, at: int, epsilon: float, log_delta: float) -> float:
    """The largest power of two whose period leaves nothing noticeable to its neighbours."""
    t = np.array(LATTICE)
    below = (_ALIAS - log_delta) / t[at]
    higher = slice(at + 1, None)
    with np.errstate(invalid="ignore"):
        room = log_chernoff(moments, epsilon)[higher] - log_delta + _ALIAS
        above = float(np.min(room / (t[higher] - t[at]), initial=math.inf))
    period = max(below, above if math.isfinite(above) else 4 * below)
    return float(2.0 ** math.floor(math.log2(2 * math.pi / period)))


def _cut(
    what: Composition, direction: Direction, t: float, step: float, limits: tuple[float, float]
) -> tuple[int, float]:
    """How many points to take, and the variance of the extra release that lets that many do."""
    count, (needed, work) = _FIRST, limits
    while True:
        top = count * step
        fallen = -_log_bound(what, direction, t, top) + math.log(math.pi * top)
        if fallen >= needed:
            return count, 0.0
        if 2 * count > _MOST_POINTS or _work(what, direction, t, step, 2 * count) > work:
            return count, 2 * (needed - fallen) / top**2
        count *= 2


def _work(what: Composition, direction: Direction, t: float, step: float, count: int) -> float:
    nodes = [
        node_count(m.sampling_rate, m.noise, t, direction, count * step) for m, _ in what.sampled
    ]
    return math.inf if max(nodes, default=0.0) > MOST_NODES else count * sum(nodes)


def _log_bound(what: Composition, direction: Direction, t: float, s: float) -> float:
    """Log of a bound on the tilted characteristic function at and beyond ``s``."""
    falls = [
        n * decay(m.sampling_rate, m.noise, t, direction).log_bound(s) for m, n in what.sampled
    ]
    return math.fsum(falls) - what.mu_squared * s * s / 2


def line(what: Composition, direction: Direction, where: ContourPlace) -> ContourLine:
    """The line of a composition in one direction at a place."""
    t, step, count = LATTICE[where.at], where.step, where.count
    s = np.arange(count) * step
    variance = what.mu_squared + where.extra
    zeta = t + 1j * s
    log_moment = variance * t * (t + 1) / 2
    exponent = variance * (1j * s * (2 * t + 1) - s * s) / 2
    unsure = np.full(count, 40 * _UNIT)
    for mechanism, times in what.sampled:
        moment, size, grid = _grid(mechanism, t, direction, step, count)
        log_moment += times * moment
        exponent = exponent + times * grid
        # Sums err by their terms' rounding, so logarithms by that over the modulus.
        unsure += 4 * _UNIT * times * np.minimum(2.0, s * size + 1.0) * np.exp(-grid.real)
        unsure += 1e-13 * times * (np.abs(grid) + abs(moment))
    points = np.exp(exponent) / (zeta * (zeta + 1))
    rounding = float(np.abs(points) @ unsure) * step / math.pi
    return ContourLine(where, log_moment, points, (_left_out(what, direction, where), rounding))


def _left_out(what: Composition, direction: Direction, where: ContourPlace) -> float:
    top = where.count * where.step
    bound = _log_bound(what, direction, LATTICE[where.at], top) - where.extra * top * top / 2
    return math.exp(bound) / (math.pi * (top - where.step))


def _grid(
    mechanism: PricedMechanism, t: float, direction: Direction, step: float, count: int
) -> tuple[float, float, Complexes]:
    """K(t), E|L| and the log characteristic function: in octaves, each as fine as it must be."""
    q, z = mechanism.sampling_rate, mechanism.noise
    start, stop, parts = 0, min(count, _FIRST), []
    while start < count:
        parts.append(log_characteristic_grid(q, z, t, direction, step, start, stop))
        start, stop = stop, min(count, 2 * stop)
    return parts[0][0], parts[0][1], np.concatenate([part[2] for part in parts])
