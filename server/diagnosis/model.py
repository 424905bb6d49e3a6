"""A release as a linear model of the faults' shares, with the covariance of all that disturbs it.

Everything is in units of the privacy noise, whose covariance is then the identity. On top of it
come the chance of which users there are, that of the reference, and what may differ between both:
how often each class is, and how much a user contributes. All of these are few directions, so only
inner products of few vectors are ever needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from server.diagnosis.expected import Matrix, Means

Vector = NDArray[np.float64]
Square = NDArray[np.float64]
CLASS_DRIFT = 0.05
"""Standard deviation of how much more often a class is among users than in the reference."""
SIZE_DRIFT = 0.05
"""The same of how much a user contributes, all classes alike."""
FAULT_DRIFT = 0.005
"""The same of every fault of the images: a reference differs from users' data as if so large a
share of the users had it."""
DIRECTIONS = 60
"""Leading directions in which users differ, where what is unexplained is looked for."""


@dataclass(frozen=True)
class Drift:
    """What may differ between users and the reference without being a fault."""

    rows: Matrix
    """[drifts, P]: a change of one standard deviation each."""


@dataclass(frozen=True)
class LinearModel:
    """Inner products that every question about the shares is answered from.

    Products are in the metric of the whole covariance. Means over one half of the reference meet
    those over the other alone, so that the reference's own errors do not look like faults.
    """

    products: Square
    """[h, h]: unbiased products of the hypotheses' directions."""
    spread: Square
    """[h, h]: covariance of ``found``."""
    found: Vector
    """[h]: products of the directions with what is observed less the sound mean."""
    scores: Vector
    """[directions]: what is observed less the sound mean, along the leading directions."""
    leading: NDArray[np.float64]
    """[directions, h]: the hypotheses along them."""
    variances: Vector
    """[directions]: variance of ``scores`` where no user has a fault."""


def linear_model(
    observed: Matrix,
    sound: Matrix,
    faulty: Sequence[Means],
    drift: Drift,
    spread: Matrix,
    users: float,
    *,
    difference: bool = False,
) -> LinearModel:
    """The model of an observation.

    Args:
        observed: the release over its noise, [P]; or, with ``difference``, how much more it is
            than an earlier one.
        sound: reference users' updates, [n, P].
        faulty: the means under each hypothesis.
        drift: what else may differ.
        spread: how far single users are from their mean, [m, P].
        users: how many users the release is a mean of, in expectation.
        difference: whether the sound mean is in ``observed`` no more.
    """
    base = Means(sound[::2].mean(0), sound[1::2].mean(0))
    directions = [mean.less(base) for mean in faulty]
    rest = Means(observed, observed) if difference else Means(observed, observed).less(base)
    chance = (0.0 if difference else 1 / len(sound)) + (2 if difference else 1) / users
    apart = spread * np.sqrt(chance / len(spread), dtype=np.float32)
    return _of_products(rest, directions, np.concatenate([apart, drift.rows]))


def _of_products(rest: Means, directions: Sequence[Means], disturbing: Matrix) -> LinearModel:
    count = len(directions)
    stacked = np.stack(
        [rest.one, rest.other, *(d.one for d in directions), *(d.other for d in directions)]
    )
    plain = stacked.astype(np.float64) @ stacked.T.astype(np.float64)
    crossed = (disturbing @ stacked.T).astype(np.float64)
    gram = (disturbing @ disturbing.T).astype(np.float64)
    whole = plain - crossed.T @ np.linalg.solve(np.eye(len(gram)) + gram, crossed)
    one, other = slice(2, 2 + count), slice(2 + count, None)
    # one half of the reference is taken from what is observed, the other gives the directions
    found = (whole[other, 0] + whole[one, 1]) / 2
    middle = (whole[one, one] + whole[other, other] + whole[one, other] + whole[other, one]) / 4
    products = (whole[one, other] + whole[other, one]) / 2
    values, vectors = np.linalg.eigh(gram)
    kept = values > 1e-9 * max(values[-1], 1e-300)
    kept[:-DIRECTIONS] = False
    along = (vectors[:, kept] / np.sqrt(values[kept])).T @ crossed
    return LinearModel(
        products=products,
        spread=middle,
        found=found,
        scores=(along[:, 0] + along[:, 1]) / 2,
        leading=(along[:, one] + along[:, other]) / 2,
        variances=1 + values[kept],
    )
