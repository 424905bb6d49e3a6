"""Noise maps and masks (Cloak): which entries of a record a service gets to see.

Mireshghallah et al. 2021.

A noise map learns how much noise each entry bears before a provider's network fails. Entries that
bear much are then not sent at all: a mask keeps those whose noise is *below* a threshold (the
paper's text and equation print the opposite, which would keep what does not matter; its prose and
its authors' code do as is done here).

What a mask promises: the *values* of suppressed entries are not sent. What they have in common with
entries that are sent is sent with these; how much that is, attackers have to find out. Kept entries
go out with noise of the deviation that the map found, whose Gaussian bound
`fedlens.privatizers.networks.information.gaussian_information_bound` computes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from fedlens.foundation.errors import FedlensError

FIRST_RHO = -4.0
"""Where rho starts. The authors' -9 and -10 are 0 in float32 with their tanh form: no noise and no
gradient. From -4 Adam at a rate of 0.01 takes some hundred steps to noise that matters."""

Fill = Literal["noise", "zeros", "mean", "trained"]
FILLS: tuple[Fill, ...] = ("noise", "zeros", "mean", "trained")
"""What is sent in the place of suppressed entries; with ``noise`` none is suppressed."""


class MaskError(FedlensError, ValueError):
    """A mask that keeps nothing, or noise without meaning; the message names the fix."""


class NoiseMap(nn.Module):
    """x + σe + μ with a deviation and a shift of its own for each entry (section 3.2).

    σ = least + (most - least) · sigmoid(2ρ): the paper's M(1 + tanh ρ)/2 for a floor of 0, in the
    form that does not round to 0. σ is in the units of the records, and so are the limits. μ is
    ``shift_unit`` times its parameter.

    Entries can be given up while the map learns (:meth:`give_up`): from then on they are the
    constant base + μ without noise, as they will be once masked. So the others learn how much they
    matter without them. The paper masks once, at the end; noise that a network never met hides
    from the map which entries stand in for each other.

    Args:
        shape: of a record.
        most: M, which σ stays below.
        least: floor of σ; above 0 the information that is released has a finite bound.
        rho: ρ at the start.
        shift_unit: what μ rises by where its parameter rises by 1, above 0. An optimiser that steps
            alike in all parameters, as Adam does, moves μ that much slower than ρ.

    Raises:
        MaskError: unless 0 <= least < most and shift_unit is above 0.
    """

    shift_unit: Tensor
    keep: Tensor
    base: Tensor

    def __init__(
        self,
        shape: Sequence[int],
        most: float = 1.5,
        *,
        least: float = 1e-3,
        rho: float = FIRST_RHO,
        shift_unit: float = 1.0,
    ) -> None:
        super().__init__()
        if not 0 <= least < most < math.inf:
            raise MaskError(f"least={least}, most={most}: give noise with 0 <= least < most")
        if not 0 < shift_unit < math.inf:
            raise MaskError(f"shift_unit={shift_unit} must be a finite number above 0")
        self.noise_shape = tuple(int(side) for side in shape)
        self.most, self.least = float(most), float(least)
        self.rho = nn.Parameter(torch.full(self.noise_shape, float(rho)))
        self.shift = nn.Parameter(torch.zeros(self.noise_shape))
        self.register_buffer("shift_unit", torch.tensor(float(shift_unit)))
        self.register_buffer("keep", torch.ones(self.noise_shape, dtype=torch.bool))
        self.register_buffer("base", torch.zeros(self.noise_shape))

    def mu(self) -> Tensor:
        """The shift of each entry, float32 in the records' units, differentiable."""
        return self.shift_unit * self.shift

    def sigma(self) -> Tensor:
        """The deviation of each entry's noise, float32 in (least, most), differentiable.

        ``most`` for entries that were given up: no later threshold brings them back.
        """
        return torch.where(self.keep, self.deviation(self.rho), self.most)

    def deviation(self, rho: Tensor) -> Tensor:
        """σ of any ρ."""
        return self.least + (self.most - self.least) * torch.sigmoid(2 * rho)

    def give_up(self, ratio: float, base: Tensor) -> None:
        """Send no more than a share 1 - ``ratio`` of the entries from here on.

        Args:
            ratio: share of all entries that is suppressed: those with most noise.
            base: float32, a record's shape, what stands for them at first (say the mean record).

        Raises:
            MaskError: nothing would be left, or the shape differs.
        """
        if base.shape != self.keep.shape:
            raise MaskError(f"base is {tuple(base.shape)}; give a record's {self.noise_shape}")
        sigma = self.sigma().detach()
        self.keep.copy_(self.keep & kept(sigma, threshold_of(sigma, ratio)))
        self.base.copy_(base)

    def forward(self, records: Tensor, noise: Tensor, choice: Tensor | None = None) -> Tensor:
        """Released records [n, ...] of records and standard normal noise of the same shape.

        ``choice`` float32 [n, 1]: a record whose owner chose nothing goes out as it is.
        """
        sent = torch.addcmul(records, self.deviation(self.rho), noise)
        return chosen(records, torch.where(self.keep, sent, self.base) + self.mu(), choice)


