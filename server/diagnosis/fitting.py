"""From the linear model to shares: one fault at a time, and those found together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2, norm

from server.diagnosis.model import LinearModel, Vector

FALSE_DISCOVERIES = 0.05
"""Expected share of false ones among findings, at most."""
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
        return max(0.0, value - wide), min(1.0, max(0.0, value + wide))


def joint_shares(model: LinearModel, chosen: Sequence[int]) -> Shares:
    """Shares of the chosen hypotheses, fitted together."""
    own = np.ix_(list(chosen), list(chosen))
    inverse = np.linalg.pinv(model.products[own])
    covariance = inverse @ model.spread[own] @ inverse.T
    return Shares(inverse @ model.found[list(chosen)], np.sqrt(np.diag(covariance)))


def left_over(model: LinearModel, chosen: Sequence[int]) -> tuple[Vector, NDArray[np.bool_]]:
    """Z scores once the chosen hypotheses are fitted, and which others can be told from them."""
    count, picked = len(model.found), list(chosen)
    weights = np.eye(count)
    if picked:
        inverse = np.linalg.pinv(model.products[np.ix_(picked, picked)])
        weights[:, picked] -= model.products[:, picked] @ inverse
    size = np.diag(weights @ model.products @ weights.T)
    spread = np.diag(weights @ model.spread @ weights.T)
    distinct = size > DISTINCT * np.diag(model.products)
    distinct &= (np.diag(model.products) > 0) & (spread > 0)
    distinct[picked] = False
    z = np.where(distinct, (weights @ model.found) / np.sqrt(np.maximum(spread, 1e-300)), -np.inf)
    return z, distinct


def q_values(p_values: Vector) -> Vector:
    """Benjamini & Yekutieli (2001), theorem 1.3: false discovery rates under any dependence."""
    count = len(p_values)
    order = np.argsort(p_values)
    factor = count * np.sum(1 / np.arange(1, count + 1)) / np.arange(1, count + 1)
    rising = np.minimum.accumulate((p_values[order] * factor)[::-1])[::-1]
    found = np.empty(count)
    found[order] = np.minimum(rising, 1.0)
    return found


def selected(model: LinearModel, groups: Sequence[str], most: int = 5) -> list[tuple[int, float]]:
    """The hypotheses that are needed, surest first, each with its q value when it was taken up.

    At each step the hypothesis that explains most of what is left is taken up, if its false
    discovery rate among all that could have been is small enough. One of each group at most.

    Args:
        model: of all hypotheses.
        groups: each hypothesis's fault.
        most: how many to take up.
    """
    taken: list[tuple[int, float]] = []
    while len(taken) < most:
        chosen = [place for place, _ in taken]
        z, distinct = left_over(model, chosen)
        used = {groups[place] for place in chosen}
        free = distinct & np.array([group not in used for group in groups])
        if not free.any():
            break
        candidates = np.flatnonzero(free)
        q = q_values(norm.sf(z[candidates]))
        best = int(np.argmax(z[candidates]))
        if q[best] > FALSE_DISCOVERIES:
            break
        taken.append((int(candidates[best]), float(q[best])))
    return taken


def smallest_detectable(model: LinearModel) -> Vector:
    """Share of users that each hypothesis alone would be found at, with probability `POWER`."""
    count = len(model.found)
    level = FALSE_DISCOVERIES / (count * np.sum(1 / np.arange(1, count + 1)))
    needed = float(norm.isf(level) + norm.ppf(POWER))
    sizes = np.diag(model.products)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = needed * np.sqrt(np.maximum(np.diag(model.spread), 0)) / sizes
    return np.where((sizes > 0) & np.isfinite(share), share, np.inf)


@dataclass(frozen=True)
class Unexplained:
    """What no hypothesis that was taken up explains, along the directions in which users differ."""

    p_value: float
    """Of a chi-square test that nothing is left."""
    size: float
    """How large it is, relative to what a median fault in all users would change there."""


def unexplained(model: LinearModel, chosen: Sequence[int]) -> Unexplained:
    """Test what is left once the chosen hypotheses are fitted."""
    rest = model.scores.copy()
    if chosen:
        rest -= model.leading[:, list(chosen)] @ joint_shares(model, chosen).values
    squares = rest**2 / model.variances
    freedom = max(1, len(rest) - len(chosen))
    typical = float(np.median((model.leading**2).sum(0)))
    excess = max(0.0, float(np.sum(rest**2 - model.variances)))
    size = float(np.sqrt(excess / typical)) if typical > 0 else 0.0
    return Unexplained(float(chi2.sf(squares.sum(), freedom)), size)
