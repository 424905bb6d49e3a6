"""Whether a fault explains what was seen: do all parts of the sums tell the same share of it?

A fault that users really have shows in every class and in every task's sums by the share of users
that has it. One that merely resembles it shows too much in some and too little in others. So each
found fault's share is read off part by part, a class of a task each, and the parts are compared.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc

from fedlens.diagnosis.inquiry import Inquiry
from fedlens.diagnosis.model import Parts, Square, Vector
from fedlens.diagnosis.readers import parts_in

DIFFERENT = 0.1
"""Relative standard deviation of a part's share that no noise explains: users of one class differ
from the reference's, and clips cut classes differently."""
DEGENERATE = 1e-6
"""Eigenvalues below are of no direction."""


def agreement(inquiry: Inquiry, places: Sequence[int]) -> float:
    """P value of a test that parts tell the same shares of the faults that were found; 1 of none.

    Args:
        inquiry: with what was observed.
        places: of the hypotheses that were found.
    """
    if not places:
        return 1.0
    observed = inquiry.observed
    parts = inquiry.geometry.parts(
        list(places), observed.value, parts_of(inquiry), difference=observed.difference
    )
    return disagreement(parts, len(places))


def parts_of(inquiry: Inquiry) -> NDArray[np.int64]:
    """Where each part of each task begins in what is observed: its classes, or its statistics."""
    first, found = 0, []
    for one in inquiry.observed.evidence:
        width = len(one.value)
        found.append(first + parts_in(one.first, width))
        first += width
    return np.concatenate(found)


def disagreement(parts: Parts, faults: int) -> float:
    """The chi-square test's p value, with the shares fitted to all parts together."""
    found, products = parts.found, parts.products
    whole = np.kron(np.eye(faults), np.ones(len(found) // faults))
    inverse = np.linalg.pinv(whole @ products)
    shares = inverse @ whole @ found
    left = np.eye(len(found)) - products @ inverse @ whole
    more = np.square(DIFFERENT * products * shares).sum(1)
    return _chance(left @ found, left @ parts.covariance @ left.T + np.diag(more))


def _chance(rest: Vector, covariance: Square) -> float:
    """Probability that normal numbers of such a covariance are as far from 0."""
    deviations = np.sqrt(np.maximum(np.diag(covariance), 1e-300))
    values, vectors = np.linalg.eigh(covariance / np.outer(deviations, deviations))
    kept = values > DEGENERATE
    along = vectors[:, kept].T @ (rest / deviations)
    return float(chdtrc(max(1, int(kept.sum())), np.sum(along**2 / values[kept])))
