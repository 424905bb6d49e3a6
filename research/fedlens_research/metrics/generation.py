"""Distances between real and synthetic images, on features of a fixed network."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

NEAREST = 5  # k of coverage and density; the authors' choice
CHUNK = 1000
ROUNDING = 1e-11
"""Of squared distances, over the largest square of a row: a thousand times what float64 loses."""


def frechet_distance(real: Tensor, synthetic: Tensor) -> float:
    """Squared Fréchet distance of Gaussians fitted to features [n, dim] and [m, dim].

    |μ_r - μ_s|² + tr(Σ_r + Σ_s - 2 (Σ_r Σ_s)^½): eq. (6) of Heusel et al. 2017
    (arXiv:1706.08500), there on Inception features and known as FID. On other features its figures
    compare with one another only.

    Raises:
        ValueError: fewer than two rows, or different dimensions.
    """
    first, second = _checked("real", real), _checked("synthetic", synthetic)
    if first.shape[1] != second.shape[1]:
        raise ValueError(
            f"real features have {first.shape[1]} dimensions, synthetic ones {second.shape[1]}"
        )
    gap = first.mean(0) - second.mean(0)
    spread, other = np.cov(first, rowvar=False), np.cov(second, rowvar=False)
    spread, other = np.atleast_2d(spread), np.atleast_2d(other)
    # tr (Σ_r Σ_s)^½ is that of the symmetric Σ_r^½ Σ_s Σ_r^½, whose eigenvalues are real
    half = _root(spread)
    shared = np.sqrt(np.clip(np.linalg.eigvalsh(half @ other @ half), 0, None)).sum()
    return float(max(0.0, gap @ gap + np.trace(spread) + np.trace(other) - 2 * shared))


def _checked(name: str, features: Tensor) -> NDArray[np.float64]:
    if features.ndim != 2 or len(features) < 2:
        raise ValueError(f"{name} features have shape {tuple(features.shape)}; give [n ≥ 2, dim]")
    found: NDArray[np.float64] = features.double().numpy()
    return found


def _root(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    values, vectors = np.linalg.eigh(matrix)
    root: NDArray[np.float64] = (vectors * np.sqrt(np.clip(values, 0, None))) @ vectors.T
    return root


class Cover(NamedTuple):
    """How synthetic images lie among real ones."""

    coverage: float  # Share of real images with a synthetic one in their neighbourhood, in [0, 1]
    density: float
    """How many real neighbourhoods a synthetic image lies in, over k; about 1 for real data."""


def coverage_and_density(real: Tensor, synthetic: Tensor, k: int = NEAREST) -> Cover:
    """Coverage and density as Naeem et al. 2020 (arXiv:2002.09797, section 3) define them.

    A real image's neighbourhood is the ball that reaches to its k-th nearest other real image.
    Features are [n, dim], n > k, and [m, dim].

    Raises:
        ValueError: too few images.
    """
    if len(real) <= k or not len(synthetic):
        raise ValueError(f"{len(real)} real and {len(synthetic)} synthetic images are too few")
    # around one middle: squares of what all have in common would drown the distances
    middle = real.double().mean(0)
    real, synthetic = real.double() - middle, synthetic.double() - middle
    inside, covered = torch.zeros(len(synthetic)), 0
    slack = _slack(real)
    for part in torch.split(real, CHUNK):
        # the nearest of all is the image itself
        nearest = _squared_distances(part, real).topk(k + 1, dim=1, largest=False).values
        reach = nearest[:, -1:] + slack
        within = _squared_distances(part, synthetic) <= reach
        inside += within.sum(0)
        covered += int(within.any(1).sum())
    return Cover(covered / len(real), float(inside.mean()) / k)


def _squared_distances(first: Tensor, second: Tensor) -> Tensor:
    """|a - b|² of rows float64, [n, m], by one matrix product."""
    squares = first.square().sum(1)[:, None] + second.square().sum(1)
    return torch.addmm(squares, first, second.T, alpha=-2)


def _slack(features: Tensor) -> float:
    """More than the product's rounding, so that an image at the edge of a ball is in it."""
    return ROUNDING * float(features.square().sum(1).max())
