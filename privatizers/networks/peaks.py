"""A releaser of series without training: high steps of days that are worth it, a level elsewhere.

What a household's load tells of presence it tells hour by hour, and what its squared error is made
of are few high peaks. A released peak costs its own hour and its neighbours', whose presence
follows. So peaks of the days go out in which an hour that is in use carries most: error saved
against hours given away. Everything else of a series is one of two constants, and nothing of it can
be written small: the release is a function of the peaks that are seen in it.

The rule is everybody's knowledge and has no noise: releasing a series again tells nothing more.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from fedlens.models.shapes import ShapeError
from fedlens.privatizers.protocol import PrivatizerError

HALVINGS = 50


class PeakReleaser(nn.Module):
    """Steps above ``least`` of series worth more than ``worth``; a level for every other step.

    A series is worth the sum of its squares over the number of its steps above ``counted`` (1 at
    least). It has to be complete before any of it goes out.

    Args:
        least: a step at or below it never goes out as it is; in units of the series, as all below.
        counted: a step above it counts as one in use.
        worth: squared units; infinity lets nothing out.
        quiet: what is released of a series of which nothing goes out as it is.
        busy: what stands for the other steps of one of which something does.

    Raises:
        ShapeError: a number is negative or none.
    """

    noise_shape = ()
    worth: Tensor
    quiet: Tensor
    busy: Tensor

    def __init__(
        self, *, least: float, counted: float, worth: float, quiet: float = 0.0, busy: float = 0.0
    ) -> None:
        super().__init__()
        for name, value in (("least", least), ("counted", counted), ("worth", worth)):
            if not value >= 0:
                raise ShapeError(f"{name}={value} must be at least 0")
        self.least, self.counted = least, counted
        self.register_buffer("worth", torch.tensor(float(worth)))
        self.register_buffer("quiet", torch.tensor(float(quiet)))
        self.register_buffer("busy", torch.tensor(float(busy)))

    def forward(self, records: Tensor, noise: Tensor, choice: Tensor | None = None) -> Tensor:
        """Released series of series, float32 [n, T, channels]; there is no noise."""
        shown = self.shown(records)
        level = torch.where(shown.any(1, keepdim=True), self.busy, self.quiet)
        return torch.where(shown, records, level.expand_as(records))

    def shown(self, records: Tensor) -> Tensor:
        """Which steps go out as they are, bool [n, T, channels]."""
        return (worth_of(records, self.counted) > self.worth) & (records > self.least)


def worth_of(records: Tensor, counted: float) -> Tensor:
    """Sum of squares over steps in use, [n, 1, channels]: what a shown step saves, by its cost."""
    used = (records > counted).sum(1, keepdim=True).clamp_min(1)
    return records.square().sum(1, keepdim=True) / used


def fit_peaks(records: Tensor, budget: float, *, least: float, counted: float) -> PeakReleaser:
    """The releaser that shows least at a normalised squared error of ``budget`` on ``records``.

    Raises:
        PrivatizerError: the error is above the budget even where every step above ``least`` goes
            out.
    """
    highest = float(worth_of(records, counted).max())
    low, high = 0.0, highest
    first = _with_levels(records, least, counted, low)
    if normalised(records, first) > budget:
        raise PrivatizerError(
            f"error budget {budget:g} is below {normalised(records, first):.3g}, the error where "
            f"every step above {least:g} is released; give a larger one or a lower least step"
        )
    if normalised(records, _with_levels(records, least, counted, math.inf)) <= budget:
        return _with_levels(records, least, counted, math.inf)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        found = _with_levels(records, least, counted, middle)
        low, high = (middle, high) if normalised(records, found) <= budget else (low, middle)
    return _with_levels(records, least, counted, low)


def normalised(records: Tensor, releaser: PeakReleaser) -> float:
    """Squared error of a release over the records' power."""
    change = releaser(records, records.new_zeros(len(records), 0)) - records
    return float(change.square().mean() / records.square().mean())


def _with_levels(records: Tensor, least: float, counted: float, worth: float) -> PeakReleaser:
    """A releaser whose levels are the means of what they stand for."""
    found = PeakReleaser(least=least, counted=counted, worth=worth)
    shown = found.shown(records)
    busy = shown.any(1, keepdim=True).expand_as(shown)
    for name, part in (("quiet", ~busy), ("busy", busy & ~shown)):
        if part.any():
            getattr(found, name).fill_(records[part].mean())
    return found
