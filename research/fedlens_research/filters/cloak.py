"""Cloak: send a provider's network what it needs of a record, and noise on that.

Mireshghallah et al. 2021.

Three phases. First a noise map learns how much noise each entry bears (equation 8, with the
provider's network fixed):

    L = CE(f(x + σe + μ), u) − γ log mean σ²         privacy_term "log_mean_var", γ = 1/λ
    L = CE(f(x + σe + μ), u) + γ ½ log det(I + Σ^-½ Cov Σ^-½)        "gaussian_mi"

Then a threshold on σ makes a mask (`fedlens.privatizers.networks.masks`), and last the constants
that stand for what is suppressed learn by cross-entropy alone, σ frozen. The same class does both
trainings: what its filter is says which.

The paper derives −log mean σ² as a bound on the mutual information. It is none: the logarithm of
the mean is above the mean of the logarithms, so the term can fall while entries that are kept leak
ever more. The second form is the bound, corrected (the printed one has a factor of (2πe)^n too much
and holds for equal σ only). The first is kept because it finds masks well.

Only the trainer's guess of usefulness enters here: Cloak knows no sensitive attribute, and hides
what the provider does not need.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedlens.privatizers.classifiers import check_reads, frozen
from fedlens.privatizers.networks.masks import MaskFilter, NoiseMap
from fedlens.privatizers.protocol import (
    FILTER,
    Batch,
    Privatizer,
    PrivatizerError,
    Step,
    Weights,
    run,
)

PrivacyTerm = Literal["log_mean_var", "gaussian_mi"]


@dataclass(frozen=True)
class CloakObjective:
    """What a noise map minimises beside the provider's cross-entropy.

    Attributes:
        gamma: weight of the privacy term, above 0; the cross-entropy has weight 1. The paper weighs
            the cross-entropy with λ = 1 / gamma instead, which is the same to Adam.
        privacy_term: ``log_mean_var`` (the paper's) or ``gaussian_mi`` (nats; needs ``factor``).

    Raises:
        PrivatizerError: on a value outside its range.
    """

    gamma: float = 0.05
    privacy_term: PrivacyTerm = "log_mean_var"

    def __post_init__(self) -> None:
        if not (self.gamma > 0 and math.isfinite(self.gamma)):
            raise PrivatizerError(f"gamma={self.gamma} must be a finite number above 0")
        if self.privacy_term not in ("log_mean_var", "gaussian_mi"):
            raise PrivatizerError(
                f"privacy_term={self.privacy_term!r} is unknown: choose log_mean_var or gaussian_mi"
            )


class CloakPrivatizer(Privatizer):
    """Noise on each entry as a provider's fixed network bears it; then constants for the rest.

    With a `NoiseMap` it trains the map (phase 1), with a `MaskFilter` whose fill is trained the
    constants (phase 3). There is no adversary: ``filter`` is the only network.

    Args:
        filter: the noise map, or the mask.
        provider: records to logits of the utility; it is frozen in place and never changes. In the
            black box it is the substitute.
        objective: of phase 1.
        factor: float32 [d, r] with Cov of the flattened records = factor factorᵀ, for
            ``gaussian_mi``; see :func:`covariance_factor`.

    Raises:
        PrivatizerError: the provider does not take such records, ``factor`` is missing or does not
            fit.
    """

    def __init__(
        self,
        filter: NoiseMap | MaskFilter,  # noqa: A002 - the network's name
        provider: nn.Module,
        objective: CloakObjective | None = None,
        *,
        factor: Tensor | None = None,
    ) -> None:
        self.objective = objective if objective is not None else CloakObjective()
        self.noise_shape = filter.noise_shape
        self.networks: Mapping[str, nn.Module] = {FILTER: filter}
        self.provider = frozen(provider)
        self._map = filter if isinstance(filter, NoiseMap) else None
        self._factor = _check_factor(factor, self.objective, self._map)
        example = torch.zeros(1, *self.noise_shape)
        check_reads(self.provider, example, None, "the provider's network")

    def local_step(
        self,
        weights: Mapping[str, Weights],
        batch: Batch,
        noise: Tensor,
        shared: Tensor | None = None,
        *,
        filtering: bool = True,
    ) -> Step:
        """The filter's loss; ``scalars`` is [0], since nothing is squared.

        Raises:
            PrivatizerError: the filter has nothing that learns (its fill is not ``trained``).
        """
        own = weights[FILTER]
        if not own:
            raise PrivatizerError("this mask's fill does not learn; only fill='trained' does")
        released = run(self.networks[FILTER], own, batch.records, noise, batch.choice)
        loss = F.cross_entropy(self.provider(released), batch.utility)
        if self._map is not None:
            loss = loss + self.objective.gamma * self._privacy(self._map, own["rho"])
        return Step({FILTER: loss}, loss.new_zeros(0))

    @torch.no_grad()
    def report(self, batch: Batch, noise: Tensor) -> dict[str, float]:
        """The provider's accuracy and cross-entropy on a released batch, and the noise's size."""
        logits = self.provider(self.filter(batch.records, noise, batch.choice))
        filter_ = self.networks[FILTER]
        sigma = filter_.sigma() if isinstance(filter_, NoiseMap) else filter_.sigma
        ratio = filter_.ratio if isinstance(filter_, MaskFilter) else 0.0
        return {
            "utility_accuracy": float((logits.argmax(1) == batch.utility).double().mean()),
            "utility_cross_entropy": float(F.cross_entropy(logits, batch.utility)),
            "mean_sigma": float(torch.as_tensor(sigma).double().mean()),
            "suppression_ratio": float(ratio),
        }

    def _privacy(self, noise: NoiseMap, rho: Tensor) -> Tensor:
        """The privacy term, over the entries that the map still sends."""
        sigma, sent = noise.deviation(rho), noise.keep.to(rho.dtype)
        if self._factor is not None:
            return information_bound(self._factor * sent.reshape(-1, 1), sigma)
        term: Tensor = -((sigma.square() * sent).sum() / sent.sum()).log()
        return term


def information_bound(factor: Tensor, sigma: Tensor) -> Tensor:
    """½ log det(I + Σ^-½ factor factorᵀ Σ^-½) in nats, differentiable in σ > 0.

    By Sylvester's identity the determinant is that of an [r, r] matrix. The figure that is reported
    comes from `gaussian_information_bound` on the whole covariance, in float64;
    this one is for training.

    Args:
        factor: float [d, r].
        sigma: float, d entries of any shape.
    """
    scaled = factor / sigma.reshape(-1, 1)
    inner = scaled.T @ scaled
    identity = torch.eye(inner.shape[-1], dtype=inner.dtype, device=inner.device)
    determinant: Tensor = torch.linalg.slogdet(identity + inner).logabsdet
    return 0.5 * determinant


def covariance_factor(records: Tensor, rank: int) -> Tensor:
    """The ``rank`` strongest directions of the records' covariance, float32 [d, rank].

    Args:
        records: float32 [n, ...], at least two.
        rank: at most the number of entries and of records.

    Raises:
        PrivatizerError: on fewer records, or a rank out of range.
    """
    rows = records.flatten(1).double()
    if len(rows) < 2 or not 1 <= rank <= min(rows.shape):
        raise PrivatizerError(
            f"rank={rank} of {len(rows)} records with {rows.shape[1]} entries: give at least two "
            "records and a rank from 1 to the smaller of both numbers"
        )
    rows = rows - rows.mean(0)
    values, vectors = torch.linalg.eigh(rows.T @ rows / (len(rows) - 1))
    strongest: Tensor = vectors[:, -rank:] * values[-rank:].clamp_min(0).sqrt()
    return strongest.float()


def _check_factor(
    factor: Tensor | None, objective: CloakObjective, noise: NoiseMap | None
) -> Tensor | None:
    if noise is None or objective.privacy_term == "log_mean_var":
        return None
    entries = math.prod(noise.noise_shape)
    if factor is None or factor.ndim != 2 or len(factor) != entries:
        given = "none" if factor is None else str(tuple(factor.shape))
        raise PrivatizerError(
            f"privacy_term='gaussian_mi' needs factor, float32 [{entries}, r]; given: {given}. "
            "covariance_factor makes one of training records"
        )
    if noise.least <= 0:
        raise PrivatizerError(
            "privacy_term='gaussian_mi' is infinite without noise; build the NoiseMap with least "
            "above 0"
        )
    return factor.detach()
