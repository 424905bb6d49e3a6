"""Information of discrete variables and of Gaussian channels, in nats: differentiable closed forms.

Shannon's quantities of a *known* joint table; they are exact, and take any float type (use float64
for oracles). They say nothing about data of which only samples are known: for those see the
attackers, whose cross-entropy bounds a leak from below only.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedlens.foundation.errors import FedlensError

NEVER = -1e4
"""Stands for log 0: a finite number, so that gradients beside it stay finite."""


MOST_NATS = 8.0
"""Of a code, for each of its numbers: a signal some 3,000 times its noise."""


class InformationError(FedlensError, ValueError):
    """A table that is no distribution, or a channel whose bound is infinite."""


def entropy(distribution: Tensor) -> Tensor:
    """Shannon's H, a scalar in nats, of probabilities of any shape."""
    _check_table("distribution", distribution)
    return _entropy(distribution)


def mutual_information(joint: Tensor) -> Tensor:
    """I(S;Z), a scalar in nats, of a joint table [S, Z].

    Raises:
        InformationError: the table is none, or its entries are negative or do not sum to 1.
    """
    _check_table("joint", joint, axes=2)
    return _entropy(joint.sum(1)) + _entropy(joint.sum(0)) - _entropy(joint)


def gaussian_information_bound(covariance: Tensor, sigma: Tensor) -> Tensor:
    """The most that X + N(0, diag(σ²)) tells of X, float64 nats: ½ log det(I + Σ^-½ Cov Σ^-½).

    Holds for every X with this covariance (a Gaussian X attains it); for a covariance *estimated*
    from data it is an estimate of that bound. Equations 4 to 7 of Mireshghallah et al. 2021 print
    a constant of (2πe)^n too much and a product form that needs all σ equal; this is the correct
    form.

    Args:
        covariance: float [d, d], symmetric and positive semi-definite.
        sigma: float [d], standard deviations of the noise in the units of X, all positive.

    Raises:
        InformationError: a σ is not positive (the bound is infinite), or the shapes differ.
    """
    if covariance.shape != (len(sigma), len(sigma)):
        raise InformationError(
            f"covariance is {tuple(covariance.shape)} for {len(sigma)} noises; give [d, d] and [d]"
        )
    if not bool((sigma > 0).all()):
        raise InformationError(
            f"sigma's least entry is {float(sigma.min()):g}: without noise the bound is infinite; "
            "give the noise a floor above 0"
        )
    scale = sigma.double()
    whitened = covariance.double() / torch.outer(scale, scale)
    identity = torch.eye(len(sigma), dtype=torch.float64, device=sigma.device)
    bound: Tensor = torch.linalg.slogdet(identity + whitened).logabsdet / 2
    return bound


def gaussian_capacity(radius: float, size: int) -> float:
    """The most that c + N(0, I) tells of anything, nats, where |c| ≤ radius: (k/2) log(1 + r²/k).

    The capacity of k parallel Gaussian channels with power r² in all (Cover & Thomas 2006, section
    9.4); a limit on every |c| is stricter than one on the mean of |c|². It holds for any
    distribution of records and any attribute of them, by data processing, for *one* draw of noise.
    The theorem is of real numbers: what rounding to float32 may add is not in it.
    """
    return size / 2 * math.log1p(radius**2 / size)


def radius_of(capacity: float, size: int) -> float:
    """The radius at which :func:`gaussian_capacity` of ``size`` numbers is ``capacity`` nats.

    Raises:
        InformationError: the capacity is not above 0, or needs a radius that float32 cannot hold.
    """
    if not 0 < capacity < MOST_NATS * size:
        raise InformationError(
            f"capacity={capacity} nats must be above 0 and below {MOST_NATS * size} for {size} "
            "numbers; beyond it noise is lost in rounding"
        )
    return math.sqrt(size * math.expm1(2 * capacity / size))


def bounded(vectors: Tensor, radius: float) -> Tensor:
    """Vectors [n, k] drawn into the ball of this radius: r v / √(r² + |v|²), smooth and 1 to 1.

    What is not a number counts as 0, and what is too large to be squared comes to 0: either would
    pass as a sign that noise does not cover.
    """
    finite = vectors.nan_to_num()
    lengths = (radius**2 + finite.square().sum(1, keepdim=True)).sqrt()
    return finite * (radius / lengths)


def _logs(probabilities: Tensor) -> Tensor:
    """Logarithms with ``NEVER`` for 0, and a gradient of 0 there instead of a missing one."""
    possible = probabilities > 0
    logs = torch.where(possible, probabilities, torch.ones_like(probabilities)).log()
    return torch.where(possible, logs, torch.full_like(logs, NEVER))


def _entropy(table: Tensor) -> Tensor:
    return -(table * _logs(table)).sum()


def _check_table(name: str, table: Tensor, axes: int | None = None) -> None:
    if axes is not None and table.ndim != axes:
        raise InformationError(f"{name} has {table.ndim} axes; give {axes}")
    total = float(table.detach().sum())
    if not bool((table.detach() >= 0).all()) or not math.isclose(total, 1, abs_tol=1e-5):
        raise InformationError(
            f"{name} sums to {total:g} or has an entry below 0; give probabilities that sum to 1"
        )
