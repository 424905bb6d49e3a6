"""How much of what a task was told of classes is signal: its noise is known, the rest is not.

Free of cost: it looks at noised releases and at the law of their noise.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def signal_between(
    means: NDArray[np.float64], noise: NDArray[np.float64]
) -> NDArray[np.float64] | None:
    """By class: what share of the squared distance from the mean of all classes is no noise.

    Args:
        means: noised means of classes, [classes, dim].
        noise: variance of the noise in each coordinate of a class's mean, [classes].

    Returns:
        Shares float64 [classes] in [0, 1], unbiased up to the cut at 0; None for a single class.
    """
    classes, dim = means.shape
    if classes < 2:
        return None
    energy = np.sum((means - means.mean(0)) ** 2, axis=1)
    others = (noise.sum() - noise) / classes**2
    expected = dim * ((1 - 1 / classes) ** 2 * noise + others)
    share: NDArray[np.float64] = (energy - expected) / np.maximum(energy, 1e-30)
    return share.clip(0, 1)
