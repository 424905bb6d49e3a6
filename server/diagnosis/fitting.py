"""From the linear model to shares: one fault at a time, and those found together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.stats import norm

from server.diagnosis.model import LinearModel, Square, Vector

FALSE_DISCOVERIES = 0.03
"""The largest q value of a finding. At most 5% of clean runs are to have one, and q values come out
a little too small: 14 of 200 clean draws of `fedlens study bugs` had one below .05."""
MOST = 5
"""Findings at most."""
DRAWS = 10_000
"""Of z scores of no fault, to learn how large the largest is by chance."""
LEAST_ABOVE = 20
"""Draws that must be as large for their share to be believed."""
_SEED = 15
POWER = 0.9
"""With which the smallest detectable share is found."""
DISTINCT = 0.05
"""Of a hypothesis's size, what those found before must leave of it for it to be told from them."""
WIDE = 1.96
"""Standard errors on either side of a share: 95%."""
UNMODELLED = 0.05
"""Relative error of a share that no noise explains: users and clips are not alike."""


@dataclass(frozen=True)
class Shares:
    """Shares of several faults at once."""

    values: Vector
    errors: Vector
    """Standard errors."""

    def interval(self, place: int) -> tuple[float, float]:
        """95% interval of one, within [0, 1]."""
        value = float(self.values[place])
        wide = WIDE * float(np.hypot(self.errors[place], UNMODELLED * value))
        return min(1.0, max(0.0, value - wide)), min(1.0, max(0.0, value + wide))


def joint_shares(model: LinearModel, chosen: Sequence[int]) -> Shares:
    """Shares of the chosen hypotheses, fitted together."""
    own = np.ix_(list(chosen), list(chosen))
    inverse = np.linalg.pinv(model.products[own])
    covariance = inverse @ model.spread[own] @ inverse.T
    return Shares(inverse @ model.found[list(chosen)], np.sqrt(np.diag(covariance)))


@dataclass(frozen=True)
class LeftOver:
    """What the hypotheses say once some of them are fitted."""

    z: Vector
    """Z scores; minus infinity where a hypothesis cannot be told from those fitted."""
    covariance: Square
    """Of what `z` divides by its square root."""
    values: Vector
    """Products of what is left with the hypotheses."""


def left_over(model: LinearModel, chosen: Sequence[int]) -> LeftOver:
    """What is left once the chosen hypotheses are fitted.

    A fitted share is a little wrong for what is not modelled, and the more so the larger it is: as
    much is added to the variance of every hypothesis that looks alike.
    """
    count, picked = len(model.found), list(chosen)
    weights, wrong = np.eye(count), np.zeros(count)
    if picked:
        inverse = np.linalg.pinv(model.products[np.ix_(picked, picked)])
        weights[:, picked] -= model.products[:, picked] @ inverse
        shares = inverse @ model.found[picked]
        wrong = np.square(UNMODELLED * model.products[:, picked] * shares).sum(1)
    size = np.diag(weights @ model.products @ weights.T)
    covariance = weights @ model.spread @ weights.T + np.diag(wrong)
    distinct = size > DISTINCT * np.diag(model.products)
    distinct &= (np.diag(model.products) > 0) & (np.diag(covariance) > 0)
    distinct[picked] = False
    values = weights @ model.found
    z = values / np.sqrt(np.maximum(np.diag(covariance), 1e-300))
    return LeftOver(np.where(distinct, z, -np.inf), covariance, values)


def largest_by_chance(covariance: Square) -> Vector:
    """The largest of z scores of such a covariance, in `DRAWS` draws, ascending."""
    return _largest(len(covariance), covariance.tobytes())


@lru_cache(maxsize=8)
def _largest(count: int, content: bytes) -> Vector:
    covariance = np.frombuffer(content).reshape(count, count)
    deviations = np.sqrt(np.maximum(np.diag(covariance), 1e-300))
    values, vectors = np.linalg.eigh(covariance / np.outer(deviations, deviations))
    roots = vectors * np.sqrt(np.maximum(values, 0))
    source = np.random.default_rng(_SEED)
    drawn = source.standard_normal((DRAWS, len(values))) @ roots.T
    found: Vector = np.sort(drawn.max(1))
    return found


