"""From the linear model to shares: one fault at a time, and those found together."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from fedlens.diagnosis.model import LinearModel, Square, Vector

FALSE_DISCOVERIES = 0.03
"""The largest q value of a finding. At most 5% of clean runs are to have one, and q values come out
a little too small: 14 of 200 clean draws of `fedlens study bugs` had one below .05."""
MOST = 5
"""Findings at most."""
DRAWS = 2500
"""Of z scores of no fault, to learn how large the largest is by chance."""
LEAST_ABOVE = 20
"""Draws that must be as large for their share to be believed."""
_SEED = 15
POWER = 0.9
"""With which the smallest detectable share is found."""
DISTINCT = 0.05
"""Of a hypothesis's size, what those found before must leave of it for it to be told from them."""
OTHERS = 0.18
"""Standard deviation of every other change's share, in that of the finding."""
LEAST_SHARE = 0.02
"""Smaller ones are taken for this one."""
EVEN = 1e-3
"""Variance that is added to z scores which nearly follow from each other."""
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
    products: Square
    """Of the hypotheses with each other, without what those fitted explain of them."""


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
    products = weights @ model.products @ weights.T
    size = np.diag(products)
    covariance = weights @ model.spread @ weights.T + np.diag(wrong)
    distinct = size > DISTINCT * np.diag(model.products)
    distinct &= (np.diag(model.products) > 0) & (np.diag(covariance) > 0)
    distinct[picked] = False
    values = weights @ model.found
    z = values / np.sqrt(np.maximum(np.diag(covariance), 1e-300))
    return LeftOver(np.where(distinct, z, -np.inf), covariance, values, products)


def other_changes(model: LinearModel, chosen: Sequence[int], others: Sequence[int]) -> float:
    """Test whether other changes of images would explain what was found better.

    A fault that is in no library looks like one that is, and a little like many others. So what is
    left once the chosen ones are fitted is looked at along the others, each weighed by how much it
    would show there if it was in a part of the surest one's share: the likelihood ratio of normal
    numbers whose covariance is larger by just that. The omnibus test, which knows no such weights,
    sees much less of it.

    Args:
        model: of all hypotheses.
        chosen: those that were taken up, surest first.
        others: changes of images, those of the library and others.

    Returns:
        The p value; 1 where nothing is chosen or there is nothing else.
    """
    left = left_over(model, chosen)
    told = np.array([place for place in others if np.isfinite(left.z[place])], dtype=np.int64)
    if not chosen or not len(told):
        return 1.0
    both = np.ix_(told, told)
    deviations = np.sqrt(np.diag(left.covariance)[told])
    share = max(LEAST_SHARE, abs(float(joint_shares(model, chosen).values[0])))
    shown = OTHERS * share * left.products[both] / deviations[:, None]
    covariance = left.covariance[both] / np.outer(deviations, deviations)
    return _ratio_test(left.values[told] / deviations, covariance, shown @ shown.T)


def _ratio_test(seen: Vector, covariance: Square, more: Square) -> float:
    """Probability that numbers of a covariance look as much as if they had more of it by chance."""
    root = np.linalg.cholesky(covariance + EVEN * np.eye(len(seen)))
    ratios, vectors = np.linalg.eigh(np.linalg.solve(root, np.linalg.solve(root, more).T))
    weights = np.maximum(ratios, 0) / (1 + np.maximum(ratios, 0))
    squares = np.square(vectors.T @ np.linalg.solve(root, seen))
    drawn = np.square(_normal(len(seen))) @ weights
    return (1 + int((drawn >= weights @ squares).sum())) / (DRAWS + 1)


def by_chance(covariance: Square) -> NDArray[np.float32]:
    """Z scores of such a covariance, in `DRAWS` draws, float32 [draws, scores]."""
    deviations = np.sqrt(np.maximum(np.diag(covariance), 1e-300))
    values, vectors = np.linalg.eigh(covariance / np.outer(deviations, deviations))
    roots = (vectors * np.sqrt(np.maximum(values, 0))).astype(np.float32)
    drawn: NDArray[np.float32] = _normal(len(values)) @ roots.T
    return drawn


@lru_cache(maxsize=4)
def _normal(count: int) -> NDArray[np.float32]:
    """Standard normal numbers [draws, count], the same each time."""
    return np.random.default_rng(_SEED).standard_normal((DRAWS, count), dtype=np.float32)


def largest_by_chance(covariance: Square) -> Vector:
    """The largest of z scores of such a covariance, in `DRAWS` draws, ascending."""
    return _largest(len(covariance), covariance.tobytes())


@lru_cache(maxsize=8)
def _largest(count: int, content: bytes) -> Vector:
    drawn = by_chance(np.frombuffer(content).reshape(count, count))
    found: Vector = np.sort(drawn.max(1)).astype(float)
    return found


def family_p_value(z: float, largest: Vector, count: int) -> float:
    """Probability that the largest of ``count`` z scores of no fault is as large as this.

    Westfall & Young (1993): by draws of all of them together, which knows how alike they are. Where
    hardly a draw is as large, the union bound, which is close there.
    """
    above = len(largest) - int(np.searchsorted(largest, z))
    bound = min(1.0, count * float(ndtr(-z)))
    drawn = (above + 1) / (len(largest) + 1)
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
    largest = largest_by_chance(left.covariance[np.ix_(candidates, candidates)])

    def q_value(place: int) -> float:
        return family_p_value(float(left.z[place]), largest, len(candidates))

    best = int(candidates[np.argmax(left.z[candidates])])
    likeliest = _likeliest(left.z, groups, candidates)
    if q_value(likeliest) <= FALSE_DISCOVERIES:
        best = likeliest
    return (best, q_value(best)) if q_value(best) <= FALSE_DISCOVERIES else None


