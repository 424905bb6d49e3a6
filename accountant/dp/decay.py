"""How fast a characteristic function must fall: a bound that holds from a frequency on, for ever.

If a density lies above a stack of uniform densities of masses mᵢ and widths Wᵢ, the triangle
inequality gives |E exp(isL)| ≤ 1 − Σ mᵢ·(1 − |sin(sWᵢ/2)/(sWᵢ/2)|). Replacing the last factor by
its largest value from s on makes the bound fall monotonely, so its value at S serves all s ≥ S.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass

import numpy as np

from fedlens.accountant.dp.binomial import Floats
from fedlens.accountant.dp.loss import Direction, tilted

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
