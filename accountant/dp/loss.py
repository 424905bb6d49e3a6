"""The privacy loss of one Poisson-subsampled Gaussian release, through its characteristic function.

With ℓ(x) = log(1−q+q·exp((2x−1)/(2z²))) and x ~ N(0,z²), let M(w) = E exp(w·ℓ). The loss is ℓ under
the mixture where the unit is *removed* and −ℓ under N(0,z²) where it is *added*, so its moment
generating function E exp(ζ·L) is M(1+ζ) and M(−ζ). Here z is noise over sensitivity.

On a vertical line ζ = t + is it is exp(K(t)) times the characteristic function of the loss under a
*tilted* law. The trapezoid rule over x converges exponentially in its step, the integrand being
analytic for |Im x| < πz²: what it leaves out is below exp(−_NATS) of the tilted mass.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedlens.accountant.dp.binomial import Floats

Complexes = NDArray[np.complex128]
Direction = Literal["remove", "add"]

DIRECTIONS: tuple[Direction, ...] = ("remove", "add")
MOST_NODES = 400_000
_NATS = 42.0
_TAIL = math.sqrt(2 * 46.0)
_CHUNK = 2048
_LEAST = 1e-15
"""Moduli below this are rounding, and are counted as this much."""


@dataclass(frozen=True)
class Tilted:
    """The loss of one release under the law tilted by exp(t·L)."""

    log_moment: float
    """K(t) = log E exp(t·L)."""
    points: Floats
    """x, evenly spaced, float64 [nodes]."""
    loss: Floats
    """L at those points, float64 [nodes]."""
    weights: Floats
    """Their tilted probabilities, float64 [nodes], sum 1."""

    @property
    def mean_size(self) -> float:
        """E|L|."""
        return float(self.weights @ np.abs(self.loss))


def node_count(q: float, z: float, t: float, direction: Direction, top: float) -> float:
    """How many points the rule needs for |s| ≤ ``top``."""
    low, high = _range(q, z, t, direction)
    return (high - low) / _step(z, t, direction, top)


def _range(q: float, z: float, t: float, direction: Direction) -> tuple[float, float]:
    if direction == "remove":
        return -_TAIL * z - 1, 1 + t + _TAIL * z
    lifted = math.sqrt(2 * (46.0 + t * -math.log1p(-q))) * z
    return -min(lifted, t + _TAIL * z) - 1, _TAIL * z + 1


def _step(z: float, t: float, direction: Direction, top: float) -> float:
    """A step that is fine enough for |s| ≤ ``top``.

    On Im x = ±y the integrand grows by at most exp(y²/(2z²) + top·y/z²), and when adding also by
    cos(y/(2z²))^−t; the rule errs by exp(−2πy/step) of that.
    """
    y = min(math.sqrt(2 * _NATS) * z, (3.0 if direction == "remove" else 1.0) * z * z)
    lifted = _NATS if direction == "remove" else _NATS + 0.14 * t
    return 2 * math.pi / (lifted / y + y / (2 * z * z) + top / (z * z))


def tilted(q: float, z: float, t: float, direction: Direction, top: float) -> Tilted:
    """The tilted law of one release, fine enough for |s| ≤ ``top``.

    Args:
        q: sampling rate in (0, 1).
        z: noise over sensitivity, above 0.
        t: real part of the line, above 0.
        direction: whether the unit is removed or added.
        top: largest |s| that the characteristic function will be asked at.
    """
    low, high = _range(q, z, t, direction)
    x = np.linspace(low, high, math.ceil((high - low) / _step(z, t, direction, top)) + 1)
    log_p = -0.5 * (x / z) ** 2 + math.log((x[1] - x[0]) / (z * math.sqrt(2 * math.pi)))
    log_ratio = (2 * x - 1) / (2 * z * z)
    ell = np.where(
        log_ratio < 1,
        np.log1p(q * np.expm1(np.minimum(log_ratio, 1.0))),
        np.logaddexp(math.log(q) + log_ratio, math.log1p(-q)),
    )
    power = 1 + t if direction == "remove" else -t
    log_moment = _log_moment(log_p, ell, log_ratio, power, q)
    weights = np.exp(log_p + power * ell - log_moment)
    kept = weights > 1e-24
    total = weights[kept].sum()
    sign = 1.0 if direction == "remove" else -1.0
    return Tilted(log_moment, x[kept], sign * ell[kept], weights[kept] / total)


def _log_moment(log_p: Floats, ell: Floats, log_ratio: Floats, power: float, q: float) -> float:
    """Log of Σ p·exp(power·ℓ), through Σ p·(exp(power·ℓ) − 1 − power·(exp(ℓ) − 1)) ≥ 0."""
    grown = log_p + power * ell
    if grown.max() > 600:
        top = float(grown.max())
        return top + math.log(np.exp(grown - top).sum())
    p, small = np.exp(log_p), np.abs(power * ell) < 30
    excess = np.where(
        small, p * np.expm1(np.where(small, power * ell, 0.0)), np.exp(grown) - p
    ) - power * q * (np.exp(log_p + log_ratio) - p)
    return math.log1p(max(float(excess.sum()), 0.0))


def log_characteristic(law: Tilted, start: int, count: int, step: float) -> Complexes:
    """Log E exp(isL) under ``law`` at s = k·``step``, ``start`` ≤ k < ``start + count``.

    Every exp(isL) − 1 is made from two short tables, so nothing is lost where s·L is small:
    (1+g)(1+b) − 1 = g + b + g·b.
    """
    inner = 1 << max(0, math.isqrt(count).bit_length() - 1)
    outer = -(-count // inner)
    excess = np.zeros((outer, inner), dtype=np.complex128)
    starts = (start + inner * np.arange(outer)) * step
    fines = np.arange(inner) * step
    for at in range(0, law.loss.size, _CHUNK):
        loss, weights = law.loss[at : at + _CHUNK], law.weights[at : at + _CHUNK]
        giant = _turned(np.multiply.outer(starts, loss)) * weights
        baby = _turned(np.multiply.outer(fines, loss))
        excess += giant.sum(axis=1)[:, None] + (baby @ weights)[None, :] + giant @ baby.T
    return _log1p(excess.ravel()[:count])


def _turned(angle: Floats) -> Complexes:
    """Exp(i·angle) − 1."""
    half = np.sin(angle / 2)
    result: Complexes = -2 * half * half + 2j * half * np.cos(angle / 2)
    return result


def _log1p(excess: Complexes) -> Complexes:
    u, v = excess.real, excess.imag
    near = 0.5 * np.log1p(np.maximum(2 * u + u * u + v * v, -0.9))
    far = np.log(np.maximum(np.hypot(1 + u, v), _LEAST))
    size = np.where(u > -0.25, near, far)
    result: Complexes = size + 1j * np.arctan2(v, 1 + u)
    return result


@functools.lru_cache(maxsize=256)
def log_characteristic_grid(
    q: float, z: float, t: float, direction: Direction, step: float, start: int, stop: int
) -> tuple[float, float, Complexes]:
    """K(t), E|L|, and log E exp(isL) for s = k·step, start ≤ k < stop; read-only and cached."""
    law = tilted(q, z, t, direction, stop * step)
    grid = log_characteristic(law, start, stop - start, step)
    grid.flags.writeable = False
    return law.log_moment, law.mean_size, grid


@functools.lru_cache(maxsize=256)
def cumulant_generator(
    q: float, z: float, direction: Direction, lattice: tuple[float, ...]
) -> Floats:
    """K(t) for each t of ``lattice``, float64 [lattice]; ∞ where it would take too many points."""
    result = np.full(len(lattice), np.inf)
    for at, t in enumerate(lattice):
        if node_count(q, z, t, direction, 0.0) <= MOST_NODES / 4:
            result[at] = tilted(q, z, t, direction, 0.0).log_moment
    result.flags.writeable = False
    return result