def _likeliest(z: Vector, groups: Sequence[str], candidates: NDArray[np.int64]) -> int:
    """The one that explains most, all faults being as likely and all ways of one fault too.

    The largest of ten z scores is larger by chance than one alone: copies of one record would be
    taken for too many records of whichever class happens to be among them most.
    """
    counts = Counter(groups[place] for place in candidates)
    ways = np.array([counts[groups[place]] for place in candidates])
    likely = np.maximum(z[candidates], 0) ** 2 / 2 - np.log(ways)
    return int(candidates[np.argmax(likely)])


def selected(model: LinearModel, groups: Sequence[str], count: int) -> list[tuple[int, float]]:
    """The hypotheses that are needed as they are, surest first, each with its q value.

    The arguments are those of `strongest`.
    """
    taken: list[tuple[int, float]] = []
    while len(taken) < MOST:
        found = strongest(model, groups, [place for place, _ in taken], count)
        if found is None:
            break
        taken.append(found)
    return taken


def smallest_detectable(model: LinearModel, count: int) -> Vector:
    """Share of users that each of the first ``count`` hypotheses alone would be found at.

    With probability `POWER`.
    """
    whole = model.spread[:count, :count]
    sizes, spread = np.diag(model.products)[:count], np.maximum(np.diag(whole), 0)
    usable = (sizes > 0) & (spread > 0)
    if not usable.any():
        return np.full(len(sizes), np.inf)
    largest = largest_by_chance(whole[np.ix_(usable, usable)])
    needed = float(np.quantile(largest, 1 - FALSE_DISCOVERIES)) + float(ndtri(POWER))
    with np.errstate(divide="ignore", invalid="ignore"):
        share = needed * np.sqrt(spread) / sizes
    return np.where(usable & np.isfinite(share), share, np.inf)


def least_visible(size: float) -> float:
    """Share of users below which no reader of these sums could find a fault as often as `POWER`.

    By one test of one hypothesis at 5% false alarms, as if the users' data and the fault were known
    exactly and privacy noise alone were in the way (Neyman & Pearson 1933: no test does better).

    Args:
        size: squared change by the fault in all users, over the noise.
    """
    needed = float(ndtri(0.95) + ndtri(POWER))
    return needed / math.sqrt(size) if size > 0 else math.inf


@dataclass(frozen=True)
class Unexplained:
    """What no hypothesis that was taken up explains."""

    p_value: float
    """Of a chi-square test that nothing is left."""
    size: float
    """How large it is beyond chance, relative to what a median fault in all users would change."""


def unexplained(model: LinearModel, chosen: Sequence[int], count: int) -> Unexplained:
    """Test what is left once the chosen hypotheses are fitted.

    Any hypothesis may show more, or less, than by chance: a fault that is in no library looks a
    little like some that are, or like the opposite of them. What none of them shows may lie along
    changes that are in no library, a little along each.

    Args:
        model: of all hypotheses.
        chosen: those that were taken up.
        count: the first of the model are of the library.
    """
    rest = model.scores.copy()
    if chosen:
        rest -= model.leading[:, list(chosen)] @ joint_shares(model, chosen).values
    typical = float(np.median((model.leading[:, :count] ** 2).sum(0)))
    size = size_beyond_chance(rest, model.variances, typical)
    return Unexplained(_by_chance_left(left_over(model, chosen), count), size)


def size_beyond_chance(rest: Vector, variances: Vector, typical: float) -> float:
    """How large what is left is, relative to a median fault's squared size; at least 0.

    Its square is what the sum of squares exceeds its expectation by, less one standard deviation:
    where the noise is large that deviation alone would look like a reference of another kind.
    """
    excess = float(np.sum(rest**2 - variances) - np.sqrt(2 * np.sum(variances**2)))
    return float(np.sqrt(max(0.0, excess) / typical)) if typical > 0 else 0.0


def _by_chance_left(left: LeftOver, named: int = 0) -> float:
    """Probability that what is left is as far from nothing by chance.

    By the largest z score of either sign, which sees what one hypothesis shows; by the sum of all
    squares, which sees what many show a little of; and by that of the changes that are in no
    library, which a hundred hypotheses about labels would drown. The rarest of them, among draws of
    all.

    Args:
        left: what is left.
        named: so many of the hypotheses, the first ones, are of the library.
    """
    told = np.flatnonzero(np.isfinite(left.z))
    if not len(told):
        return 1.0
    squares = np.square(by_chance(left.covariance[np.ix_(told, told)]))
    seen = np.square(left.z[told])
    rarest = np.ones(len(squares))
    own = 1.0
    unnamed = told >= named
    for drawn, observed in (
        (squares.max(1), seen.max()),
        (squares.sum(1), seen.sum()),
        (squares[:, unnamed].sum(1), seen[unnamed].sum()),
    ):
        ordered = np.sort(drawn)
        rarest = np.minimum(rarest, 1 - (np.searchsorted(ordered, drawn) + 1) / (len(drawn) + 1))
        own = min(own, 1 - float(np.searchsorted(ordered, observed)) / (len(drawn) + 1))
    return (1 + int((rarest <= own).sum())) / (len(rarest) + 1)
