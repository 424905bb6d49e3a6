"""Noise that near things share: one random field over a filter's codes, known to a device alone.

A burst of photographs, a picture saved again or moved by a pixel are records of one thing. With
noise that follows from a record's bytes each of them is a release with fresh noise, and they can be
averaged. So the noise of a code c is the value n(c) of a *field*: at each point standard normal, at
two points the more alike the nearer they lie. In k numbers

    n(c) = √(1 − η) F(c) + √η u,    E F(c)F(c')ᵀ ≈ exp(−|c − c'| / ℓ) I,

where u is the record's own (`fedlens.privatizers.record_noise`) and η = `OWN`. Both have variance
1, so a single release has the law N(c, I) that its certificate is of.

The exponential falls with a kink. A smooth field would not do: its *slope* could be read from a few
near releases, and the slope of the code with it; of this one a difference of two codes is the less
told the nearer they are. u keeps that true where codes are nearer than the field's features can
show. The length ℓ is the deviation of the noise in one direction, 1.

F is a sum of waves (random Fourier features, Rahimi & Recht 2007) whose frequencies are Cauchy
distributed, as this exponential asks, and whose heights are normal. *Given its frequencies* it is
exactly Gaussian with the correlation :meth:`NoiseField.correlations`, which is what is counted
with (:mod:`fedlens.privatizers.certificate`); the exponential is met up to 1/√`WAVES`, a few per
cent. All of it follows from the device's key for this filter.

**What it costs.** Who knows a clean code near another one's, and sees it released, knows noise of
the other. An app that has records of its own choice released with a person's key learns the field
where it asks. A device therefore counts what a key has released
(`fedlens.api.release_budget`), and records that others choose have a key of their own.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedlens.privatizers.record_noise import normals, records_noise

OWN = 1e-3
"""η, the share of the noise's variance that each record has for itself."""
LENGTH = 1.0
"""ℓ, in units of the noise: at that distance the field's correlation has fallen to 1/e."""
WAVES = 2048
_AT_ONCE = 256  # Codes whose waves are in memory together: 8 MB


class NoiseField:
    """A device's noise for one filter, as a function of a clean code.

    Args:
        key: the device's secret for this filter, 32 bytes or more (64 at most).
        size: k, numbers of a code.

    Raises:
        PrivatizerError: the key is shorter or longer.
    """

    def __init__(self, key: bytes, size: int) -> None:
        self.key, self.size = key, size
        drawn = normals(key, b"field", WAVES * (3 * size + 1)).reshape(WAVES, 3 * size + 1)
        # a normal vector over the length of another normal number is Cauchy distributed in R^k
        self._frequencies = drawn[:, :size] / np.abs(drawn[:, -1:]) / LENGTH
        heights = drawn[:, size : 3 * size].reshape(WAVES, 2, size)
        self._cosines, self._sines = heights[:, 0], heights[:, 1]

    def noise(self, codes: Tensor, records: Tensor) -> Tensor:
        """Noise float32 [n, k] of clean codes [n, k] and the records [n, ...] that they are of.

        Raises:
            PrivatizerError: a record is not finite float32.
        """
        own = records_noise(self.key, records, (self.size,)).double()
        shared = torch.from_numpy(self._shared(codes.detach().cpu().double().numpy()))
        return (math.sqrt(1 - OWN) * shared + math.sqrt(OWN) * own).float()

    def correlations(self, codes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Of the noises of distinct records with clean codes float64 [n, k], [n, n].

        Exact for the law of the noise given the field's frequencies.
        """
        phases = codes @ self._frequencies.T
        cosines, sines = (
            np.cos(phases),
            np.sin(phases),
        )  # of a difference: one product for all pairs
        found: NDArray[np.float64] = cosines @ cosines.T + sines @ sines.T
        found *= (1 - OWN) / WAVES
        np.fill_diagonal(found, 1.0)
        return found

    def correlations_with(
        self, code: NDArray[np.float64], others: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Of the noise at a code [k] with that of other records at codes [n, k], float64 [n]."""
        found = np.empty(len(others))
        for start in range(0, len(others), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            found[part] = np.cos((others[part] - code) @ self._frequencies.T).mean(1)
        return (1 - OWN) * found

    def _shared(self, codes: NDArray[np.float64]) -> NDArray[np.float64]:
        """F at codes [n, k], float64 [n, k]."""
        found = np.empty_like(codes)
        for start in range(0, len(codes), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            phases = codes[part] @ self._frequencies.T
            found[part] = np.cos(phases) @ self._cosines + np.sin(phases) @ self._sines
        return found / math.sqrt(WAVES)


def draw_near_noise(codes: Tensor, generator: torch.Generator) -> Tensor:
    """Noise float32 [n, m, k] of m records each of n devices, of their clean codes [n, m, k].

    For simulations: each device's field is drawn anew, with the exponential itself. Equal codes
    stand for records that differ.
    """
    near = torch.exp(-torch.cdist(codes.double(), codes.double()) / LENGTH)
    own = torch.eye(codes.shape[1], dtype=torch.float64)
    root = torch.linalg.cholesky((1 - OWN) * near + OWN * own)
    drawn = torch.randn(codes.shape, generator=generator, dtype=torch.float64)
    found: Tensor = root @ drawn
    return found.float()
