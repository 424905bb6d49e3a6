"""Records as masks might release them that are still to be trained.

What a provider answers to these is how a substitute learns to stand in for it *before* a filter is
trained on the substitute (`fedlens_research.filters.black_box`). Answers on raw records alone say
nothing of a record half of whose entries are a constant; answers on what the filter releases at
the moment say nothing of what it might release in its next steps, which is what its gradient is
about.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from fedlens.privatizers.protocol import PrivatizerError

FINENESS = (1 / 7, 1 / 4, 1 / 2, 1.0)
"""Cells a side of a random field, as a share of the image's side."""
LEAST_DEVIATION = 0.4
"""Of a field before it is scaled to 1: below what smoothing leaves of cells of deviation 1."""
GREATEST_RATIO = 0.95
"""Share of the entries that is suppressed at most."""
PREFERENCE = 3.0
"""Weight of an entry's spread, against a field of deviation 1, when it is chosen what is sent: up
to this much, so that some masks follow the spread and others nothing."""
CONSTANTS = 0.7
"""Deviation, at most, of the field that is added to the mean record in suppressed places: in units
of the greatest deviation of noise, which has the records' scale."""
SHIFTS = 0.2
"""The same where entries are sent."""


class Variations:
    """Draws a mask, noise and constants of its own for each record.

    Each record gets a suppression ratio, uniform up to :data:`GREATEST_RATIO`; a mask that keeps
    what a random field and the entries' spread put first; on what is kept noise whose deviation is
    a field in (0, ``most``); in the place of the rest the mean record and a field. How fine fields
    are, smooth or rough, is drawn at each call.

    Args:
        records: float32 [n, ...], at least two, finite: their mean and spread are kept.
        most: the greatest deviation of noise, in the records' units, above 0.

    Raises:
        PrivatizerError: on fewer records, or ones that are not finite; on a deviation that is not a
            finite number above 0.
    """

    def __init__(self, records: Tensor, most: float) -> None:
        if len(records) < 2 or not 0 < most < math.inf or not bool(records.isfinite().all()):
            raise PrivatizerError(
                f"{len(records)} records, most={most}: give at least two records, all finite, and "
                "noise that is a finite number above 0"
            )
        self._mean, spread = records.mean(0), records.std(0)
        self._spread = spread / spread.max().clamp_min(1e-12)
        self._most = float(most)

    @torch.no_grad()
    def __call__(self, records: Tensor, generator: torch.Generator) -> Tensor:
        """Float32 [n, ...]: ``records``, each behind a mask of its own.

        Raises:
            PrivatizerError: they have another shape than those whose mean is known.
        """
        if records.shape[1:] != self._mean.shape:
            raise PrivatizerError(
                f"records are {tuple(records.shape[1:])}; give such as were met: "
                f"{tuple(self._mean.shape)}"
            )
        sent = self._kept(records, generator)
        width = self._fields(records, generator) + 4 * _shares(records, generator) - 4
        noise = torch.randn(records.shape, generator=generator)
        noisy = torch.addcmul(records, self._most * torch.sigmoid(2 * width), noise)
        moved = self._most * SHIFTS * _shares(records, generator)
        noisy = noisy + moved * self._fields(records, generator)
        size = self._most * CONSTANTS * _shares(records, generator)
        return torch.where(sent, noisy, self._mean + size * self._fields(records, generator))

    def _kept(self, records: Tensor, generator: torch.Generator) -> Tensor:
        preferred = PREFERENCE * _shares(records, generator) * self._spread
        worth = (self._fields(records, generator) + preferred).flatten(1)
        ratio = GREATEST_RATIO * _shares(records, generator).flatten()
        least = (ratio * worth.shape[1]).long()[:, None]
        threshold = worth.sort(1).values.gather(1, least)
        return (worth >= threshold).reshape(records.shape)

    def _fields(self, records: Tensor, generator: torch.Generator) -> Tensor:
        """Normal fields [n, ...] of deviation 1; where no image is, entry by entry."""
        if records.ndim != 4:
            return torch.randn(records.shape, generator=generator)
        chosen = int(torch.randint(len(FINENESS), (1,), generator=generator))
        sides = [max(1, round(FINENESS[chosen] * side)) for side in records.shape[2:]]
        cells = torch.randn(*records.shape[:2], *sides, generator=generator)
        drawn = F.interpolate(cells, records.shape[2:], mode="bilinear", align_corners=False)
        # Of a few cells the deviation says nothing; of many it is what smoothing took away.
        return drawn / drawn.std(correction=0).clamp_min(LEAST_DEVIATION)


def _shares(records: Tensor, generator: torch.Generator) -> Tensor:
    """A number in [0, 1) for each record, to multiply it with."""
    return torch.rand(len(records), *([1] * (records.ndim - 1)), generator=generator)
