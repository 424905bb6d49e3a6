"""The mixture of Bertran et al. 2019 (section 7.2): points with utility and sensitive attribute.

P(u, s) = k/4 where u = s and (2 − k)/4 elsewhere: equation 20 with both marginals at ½, its fourth
row read as (u, s) = (0, 0). X given (u, s) is N((u, s), 0.05² I) (equation 21). At k = 1 use and
sensitive attribute are independent, at k = 0 and 2 one tells the other.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from fedlens.data.spec import DatasetSpec
from fedlens.privatizers.private_data import PrivateData, PrivateDataError, Split

SIGMA = 0.05
TRAIN, ATTACK, TEST = 20_000, 10_000, 10_000


def mixture_joint(k: float) -> torch.Tensor:
    """P(u, s), float64 [2, 2], use by row.

    Raises:
        PrivateDataError: k is outside [0, 2].
    """
    if not 0 <= k <= 2:
        raise PrivateDataError(f"mixture:{k:g}: k must lie in [0, 2]; 1 makes them independent")
    same, apart = k / 4, (2 - k) / 4
    return torch.tensor([[same, apart], [apart, same]], dtype=torch.float64)


def draw_mixture(
    k: float, records: int, generator: np.random.Generator, *, sigma: float = SIGMA
) -> PrivateData:
    """Points float32 [records, 2] with utility and sensitive attribute, each 0 or 1."""
    cells = generator.choice(4, size=records, p=mixture_joint(k).flatten().numpy())
    centres = np.stack([cells // 2, cells % 2], 1)
    points = centres + sigma * generator.standard_normal((records, 2))
    return PrivateData(
        name=f"mixture:{k:g}",
        records=torch.from_numpy(points.astype(np.float32)),
        utility=torch.from_numpy(cells // 2),
        sensitive=torch.from_numpy(cells % 2),
        side=None,
        owners=None,
        utility_classes=2,
        sensitive_classes=2,
        low=-1.0,
        high=2.0,
    )


def load_mixture(name: str, argument: str, data_dir: Path | None, seed: int) -> Split:
    """The source ``mixture:k``, drawn by ``seed``; no file is read.

    Raises:
        PrivateDataError: k is no number in [0, 2].
    """
    try:
        k = float(argument)
    except ValueError:
        raise PrivateDataError(f"{name}: give k as a number in [0, 2], say mixture:0.4") from None
    generator = np.random.default_rng(seed)
    parts = [draw_mixture(k, records, generator) for records in (TRAIN, ATTACK, TEST)]
    return Split(*parts)


MIXTURE = DatasetSpec("Mixture of points", private=load_mixture, formula="coordinate")
