"""The likelihood ratio: which known record's code, with noise of the known law, gave this code?

A code is z = c + n with n normal of a known covariance. Who has the filter computes the clean code
of every labelled record that is known, and weighs the records by how likely each would have given
z. With unit noise the posterior of a value of the attribute is

    P(s | z) ∝ Σ over known records i with s_i = s of exp(−|z − c_i|² / (2 (1/k + h²)))

for the mean z of k releases with noise of their own. With h = 0 it is exact for records drawn from
the known ones; a little more than the noise (h) makes up for those that are not among them. h is
the one of `WIDTHS` that does best on known records held back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedlens.privatizers.attacks.attackers.protocol import (
    EVERYTHING,
    AttackError,
    Knowledge,
    cautious,
    check_known,
)
from fedlens.privatizers.private_data import PrivateData

WIDTHS = (0.0, 0.05, 0.1, 0.2, 0.35, 0.5)
"""Standard deviations h, in those of the noise of one release."""
HELD_BACK, MOST_HELD = 0.1, 1500
LEAST_SPREAD = 0.05
"""Below this kernels are so narrow that the nearest known record decides alone."""
CHUNK = 64  # Codes at once: larger tables are fetched from the system anew each time
STILL = 1e-4
"""Directions with less of the noise than this share of the most are as good as free of it; they are
blown up to that and no further."""


@dataclass(frozen=True)
class LikelihoodFitted:
    """Clean codes of known records, whitened, with labels as one-hot rows."""

    codes: Tensor  # float32 [n, k], less their mean
    hot: Tensor  # float32 [n, classes]
    middle: Tensor  # float32 [k], their mean before they were whitened
    whiten: Tensor  # float32 [k, k]
    deviation: float  # of the kernel

    def log_probabilities(self, records: Tensor, side: Tensor | None = None) -> Tensor:
        """See `FittedAttacker.log_probabilities`; of codes [m, k]."""
        return self.of(records, self.hot)

    @torch.no_grad()
    def of(self, codes: Tensor, hot: Tensor) -> Tensor:
        """Log-probabilities [m, classes] of other labels [n, classes] of the same known records."""
        found = [
            _posterior(part, self.codes, hot, self.deviation)
            for part in torch.split((codes.flatten(1) - self.middle) @ self.whiten, CHUNK)
        ]
        return cautious(torch.cat(found))


@dataclass(frozen=True)
class LikelihoodAttacker:
    """Exact where the noise of a code is added to it and normal, whatever its covariance.

    Attributes:
        covariance: of the noise of one release, float [k, k]; None for the identity.
        releases: of each record with noise of their own, whose mean is read; infinity for codes
            without noise.
    """

    knows: Knowledge = EVERYTHING
    covariance: Tensor | None = None
    releases: float = 1.0

    def facing(self, covariance: Tensor, releases: float) -> LikelihoodAttacker:
        """The attacker of codes with this noise."""
        return replace(self, covariance=covariance, releases=releases)

    def fit(self, known: PrivateData, seed: int) -> LikelihoodFitted:
        """Take in the *clean* codes of known records; see `Attacker.fit`.

        Raises:
            AttackError: also for attributes of single steps, or too few records.
        """
        check_known(known)
        if known.sensitive.ndim != 1:
            raise AttackError("likelihood: answers once a record; give one attribute each")
        if len(known) < 20:
            raise AttackError(f"likelihood: {len(known)} records are too few; give at least 20")
        codes = known.records.flatten(1)
        whiten = torch.eye(codes.shape[1]) if self.covariance is None else _roots(self.covariance)
        middle = codes.mean(0)
        codes = (codes - middle) @ whiten
        hot = torch.nn.functional.one_hot(known.sensitive, known.sensitive_classes).float()
        return LikelihoodFitted(codes, hot, middle, whiten, self._deviation(codes, hot, seed))

    def _deviation(self, codes: Tensor, hot: Tensor, seed: int) -> float:
        """Of the kernel, by the loss on noisy codes of records held back."""
        source = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(codes), generator=source)
        held = order[: min(MOST_HELD, max(5, round(HELD_BACK * len(codes))))]
        kept = order[len(held) :]
        noise = torch.randn(len(held), codes.shape[1], generator=source)
        seen = codes[held] + noise / math.sqrt(self.releases)
        shares = hot.mean(0).clamp_min(1e-9)
        weights = (hot[held] / shares).sum(1)
        best, found = math.inf, 1.0
        for width in WIDTHS:
            deviation = math.hypot(1 / math.sqrt(self.releases), width)
            if deviation < LEAST_SPREAD:
                continue
            answers = torch.cat(
                [
                    _posterior(part, codes[kept], hot[kept] / shares, deviation)
                    for part in torch.split(seen, CHUNK)
                ]
            )
            losses = -(cautious(answers) * hot[held]).sum(1)
            loss = float((losses * weights).sum() / weights.sum())
            if loss < best:
                best, found = loss, deviation
        return found


def _posterior(seen: Tensor, codes: Tensor, hot: Tensor, deviation: float) -> Tensor:
    """Probabilities [m, classes] of codes [m, k] by kernels around [n, k]."""
    half = codes.square().sum(1) / 2
    near = torch.addmm(half, seen, codes.T, beta=-1) / deviation**2  # −|z − c|²/2σ² less z's own
    found = (near.softmax(1) @ hot).double()
    return found / found.sum(1, keepdim=True)


def _roots(covariance: Tensor) -> Tensor:
    """Σ^-½, float32; directions that have next to no noise are not blown up without end."""
    values, directions = torch.linalg.eigh(covariance.double())
    floor = max(float(values.max()) * STILL, 1e-12)
    found: Tensor = directions @ torch.diag(values.clamp_min(floor).rsqrt()) @ directions.T
    return found.float()
