"""How far a run's samples can be trusted, from its noised sums alone: no data and no cost.

Two things have to hold. What critics were told of a class is more than noise: its *signal*, known
because the noise's law is. And samples show their classes: an annotator that learned from other
releases, with noise of its own, recognises samples that it neither guided nor chose.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedlens.store import RECOGNISED

Shares = NDArray[np.float64]
UNTOLD = 0.1
"""Signal of an annotator at which what it recognises counts for half of the figure."""
UNKNOWN = 0.5
"""What is recognised, as far as an annotator can tell nothing."""


def fidelity_of(
    signal: Shares | None, own: Shares | None, labels: Tensor, found: Tensor | None
) -> dict[str, float]:
    """Signal by the class's number as a text, and what is recognised under `RECOGNISED`.

    Args:
        signal: of the critics, by class, float64 [classes] in [0, 1].
        own: of the annotator, likewise.
        labels: classes that samples were asked for, int64 [n], every class among them.
        found: class that the annotator finds likeliest, int64 [n]; None without one.

    Returns:
        Nothing where no critic knows its signal.
    """
    if signal is None:
        return {}
    shares = {str(label): float(share) for label, share in enumerate(signal)}
    if found is None or own is None:
        return shares
    return {**shares, RECOGNISED: _recognised(labels, found, len(signal), float(own.mean()))}


def _recognised(labels: Tensor, found: Tensor, classes: int, own: float) -> float:
    """How often samples are taken for their class, above chance, were the annotator free of noise.

    An annotator's noise hides what it would recognise, by about the root of its signal (Spearman's
    correction for attenuation). One with little signal can tell little: then the figure is drawn
    to `UNKNOWN`.
    """
    right = [float((found[labels == label] == label).double().mean()) for label in range(classes)]
    above = max(0.0, (float(np.mean(right)) - 1 / classes) / (1 - 1 / classes))
    corrected = min(1.0, above / math.sqrt(own)) if own else UNKNOWN
    return (own * corrected + UNTOLD * UNKNOWN) / (own + UNTOLD)