def family_p_value(z: float, by_chance: Vector, count: int) -> float:
    """Probability that the largest of ``count`` z scores of no fault is as large as this.

    Westfall & Young (1993): by draws of all of them together, which knows how alike they are. Where
    hardly a draw is as large, the union bound, which is close there.
    """
    above = len(by_chance) - int(np.searchsorted(by_chance, z))
    bound = min(1.0, count * float(norm.sf(z)))
    drawn = (above + 1) / (len(by_chance) + 1)
    return min(bound, drawn) if above >= LEAST_ABOVE else bound


def strongest(
    model: LinearModel, groups: Sequence[str], chosen: Sequence[int], count: int
) -> tuple[int, float] | None:
    """The hypothesis that explains most of what is left, with its q value; None if by chance.

    Taken up one after another, the first error is made with a probability of at most
    `FALSE_DISCOVERIES`, which bounds the expected share of false findings too.

    Args:
        model: of all hypotheses.
        groups: each hypothesis's fault; of each fault one is taken at most.
        chosen: the hypotheses that were taken up before.
        count: how many there are to be taken: the first of the model.
    """
    left = left_over(model, chosen)
    used = {groups[place] for place in chosen}
    free = np.isfinite(left.z) & np.array([group not in used for group in groups])
    free[count:] = False
    if not free.any():
        return None
    candidates = np.flatnonzero(free)
    best = int(candidates[np.argmax(left.z[candidates])])
    by_chance = largest_by_chance(left.covariance[np.ix_(candidates, candidates)])
    q = family_p_value(float(left.z[best]), by_chance, len(candidates))
    return (best, q) if q <= FALSE_DISCOVERIES else None


def selected(model: LinearModel, groups: Sequence[str]) -> list[tuple[int, float]]:
    """The hypotheses that are needed as they are, surest first, each with its q value."""
    taken: list[tuple[int, float]] = []
    while len(taken) < MOST:
        found = strongest(model, groups, [place for place, _ in taken], len(groups))
        if found is None:
            break
        taken.append(found)
    return taken


def smallest_detectable(model: LinearModel) -> Vector:
    """Share of users that each hypothesis alone would be found at, with probability `POWER`."""
    sizes, spread = np.diag(model.products), np.maximum(np.diag(model.spread), 0)
    usable = (sizes > 0) & (spread > 0)
    if not usable.any():
        return np.full(len(sizes), np.inf)
    by_chance = largest_by_chance(model.spread[np.ix_(usable, usable)])
    needed = float(np.quantile(by_chance, 1 - FALSE_DISCOVERIES)) + float(norm.ppf(POWER))
    with np.errstate(divide="ignore", invalid="ignore"):
        share = needed * np.sqrt(spread) / sizes
    return np.where(usable & np.isfinite(share), share, np.inf)


@dataclass(frozen=True)
class Unexplained:
    """What no hypothesis that was taken up explains."""

    p_value: float
    """Of a chi-square test that nothing is left."""
    size: float
    """How large it is, relative to what a median fault in all users would change there."""


def unexplained(model: LinearModel, chosen: Sequence[int]) -> Unexplained:
    """Test what is left once the chosen hypotheses are fitted.

    Any hypothesis may show more, or less, than by chance: a fault that is in no library looks a
    little like some that are, or like the opposite of them.
    """
    rest = model.scores.copy()
    if chosen:
        rest -= model.leading[:, list(chosen)] @ joint_shares(model, chosen).values
    typical = float(np.median((model.leading**2).sum(0)))
    excess = max(0.0, float(np.sum(rest**2 - model.variances)))
    size = float(np.sqrt(excess / typical)) if typical > 0 else 0.0
    return Unexplained(_among_faults(model, chosen), size)


def _among_faults(model: LinearModel, chosen: Sequence[int]) -> float:
    """Probability that the largest z score of either sign is as large by chance."""
    left = left_over(model, chosen)
    told = np.isfinite(left.z)
    if not told.any():
        return 1.0
    own = left.covariance[np.ix_(told, told)]
    signs = np.kron(np.array([[1.0, -1.0], [-1.0, 1.0]]), own)
    largest = float(np.abs(left.z[told]).max())
    return family_p_value(largest, largest_by_chance(signs), 2 * len(own))
