"""Mean and covariance of features for each pair of class and attribute, from two noised sums.

A user's contribution is a vector with a block for each pair p: for each of the user's records in
p, w₀ (it counts), w₁ f (its features) and w₂ f fᵀ (their products), added up. The vector is clipped
to length C as a whole, vectors of all users are added, and Gaussian noise of standard deviation
z · C is added once to the sum: the Gaussian mechanism at user level, one release. Everything after
that is post-processing: division, bringing covariances back to positive definite ones, and drawing
as many features as there is patience for, with both labels, to fit a filter and its adversaries on.

Where to centre and how to scale the features is asked for by a release before, of each user's mean
features and squares, which takes little: 2 · size numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from privatizers.protocol import PrivatizerError

WEIGHTS = (0.15, 0.6, 1.3)
"""w₀, w₁, w₂: products are most numerous and carry the covariance, so they get most of the clip."""
LEAST_COUNT = 50.0
"""Records that a pair is taken to have at least, whatever its noised count says."""
SHRINKAGE = 0.1
"""Share of the pooled covariance in a pair's: what is common is known with less noise."""
LEAST_VARIANCE = 2e-3
"""Least eigenvalue of a covariance of features whose squared length is 1 at most."""
ENLARGED = 0.7
"""Root mean squared length of centred features; the longest are cut."""


def looked_at(records: Tensor, clipping_norm: float) -> Tensor:
    """A user's mean frequencies and squares, clipped: [2 · size] of frequencies [n, size]."""
    vector = torch.cat([records.mean(0), records.square().mean(0)])
    return clipped(vector, clipping_norm)


def scaled_by(release: Tensor) -> tuple[Tensor, Tensor]:
    """Centre and scales, float32 [size] each, of the mean over users of :func:`looked_at`.

    Scales are the variances to the power -1/4, so that rare frequencies count more than they do and
    less than common ones.
    """
    centre, squares = release.chunk(2)
    variance = squares - centre.square()
    variance = variance.clamp_min(1e-4 * float(variance.max()))
    scale = variance**-0.25
    return centre, ENLARGED * scale / (variance * scale.square()).sum().sqrt()


def contribution(features: Tensor, pairs: Tensor, count: int, clipping_norm: float) -> Tensor:
    """A user's clipped vector, float32 [count, 1 + size + size²].

    Args:
        features: float32 [n, size], of length 1 at most.
        pairs: int64 [n], each in [0, count).
        count: pairs that there are.
        clipping_norm: C.
    """
    first, second, third = WEIGHTS
    ones = features.new_full((len(features), 1), first)
    products = third * (features[:, :, None] * features[:, None, :]).flatten(1)
    rows = torch.cat([ones, second * features, products], 1)
    sums = rows.new_zeros(count, rows.shape[1]).index_add_(0, pairs, rows)
    return clipped(sums, clipping_norm)


def clipped(vector: Tensor, norm: float) -> Tensor:
    """The vector, brought to this length if it is longer."""
    short: Tensor = vector * (norm / vector.norm().clamp_min(norm))
    return short


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
    def of(cls, release: Tensor) -> PairGaussians:
        """From a noised sum, float [count, 1 + size + size²].

        Raises:
            PrivatizerError: it is not finite.
        """
        if not bool(torch.isfinite(release).all()):
            raise PrivatizerError("release has entries that are no numbers; release it again")
        first, second, third = WEIGHTS
        size = int((release.shape[1] - 1) ** 0.5)
        plain = release.double()
        counts = (plain[:, 0] / first).clamp_min(LEAST_COUNT)
        means = plain[:, 1 : 1 + size] / (second * counts[:, None])
        products = plain[:, 1 + size :].view(-1, size, size) / (third * counts[:, None, None])
        # noise is not symmetric, and the average of both halves is the better estimate
        covariances = (products + products.mT) / 2 - means[:, :, None] * means[:, None, :]
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


def _definite(matrices: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(matrices)
    found: Tensor = (vectors * values.clamp_min(LEAST_VARIANCE)[..., None, :]) @ vectors.mT
    return found
