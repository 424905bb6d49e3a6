"""Leading principal directions of many feature rows, by subspace iteration.

Halko, Martinsson & Tropp, "Finding structure with randomness" (arXiv:0909.4061), algorithm 4.4:
orthogonal iteration on random vectors. For a few hundred directions out of thousands it takes a
small part of a full decomposition's time.
"""

from __future__ import annotations

import torch
from torch import Tensor

ITERATIONS = 4
SPARE = 16
"""Directions that are followed beside the wanted ones, which come out the better for it."""


def principal(rows: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The ``count`` leading directions of centred rows; the same for the same arguments.

    Args:
        rows: float32 [n, dim], of mean 0.
        count: number of directions, at most dim.

    Returns:
        Variances along the directions, descending, float32 [count], at least 0, and orthonormal
        directions float32 [dim, count].

    Raises:
        ValueError: ``count`` is below 1 or above dim.
    """
    dim = rows.shape[1]
    if not 1 <= count <= dim:
        raise ValueError(f"count={count} must lie between 1 and {dim}, the features")
    source = torch.Generator().manual_seed(0)
    start = torch.randn(dim, min(dim, count + SPARE), generator=source)
    basis = torch.linalg.qr(start.to(rows.device))[0]
    for _ in range(ITERATIONS):
        basis = torch.linalg.qr(rows.mT @ (rows @ basis))[0]
    inside = rows @ basis
    # small, so double precision costs nothing and equal values cannot keep it from converging
    values, turns = torch.linalg.eigh((inside.mT @ inside / len(rows)).double().cpu())
    variances = values.flip(0)[:count].clamp(min=0).float()
    return variances.to(rows), basis @ turns.flip(1)[:, :count].float().to(rows)