class MaskFilter(nn.Module):
    """x + σe where the mask keeps, a constant where it does not (section 3.4).

    The constant depends on no record: it is ``values``, learned where ``trained``.

    Args:
        sigma: float32, a record's shape, frozen deviations.
        keep: bool, a record's shape; True is sent.
        values: float32, a record's shape: what stands for suppressed entries.
        shift: float32, a record's shape, is added to what is kept.
        trained: ``values`` is a parameter.

    Raises:
        MaskError: when nothing is kept, or shapes differ.
    """

    sigma: Tensor
    keep: Tensor
    shift: Tensor
    values: Tensor

    def __init__(
        self,
        sigma: Tensor,
        keep: Tensor,
        values: Tensor,
        *,
        shift: Tensor | None = None,
        trained: bool = False,
    ) -> None:
        super().__init__()
        if keep.shape != sigma.shape or values.shape != sigma.shape or keep.dtype != torch.bool:
            raise MaskError(
                f"sigma {tuple(sigma.shape)}, keep {tuple(keep.shape)} ({keep.dtype}) and values "
                f"{tuple(values.shape)} must have a record's shape, and keep be bool"
            )
        if not bool(keep.any()):
            raise MaskError(
                "the mask keeps nothing: every record would be released as the same constant; "
                "raise the threshold or lower the ratio"
            )
        self.noise_shape = tuple(sigma.shape)
        self.register_buffer("sigma", sigma.detach().float().clone())
        self.register_buffer("keep", keep.clone())
        chosen = torch.zeros_like(self.sigma) if shift is None else shift.detach().float().clone()
        self.register_buffer("shift", chosen)
        start = values.detach().float().clone()
        if trained:
            self.values = nn.Parameter(start)
        else:
            self.register_buffer("values", start)

    @property
    def ratio(self) -> float:
        """Share of the entries that are suppressed (the paper's SR)."""
        return 1 - float(self.keep.double().mean())

    def forward(self, records: Tensor, noise: Tensor, choice: Tensor | None = None) -> Tensor:
        """Released records [n, ...] of records and standard normal noise of the same shape.

        ``choice`` float32 [n, 1]: a record whose owner chose nothing goes out as it is.
        """
        sent = torch.addcmul(records + self.shift, self.sigma, noise)
        return chosen(records, torch.where(self.keep, sent, self.values), choice)

    def channel(self, records: Tensor, noise: Tensor, choice: Tensor | None = None) -> Tensor:
        """All that a masked record's release says of it, float32 [n, kept]: what is kept, noised.

        A record that goes out as it is, by its ``choice``, is not masked: this is what would be
        sent if it were.
        """
        sent = torch.addcmul(records + self.shift, self.sigma, noise)
        return sent[:, self.keep]


def kept(sigma: Tensor, threshold: float) -> Tensor:
    """The mask of a threshold: bool, True where σ < T.

    Raises:
        MaskError: no entry has noise below the threshold.
    """
    mask = sigma.detach() < threshold
    if not bool(mask.any()):
        raise MaskError(
            f"threshold={threshold:g} keeps nothing: the least noise is {float(sigma.min()):g}; "
            "give a threshold above it"
        )
    return mask


def threshold_of(sigma: Tensor, ratio: float) -> float:
    """The threshold that suppresses a share ``ratio`` of the entries: those with most noise.

    Raises:
        MaskError: unless 0 <= ratio < 1, or when so many entries share their noise that none is
            left below it.
    """
    if not 0 <= ratio < 1:
        raise MaskError(f"ratio={ratio} must lie in [0, 1): something has to be sent")
    ordered = sigma.detach().flatten().sort(descending=True).values
    count = math.ceil(ratio * len(ordered) - 1e-9)
    threshold = math.inf if count == 0 else float(ordered[count - 1])
    kept(sigma, threshold)
    return threshold


def masked(
    noise: NoiseMap,
    threshold: float,
    fill: Fill,
    *,
    mean: Tensor | None = None,
    blank: float = 0.0,
    shifted: bool = False,
) -> MaskFilter:
    """The filter that a noise map and a threshold make.

    Args:
        noise: the map; it is copied and not changed.
        threshold: T, in units of σ.
        fill: ``noise`` suppresses nothing (x + σe + μ everywhere); ``zeros`` sends ``blank``,
            ``mean`` the records' mean; ``trained`` starts at the map's own base + μ (``mean`` + μ
            where the map gave nothing up) and is left to be trained.
        mean: float32, a record's shape: the mean of training records.
        blank: what stands for nothing in the records' units: 0 for images in [0, 1], -1 for black
            in [-1, 1].
        shifted: what is kept goes out with μ too (the authors' code), not only with noise. μ is
            one constant for everybody: it tells nothing of a record and helps the provider.

    Raises:
        MaskError: the threshold keeps nothing, the fill is unknown or lacks its mean.
    """
    if fill not in FILLS:
        raise MaskError(f"fill={fill!r} is unknown: choose one of {', '.join(FILLS)}")
    if fill == "mean" and mean is None:
        raise MaskError("fill='mean' needs mean, the mean of training records")
    sigma, shift = noise.sigma().detach(), noise.mu().detach()
    keep = kept(sigma, threshold)
    if fill == "noise":
        return MaskFilter(sigma, torch.ones_like(keep), torch.zeros_like(sigma), shift=shift)
    moved = shift if shifted else None
    if fill == "zeros":
        return MaskFilter(sigma, keep, torch.full_like(sigma, blank), shift=moved)
    if fill == "mean" and mean is not None:
        return MaskFilter(sigma, keep, mean, shift=moved)
    base = mean if mean is not None and bool(noise.keep.all()) else noise.base
    return MaskFilter(sigma, keep, base + shift, shift=moved, trained=True)


def chosen(records: Tensor, released: Tensor, choice: Tensor | None) -> Tensor:
    """What goes out: filtered records [n, ...], or those themselves whose owner chose nothing.

    ``choice`` is float32 [n, 1]; None filters everybody's.
    """
    if choice is None:
        return released
    wanted = (choice > 0).any(1).view(-1, *(1 for _ in records.shape[1:]))
    return torch.where(wanted, released, records)
