"""Information of discrete variables and of Gaussian channels, in nats: differentiable closed forms.

Shannon's and Arimoto's quantities of a *known* joint table; they are exact, and take any float
type (use float64 for oracles). They say nothing about data of which only samples are known: for
those see the attackers, whose cross-entropy bounds a leak from below only.

Arimoto 1977, with p(s) and p(s, z):
    H_a(S)   = 1/(1-a) log Σ_s p(s)^a
    H_a(S|Z) = a/(1-a) log Σ_z (Σ_s p(s,z)^a)^(1/a)
    I_a(S;Z) = H_a(S) − H_a(S|Z)
with Shannon's as a → 1 and min-entropy as a → ∞. I_a is not monotone in a unless p(s) is uniform.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from foundation.errors import FedlensError

NEVER = -1e4
"""Stands for log 0: a finite number, so that gradients beside it stay finite."""


class InformationError(FedlensError, ValueError):
    """A table that is no distribution, or an order that has no meaning."""


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


def conditional_mutual_information(joint: Tensor) -> Tensor:
    """I(A;B|C), a scalar in nats, of a joint table [A, B, C].

    Raises:
        InformationError: the table is none, or its entries are negative or do not sum to 1.
    """
    _check_table("joint", joint, axes=3)
    pairs = _entropy(joint.sum(1)) + _entropy(joint.sum(0))
    return pairs - _entropy(joint.sum((0, 1))) - _entropy(joint)


def least_sum(joint: Tensor) -> Tensor:
    """K = I(U;S) − I(U;S|X), a scalar in nats, of a joint table [U, S, X].

    For every filter Q of X alone, I(U;X|Q) + I(S;Q) ≥ K (Bertran et al. 2019, Lemma 3.1, with
    equality where S and Q are independent given U, and U and X given Q and S). Hence also (1−α)A² +
    αB² ≥ α(1−α)K². The paper's Theorem 3.3 (A ≥ αK and B ≥ (1−α)K at the optimum) is false as
    stated and is not offered: its proof turns an inequality round.
    """
    return mutual_information(joint.sum(2)) - conditional_mutual_information(joint)


def arimoto_entropy(distribution: Tensor, order: float) -> Tensor:
    """H_a(S), Rényi's entropy, a scalar in nats, of probabilities [S].

    Args:
        distribution: float [S].
        order: a > 0; 1 is Shannon's entropy, infinity min-entropy.

    Raises:
        InformationError: the order is not positive, or the probabilities are none.
    """
    _check_table("distribution", distribution, axes=1)
    logs = _logs(distribution)
    if order == math.inf:
        return -logs.max()
    if _is_one(order, distribution):
        return _entropy(distribution)
    return torch.logsumexp(order * logs, 0) / (1 - order)


def arimoto_conditional_entropy(joint: Tensor, order: float) -> Tensor:
    """H_a(S|Z), a scalar in nats, of a joint table [S, Z].

    Raises:
        InformationError: the order is not positive, or the table is none.
    """
    _check_table("joint", joint, axes=2)
    logs = _logs(joint)
    if order == math.inf:
        return -torch.logsumexp(logs.max(0).values, 0)
    if _is_one(order, joint):
        return _entropy(joint) - _entropy(joint.sum(0))
    norms = torch.logsumexp(order * logs, 0) / order
    return order / (1 - order) * torch.logsumexp(norms, 0)


def arimoto_information(joint: Tensor, order: float) -> Tensor:
    """I_a(S;Z) = H_a(S) − H_a(S|Z), a scalar in nats, of a joint table [S, Z].

    At order infinity it is log(Σ_z max_s p(s,z) / max_s p(s)), the min-entropy leakage, which can
    be 0 where Shannon's information is not.

    Raises:
        InformationError: the order is not positive, or the table is none.
    """
    return arimoto_entropy(joint.sum(1), order) - arimoto_conditional_entropy(joint, order)


def arimoto_uncertainty(log_probabilities: Tensor, order: float) -> Tensor:
    """H_a(S|Z) as a batch of answers has it: a/(1−a) log mean_i (Σ_s p_i(s)^a)^(1/a), in nats.

    With an adversary's answers in the place of posteriors it is what the adversary believes of its
    own doubt (Jafarzadeh Asl et al. 2023, equations 9 and 11), not a bound on anything.

    Args:
        log_probabilities: float [n, classes], each row's exponentials summing to 1.
        order: a > 0; 1 is the mean Shannon entropy, infinity −log of the mean greatest probability.

    Raises:
        InformationError: the order is not positive.
    """
    if order == math.inf:
        return -_log_mean(log_probabilities.max(-1).values)
    if _is_one(order, log_probabilities):
        return -(log_probabilities.exp() * log_probabilities).sum(-1).mean()
    norms = torch.logsumexp(order * log_probabilities, -1) / order
    return order / (1 - order) * _log_mean(norms)


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


def check_order(order: float) -> float:
    """Return ``order``, or raise :class:`InformationError` unless it is above 0 (inf may be)."""
    if not order > 0:
        raise InformationError(f"order={order} must be above 0; 1 is Shannon's")
    return order


def _is_one(order: float, like: Tensor) -> bool:
    """Whether the order is so near 1 that its own formula would divide rounding errors by it."""
    check_order(order)
    near = 1e-7 if like.dtype == torch.float64 else 1e-4
    return abs(order - 1) < near


def _logs(probabilities: Tensor) -> Tensor:
    """Logarithms with ``NEVER`` for 0, and a gradient of 0 there instead of a missing one."""
    possible = probabilities > 0
    logs = torch.where(possible, probabilities, torch.ones_like(probabilities)).log()
    return torch.where(possible, logs, torch.full_like(logs, NEVER))


def _entropy(table: Tensor) -> Tensor:
    return -(table * _logs(table)).sum()


def _log_mean(logs: Tensor) -> Tensor:
    return torch.logsumexp(logs, -1) - math.log(logs.shape[-1])


def _check_table(name: str, table: Tensor, axes: int | None = None) -> None:
    if axes is not None and table.ndim != axes:
        raise InformationError(f"{name} has {table.ndim} axes; give {axes}")
    total = float(table.detach().sum())
    if not bool((table.detach() >= 0).all()) or not math.isclose(total, 1, abs_tol=1e-5):
        raise InformationError(
            f"{name} sums to {total:g} or has an entry below 0; give probabilities that sum to 1"
        )
