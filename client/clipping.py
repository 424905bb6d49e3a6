"""Clipping: the one place where sensitivity is bounded."""

from __future__ import annotations

import torch
from torch import Tensor


def clip_and_sum(updates: Tensor, clipping_norm: float) -> tuple[Tensor, Tensor]:
    """Clip each row to the L2 norm ``clipping_norm`` and add the rows up.

    Guarantees, whatever the input holds: each row's contribution to the sum has norm at most
    ``clipping_norm`` (up to float64 rounding), and a row with a NaN or an infinity contributes
    exactly nothing. The sum's L2 sensitivity to adding or removing one row is ``clipping_norm``.

    Args:
        updates: one user's (or record's) update a row, shape [n, P], any float dtype.
        clipping_norm: C > 0.

    Returns:
        The sum, float64 [P], and the clipped norms, float64 [n].
    """
    rows = updates.double()
    norms = rows.norm(dim=1)
    sound = torch.isfinite(norms)  # a row's norm is finite only if each of its values is
    scale = torch.where(sound, (clipping_norm / norms.clamp(min=1e-300)).clamp(max=1.0), 0.0)
    clipped = torch.where(sound, norms.clamp(max=clipping_norm), 0.0)
    finite = torch.where(sound[:, None], rows, 0.0)  # 0 x infinity would be NaN
    return scale @ finite, clipped


def histogram(norms: Tensor, clipping_norm: float, bins: int) -> Tensor:
    """Counts of ``norms`` in ``bins`` equal bins of (0, C]; norm 0 goes to the first bin.

    Args:
        norms: clipped norms, float64 [n], in [0, C].
        clipping_norm: C, the upper edge of the last bin.
        bins: number of bins.

    Returns:
        int64 [bins]; bin i counts norms in (iC/bins, (i+1)C/bins], so that reading each bin as
        its upper edge never understates a norm.
    """
    index = torch.ceil(norms * (bins / clipping_norm)).long().sub(1).clamp(0, bins - 1)
    return torch.bincount(index, minlength=bins)
