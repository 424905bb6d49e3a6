"""In which classes a fault shows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import chi2

from fedlens.diagnosis.fitting import joint_shares
from fedlens.diagnosis.hypotheses import Hypothesis
from fedlens.diagnosis.inquiry import Inquiry

UNEVEN = 1e-3
"""p value below which shares by class are taken to differ."""
SURE = 3.0
"""Standard errors above zero that a class's own share is, where the fault shows in it."""


@dataclass(frozen=True)
class Where:
    """The hypothesis that fits best, and the classes that it is about."""

    place: int
    classes: tuple[int, ...]


def classes_of(inquiry: Inquiry, place: int) -> Where:
    """The classes in which a fault shows; all, where the classes do not differ.

    Each class's own share is estimated. Where they differ by more than chance, the fault is taken
    to be in the classes whose share is well above zero, or may be as large as in those.
    """
    one, count = inquiry.hypotheses[place], inquiry.classes
    everywhere = Where(place, one.variant.chosen or tuple(range(count)))
    if one.fault.kind == "label" or one.fault.takes != "any":
        return everywhere
    first = len(inquiry.hypotheses)
    inquiry.add([one.of_class(number) for number in range(count)])
    model = inquiry.model()
    own = joint_shares(model, range(first, first + count))
    weights = 1 / own.errors**2
    mean = float((weights @ own.values) / weights.sum())
    uneven = float((weights * (own.values - mean) ** 2).sum())
    sure = own.values > SURE * own.errors
    level = float(weights[sure] @ own.values[sure] / weights[sure].sum()) if sure.any() else 0.0
    open_ = own.values + SURE * own.errors > level  # too uncertain to be told from the sure ones
    shown = tuple(int(c) for c in np.flatnonzero(sure | open_))
    if chi2.sf(uneven, count - 1) > UNEVEN or not sure.any() or len(shown) == count:
        return everywhere
    inquiry.add([Hypothesis(one.fault, replace(one.variant, chosen=shown))])
    return Where(len(inquiry.hypotheses) - 1, shown)
