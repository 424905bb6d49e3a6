"""How far a run's samples can be trusted, from its noised sums alone: no data and no cost.

Two things have to hold of a class. What critics were told of it is more than noise: their *signal*,
known because the noise's law is. And samples of it show it: an annotator that learned from other
releases, with noise of its own, recognises them. The samples are those that it neither guided nor
chose. Fidelity is the product of both.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


def fidelity_by_class(
    signal: NDArray[np.float64] | None, labels: Tensor, found: Tensor | None
) -> dict[str, float]:
    """Fidelity by the class's number as a text, from 0 to 1.

    A class is recognised as far as its own samples are taken for it more often than others' are:
    an annotator that gives one answer to everything recognises nothing.

    Args:
        signal: share of what is known of each class that is no noise, float64 [classes].
        labels: classes that samples were asked for, int64 [n], every class among them.
        found: class that the annotator finds likeliest, int64 [n].

    Returns:
        Nothing where no critic knows its signal, or there is no annotator.
    """
    if signal is None or found is None:
        return {}
    return {
        str(label): float(signal[label]) * _recognition(labels == label, found == label)
        for label in range(len(signal))
    }


def _recognition(asked: Tensor, found: Tensor) -> float:
    """Share of a class's own samples that are taken for it, less that of the others'; from 0."""
    own, others = found[asked].double().mean(), found[~asked].double().mean()
    return max(0.0, float(own - others))
