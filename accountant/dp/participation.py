"""An upper bound for tiny noise: as if it were known in which releases the unit took part.

The mixture over all patterns of participation is no easier to tell from N(0, z²) than its parts
are on average (hockey-stick divergences are jointly convex), and k parts in one mechanism are one
Gaussian release of (μ = √k/z). With Kᵢ ~ B(nᵢ, qᵢ) and M² = Σ Kᵢ/zᵢ² + μ² therefore

    δ(ε) ≤ E δ_M(ε) ≤ E Φ(M/2 − ε/M),

in both directions. What is given away by this is about log(1/q) for each participation, which is
little beside 1/(2z²) where z is tiny; there the transforms of `contour` cannot be computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import bdtr, bdtrc, ndtr

from fedlens.accountant.dp.binomial import Floats
from fedlens.accountant.dp.contour import Composition
from fedlens.accountant.dp.profiles import least_epsilon
from fedlens.accountant.events import PricedMechanism

LARGEST_NOISE = 0.2
"""With more noise the contour is better."""
_CELLS = 2048
_TAIL = 1e-4
"""Share of δ that participations beyond those looked at may have."""
_LEAST = 1e-30
"""That δ itself where it is asked for."""
_ROUNDING = 1e-9


def participation_epsilon(what: Composition, delta: float) -> float:
    """The ε ≥ 0 that goes with ``delta`` by this bound; ∞ where the noise is not tiny."""
    if not _is_tiny(what):
        return math.inf
    spread = _spread(what, _TAIL * delta)
    guess = float(spread[0].mean()) / 2
    return least_epsilon(lambda e: _passed(spread, e) + _TAIL * delta, delta, guess)


def participation_delta(what: Composition, epsilon: float) -> float:
    """The δ that goes with ``epsilon`` ≥ 0 by this bound; 1 where the noise is not tiny."""
    return min(1.0, _passed(_spread(what, _LEAST), epsilon) + _LEAST) if _is_tiny(what) else 1.0


def _is_tiny(what: Composition) -> bool:
    return min((m.noise for m, _ in what.sampled), default=math.inf) <= LARGEST_NOISE


def _passed(spread: tuple[Floats, Floats], epsilon: float) -> float:
    """E Φ(M/2 − ε/M), rounded up."""
    squares, masses = spread
    roots = np.sqrt(squares)
    tail: Floats = ndtr(roots / 2 - epsilon / roots)
    return (1 + _ROUNDING) * float(masses @ tail)


def _spread(what: Composition, left: float) -> tuple[Floats, Floats]:
    """Values of M², and their probabilities: both at least the true ones, but for ``left``."""
    parts = [_Part.of(m, n, left / len(what.sampled)) for m, n in what.sampled]
    cell = math.fsum((one.most - one.fewest) * one.square for one in parts) / _CELLS
    if len(parts) == 1:
        cell = max(cell, parts[0].square)
    masses, cell = np.ones(1), max(cell, 1e-300)
    for one in parts:
        masses = np.convolve(masses, one.cells(cell / one.square))
    squares = what.mu_squared + math.fsum(one.fewest * one.square for one in parts)
    values = squares + np.arange(masses.size) * cell * (1 + _ROUNDING)
    kept: Floats = np.maximum(values, 1e-300)
    return kept, masses


@dataclass(frozen=True)
class _Part:
    """How often the unit takes part in the releases of one mechanism, K ~ B(n, q)."""

    trials: int
    rate: float
    square: float
    """1/z²."""
    fewest: int
    """Fewer count as this many."""
    most: int
    """More are left out."""

    @classmethod
    def of(cls, mechanism: PricedMechanism, trials: int, left: float) -> _Part:
        """With the least ``most`` that is passed with probability ``left`` at most."""
        q = mechanism.sampling_rate
        fewest = _first(trials, lambda k: bdtr(k, trials, q) > _TAIL * left)
        most = _first(trials, lambda k: bdtrc(k, trials, q) <= left)
        return cls(trials, q, mechanism.noise**-2, min(fewest, most), most)

    def cells(self, width: float) -> Floats:
        """P(K in cell): each cell is ``width`` wide and K counts as the upper end of its own."""
        count = math.ceil((self.most - self.fewest) / width) + 1
        ends = self.fewest + np.floor(np.arange(count) * width * (1 + _ROUNDING / 2))
        below = bdtr(np.minimum(ends, self.most), self.trials, self.rate)
        above = bdtrc(np.minimum(ends, self.most), self.trials, self.rate)
        rising, falling = np.diff(below, prepend=0.0), -np.diff(above, prepend=1.0)
        result: Floats = np.where(below < 0.5, rising, falling)
        return result


def _first(most: int, holds: Callable[[int], bool]) -> int:
    """The first of 0, 1, …, ``most`` from which on a condition holds; it does at ``most``."""
    low, high = -1, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
