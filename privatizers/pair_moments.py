"""Mean and covariance of features for each pair of class and attribute, from two noised sums.

Both sums are over users, each user's vector clipped as a whole to a length C, with Gaussian noise
of standard deviation z · C added once: the Gaussian mechanism at user level, one release each.

1. Where features lie: each user's mean frequencies and their squares (`looked_at`). From the
   release follow a centre and a scale of each frequency (`scaled_by`).
2. What they are like: a vector with a block for each pair p, which for the user's records in p adds
   up w₀ (it counts), w₁ f (its features) and w₂ f fᵀ (their products; the half above the diagonal
   times √2, so that lengths are those of the whole matrix) (`contribution`).

Everything after that is post-processing: division, bringing covariances back to positive definite
ones, and drawing as many features as there is patience for, with both labels, to fit a filter and
its adversaries on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fedlens.privatizers.protocol import PrivatizerError

SQUARES = 3.0
"""Weight of the mean squares beside the means: a frequency's square is the smaller number."""
LEAST_SHARE_OF_VARIANCE = 0.02
"""A frequency's variance is taken to be at least this share of the largest one."""
WEIGHTS = (0.15, 0.6, 1.3)
"""w₀, w₁, w₂: products are most numerous and carry the covariance, so they get most of the clip."""
SHRINKAGE = 0.1
"""Share of the pooled covariance in a pair's: what is common is known with less noise."""
LEAST_VARIANCE = 2e-3
"""Least eigenvalue of a covariance of features whose squared length is 1 at most."""
ENLARGED = 0.7
"""Root mean squared length of centred features; the longest are cut."""


def looked_at(frequencies: Tensor, shares: Tensor) -> Tensor:
    """A user's mean frequencies and weighted mean squares, [2 · size].

    Its norm is √10 at most, where each record's is 1 at most.

    Args:
        frequencies: [n, size], over the length that an image's can have.
        shares: [n], what each record weighs in the mean; 0 for one that is not there.
    """
    weighed = shares[:, None]
    squares = SQUARES * frequencies.square()
    return torch.cat([(frequencies * weighed).sum(0), (squares * weighed).sum(0)])


def scaled_by(release: Tensor, reach: float) -> tuple[Tensor, Tensor]:
    """Centre and scales, float32 [size] each, of the mean over users of :func:`looked_at`.

    Scales are the variances to the power -1/4, so that rare frequencies count more than they do and
    less than common ones.

    Args:
        release: float [2 · size].
        reach: length that an image's frequencies can have.
    """
    centre, squares = release.double().chunk(2)
    variance = squares / SQUARES - centre.square()
    variance = variance.clamp_min(max(LEAST_SHARE_OF_VARIANCE * float(variance.max()), 1e-8))
    scale = variance**-0.25
    scale = ENLARGED * scale / (variance * scale.square()).sum().sqrt()
    return (centre * reach).float(), (scale / reach).float()


def width_of(size: int) -> int:
    """Numbers of a pair's block: count, features and products of ``size`` features."""
    return 1 + size + size * (size + 1) // 2


def contribution(features: Tensor, pairs: Tensor, present: Tensor, count: int) -> Tensor:
    """A user's *unclipped* vector, float32 [count, 1 + size + size (size + 1) / 2].

    Args:
        features: float32 [n, size], of length 1 at most.
        pairs: int64 [n], each in [0, count).
        present: [n], 1 for a record and 0 where there is none.
        count: pairs that there are.
    """
    first, second, third = WEIGHTS
    size = features.shape[1]
    left, right = torch.triu_indices(size, size, device=features.device)
    products = _doubled(size).to(features) * features[:, left] * features[:, right]
    ones = features.new_full((len(features), 1), first)
    rows = torch.cat([ones, second * features, third * products], 1) * present[:, None]
    return rows.new_zeros(count, rows.shape[1]).index_add_(0, pairs, rows)


def _doubled(size: int) -> Tensor:
    """√2 for each product that stands for two entries of a symmetric matrix, 1 on its diagonal."""
    left, right = torch.triu_indices(size, size)
    return torch.where(left == right, 1.0, math.sqrt(2))


@dataclass(frozen=True, eq=False)
class PairGaussians:
    """Gaussian features for each pair, as a noised sum of contributions has them.

    Attributes:
        shares: of the pairs, float32 [count].
        means: float32 [count, size].
        roots: lower triangular, float32 [count, size, size]: of the covariances.
    """

    shares: Tensor
    means: Tensor
    roots: Tensor

    @classmethod
    def of(cls, total: Tensor, size: int, deviation: float) -> PairGaussians:
        """From a noised sum.

        Args:
            total: float [count, 1 + size + size (size + 1) / 2], of contributions.
            size: of the features.
            deviation: of the noise in each number. A pair is not divided by a count below twice
                that of its noise.

        Raises:
            PrivatizerError: the sum is not finite.
        """
        if not bool(torch.isfinite(total).all()):
            raise PrivatizerError("release has entries that are no numbers; release it again")
        first, second, third = WEIGHTS
        plain = total.double()
        counts = (plain[:, 0] / first).clamp_min(max(1.0, 2 * deviation / first))
        means = plain[:, 1 : 1 + size] / (second * counts[:, None])
        products = _matrices(plain[:, 1 + size :] / (third * counts[:, None]), size)
        covariances = products - means[:, :, None] * means[:, None, :]
        shares = counts / counts.sum()
        pooled = _definite((shares[:, None, None] * covariances).sum(0))
        mixed = (1 - SHRINKAGE) * covariances + SHRINKAGE * pooled
        roots = torch.linalg.cholesky(_definite(mixed))
        return cls(shares.float(), means.float(), roots.float())

    def draw(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Features float32 [n, size] and their pairs int64 [n], by the pairs' shares."""
        pairs = torch.multinomial(self.shares, count, replacement=True, generator=generator)
        normal = torch.randn(count, self.means.shape[1], 1, generator=generator)
        found = torch.empty(count, self.means.shape[1])
        for pair in range(len(self.shares)):
            rows = pairs == pair
            found[rows] = self.means[pair] + (self.roots[pair] @ normal[rows])[:, :, 0]
        return found, pairs


def _matrices(halves: Tensor, size: int) -> Tensor:
    """Symmetric matrices [n, size, size] of their upper halves [n, size (size + 1) / 2]."""
    left, right = torch.triu_indices(size, size)
    found = halves.new_zeros(len(halves), size, size)
    found[:, left, right] = found[:, right, left] = halves / _doubled(size)
    return found


def _definite(matrices: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(matrices)
    found: Tensor = (vectors * values.clamp_min(LEAST_VARIANCE)[..., None, :]) @ vectors.mT
    return found
