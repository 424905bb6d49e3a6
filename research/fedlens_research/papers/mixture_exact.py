"""What a filter of Bertran et al.'s mixture leaks and loses, by quadrature instead of by networks.

Released points are Gaussian with unit covariance around means that the filter computes, so given
(u, s) their density is a finite mixture (exactly for a linear filter; over nodes of the clusters
and of the filter's inner noise for another). On a plane grid such a density is one matrix product.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedlens.privatizers.networks.filters import LinearFilter, MlpFilter
from fedlens.privatizers.networks.information import entropy
from fedlens_research.loaders.mixture import SIGMA, mixture_joint

MARGIN, STEP, MOST = 7.0, 0.2, 1200
"""Grid: standard deviations beyond the outermost mean, spacing, most points a side. The trapezoid
rule on Gaussians of unit width is exact to many digits at this spacing."""
CENTRES = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
"""The four clusters (u, s), in the order of the flattened joint table."""


@dataclass(frozen=True)
class PlanePoint:
    """A filter in the plane of information, in nats."""

    lost: float  # A = I(U;X|Q), of the utility
    leaked: float  # B = I(S;Q), of the sensitive attribute

    def loss(self, alpha: float) -> float:
        """(1−α)A² + αB² (Bertran et al. 2019, equation 16)."""
        return (1 - alpha) * self.lost**2 + alpha * self.leaked**2


def bound(k: float, sigma: float = SIGMA) -> float:
    """K = I(U;S) − I(U;S|X): no filter of X has A + B below it (Bertran et al. 2019, Lemma 3.1)."""
    joint = mixture_joint(k)
    utility, sensitive = _informations(*_raw(sigma), joint)
    both = _joint_information(*_raw(sigma), joint)
    # I(U;S|X) = H(U|X) + H(S|X) − H(U,S|X), and each H(·|X) is H(·) less what X tells, so that
    # of K = I(U;S) − I(U;S|X) only what X tells remains.
    return float(utility + sensitive - both)


def evaluate(
    net: LinearFilter | MlpFilter, k: float, *, sigma: float = SIGMA, nodes: int = 5
) -> PlanePoint:
    """The filter's A and B, exact to about 1e-4; its inner noise has at most one dimension.

    A filter that is not linear takes ``nodes`` Gauss-Hermite nodes an axis of a cluster.
    """
    with torch.no_grad():
        if isinstance(net, LinearFilter):
            means, weights = linear_means(net.theta.double(), sigma)
        else:
            means, weights = mlp_means(net, sigma, nodes)
        lost, leaked = informations(means, weights, mixture_joint(k), sigma)
    return PlanePoint(float(lost), float(leaked))


def informations(
    means: Tensor, weights: Tensor, joint: Tensor, sigma: float = SIGMA
) -> tuple[Tensor, Tensor]:
    """A and B of released points with unit covariance; differentiable in the means.

    Means are float64 [4, c, 2], of each cell's components, whose weights [c] sum to 1; the joint
    table is P(u, s), [2, 2].
    """
    told, leaked = _informations(means, weights, joint)
    return _raw_utility(joint, sigma) - told, leaked


def linear_means(theta: Tensor, sigma: float = SIGMA) -> tuple[Tensor, Tensor]:
    """Means [4, 1, 2] and weights [1] of q = θx + z, brought to unit covariance.

    Given a cluster, q is N(θm, I + σ²θθᵀ); a one-to-one map of q changes no information.
    """
    spread = torch.eye(2, dtype=torch.float64) + sigma**2 * theta @ theta.T
    root = torch.linalg.cholesky(spread)
    means = torch.linalg.solve_triangular(root, (CENTRES @ theta.T).T, upper=False).T
    return means.unsqueeze(1), torch.ones(1, dtype=torch.float64)


def mlp_means(
    net: MlpFilter, sigma: float = SIGMA, nodes: int = 5, inner: int = 200
) -> tuple[Tensor, Tensor]:
    """Means [4, c, 2] and weights [c] of q = f(x, w) + z over nodes of x and of w.

    x's clusters take Gauss-Hermite nodes; w, along which f may jump, the midpoints of ``inner``
    intervals of equal probability.
    """
    places, shares = _hermite(nodes)
    offsets = sigma * torch.cartesian_prod(places, places)
    spread = torch.outer(shares, shares).flatten()
    levels = _quantiles(inner) if net.inner else torch.zeros(1, 0, dtype=torch.float64)
    points = (CENTRES[:, None] + offsets)[:, :, None].expand(-1, -1, len(levels), -1)
    noises = levels.expand(4, len(offsets), *levels.shape)
    flat = net.means(points.reshape(-1, 2).float(), noises.reshape(-1, net.inner).float())
    weights = (spread[:, None] / len(levels)).expand(-1, len(levels)).flatten()
    return flat.double().reshape(4, -1, 2), weights


def best_linear(
    k: float, alpha: float, *, sigma: float = SIGMA, starts: int = 6, seed: int = 0
) -> tuple[float, Tensor]:
    """The least loss that any linear filter was found to have, and its θ [2, 2].

    Quasi-Newton descent on the quadrature from random starts. At k = 1 the infimum is 0, reached
    only as θ grows without end; the figure given there is where the search stopped.
    """
    generator = torch.Generator().manual_seed(seed)
    found = []
    for start in range(starts):
        scale = 1.0 + 2.0 * (start % 3)
        theta = scale * torch.randn(2, 2, generator=generator, dtype=torch.float64)
        found.append(_descend(theta.requires_grad_(), k, alpha, sigma))
    return min(found, key=lambda pair: pair[0])


def _descend(theta: Tensor, k: float, alpha: float, sigma: float) -> tuple[float, Tensor]:
    joint = mixture_joint(k)
    search = torch.optim.LBFGS([theta], max_iter=60, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        search.zero_grad()
        lost, leaked = informations(*linear_means(theta, sigma), joint, sigma)
        value = (1 - alpha) * lost**2 + alpha * leaked**2
        value.backward()  # type: ignore[no-untyped-call]
        return value

    search.step(loss)  # type: ignore[no-untyped-call]
    return float(loss().detach()), theta.detach()


def _informations(means: Tensor, weights: Tensor, joint: Tensor) -> tuple[Tensor, Tensor]:
    """I(U;Q) and I(S;Q)."""
    cells, area = _cells(means, weights, joint)
    return _told(cells.sum(1), area), _told(cells.sum(0), area)


def _joint_information(means: Tensor, weights: Tensor, joint: Tensor) -> Tensor:
    """I(U,S;Q)."""
    cells, area = _cells(means, weights, joint)
    return _told(cells.flatten(0, 1), area)


def _told(parts: Tensor, area: float) -> Tensor:
    """I(V;Q) of p(v, q) on a grid [v, places] whose cells have this area."""
    total = parts.sum(0)
    shares = parts.sum(1, keepdim=True) * area
    ratio = parts.clamp_min(1e-300) / (shares * total).clamp_min(1e-300)
    return (parts * ratio.log()).sum() * area


def _cells(means: Tensor, weights: Tensor, joint: Tensor) -> tuple[Tensor, float]:
    """p(u, s, q) on a grid of q, float64 [2, 2, places], and the area of a grid cell."""
    axes, area = [], 1.0
    for axis in range(2):
        low, high = (float(edge) for edge in torch.aminmax(means[..., axis].detach()))
        count = min(MOST, int((high - low + 2 * MARGIN) / STEP) + 2)
        places = torch.linspace(low - MARGIN, high + MARGIN, count, dtype=torch.float64)
        area *= float(places[1] - places[0])
        gaps = means[..., axis, None] - places
        axes.append(torch.exp(-(gaps**2) / 2) / (2 * torch.pi) ** 0.5)
    densities = torch.einsum("kcx,kcy->kxy", axes[0] * weights[:, None], axes[1])
    return joint[:, :, None] * densities.reshape(2, 2, -1), area


def _raw(sigma: float) -> tuple[Tensor, Tensor]:
    """The raw points' own means [4, 1, 2] and weights, in units of sigma."""
    return CENTRES.unsqueeze(1) / sigma, torch.ones(1, dtype=torch.float64)


def _raw_utility(joint: Tensor, sigma: float) -> Tensor:
    """I(U;X); of clusters ten deviations apart it is H(U), to more digits than floats have."""
    if sigma <= 0.05:
        return entropy(joint.sum(1))
    return _informations(*_raw(sigma), joint)[0]


def _hermite(nodes: int) -> tuple[Tensor, Tensor]:
    """Places and weights that integrate against N(0, 1)."""
    places, weights = np.polynomial.hermite_e.hermegauss(nodes)
    return torch.from_numpy(places), torch.from_numpy(weights / weights.sum())


def _quantiles(count: int) -> Tensor:
    """Midpoints of intervals of equal probability of N(0, 1), float64 [count, 1]."""
    levels = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    places: Tensor = torch.special.ndtri(levels)
    return places.unsqueeze(1)
