"""Clipping: the one place where sensitivity is bounded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from fedlens.accountant.noise.lattice import SUM_BITS, pitch

AT_ONCE_CPU, AT_ONCE_GPU = 1 << 18, 1 << 26
"""Values of rows that are made together: a megabyte in float32 stays in a core's cache."""
_SMALLEST_CLIP_FLOAT32 = 2.0**-90
"""Below it the pitches in one unit pass what float32 holds."""
_TOWARD_ZERO = 1 - 2.0**-22
"""Makes up for what float32 rounds in a factor and in its product with a value, 2^-24 each."""


class Updates(Protocol):
    """Unclipped updates, one a user or record, as rows that are made when their turn comes.

    What keeps it says what the rows are and no more: `clip_and_sum` alone takes norms, clips and
    adds up. Another package may bring its own.
    """

    @property
    def width(self) -> int:
        """Values of a row."""

    @property
    def like(self) -> Tensor:
        """A tensor of the rows' dtype (a float) and device."""

    @property
    def slots(self) -> int:
        """An update is ``slots`` times ``width`` values long: P. 1 where rows are whole updates."""

    @property
    def places(self) -> Tensor | None:
        """int64 [n] in [0, slots): the slot that each row fills, the others of its update being 0.

        None where there is one slot.
        """

    def __len__(self) -> int:
        """How many updates."""

    def fill(self, first: int, end: int, rows: Tensor) -> None:
        """Write rows [first, end) into ``rows``, [end - first, width]."""


@dataclass(frozen=True)
class Rows:
    """Updates that are there as rows."""

    like: Tensor
    """[n, P], any float dtype."""
    slots, places = 1, None

    @property
    def width(self) -> int:
        """P."""
        return self.like.shape[1]

    def __len__(self) -> int:
        """How many updates."""
        return len(self.like)

    def fill(self, first: int, end: int, rows: Tensor) -> None:
        """Write rows [first, end) into ``rows``."""
        rows.copy_(self.like[first:end])


@dataclass(frozen=True)
class Blocks:
    """Updates of zeros but for one block each: that of row i lies at slot ``places[i]``."""

    like: Tensor
    """[n, width], any float dtype."""
    places: Tensor
    """int64 [n], in [0, slots)."""
    slots: int

    @property
    def width(self) -> int:
        """Values of a block."""
        return self.like.shape[1]

    def __len__(self) -> int:
        """How many updates."""
        return len(self.like)

    def fill(self, first: int, end: int, rows: Tensor) -> None:
        """Write blocks [first, end) into ``rows``."""
        rows.copy_(self.like[first:end])


Part = Tensor | tuple[Tensor, Tensor]
"""Rows [n, its share of P], or matrices [n, a, m] and [n, m, b] whose products, flat, they are."""


@dataclass(frozen=True)
class Layered:
    """Updates whose parts lie apart, layer by layer, each plus a row that its kind shares.

    Row i is the parts' rows i side by side, plus ``shared[kinds[i]]`` where there is any. It is
    made when its turn comes to be clipped, so that memory never holds all of them.
    """

    parts: tuple[Part, ...]
    shared: Tensor | None = None
    """[kinds, P], of the parts' dtype: public."""
    kinds: Tensor | None = None
    """int64 [n], in [0, kinds)."""
    slots, places = 1, None

    def __post_init__(self) -> None:
        """Check.

        Raises:
            ValueError: the parts' widths do not add up to the shared rows'.
        """
        if self.shared is not None and self.shared.shape[1] != self.width:
            raise ValueError(
                f"parts of {self.width} values in all, where P is {self.shared.shape[1]}"
            )

    @property
    def like(self) -> Tensor:
        """A part."""
        first = self.parts[0]
        return first if isinstance(first, Tensor) else first[0]

    @property
    def width(self) -> int:
        """P."""
        return sum(_width(part) for part in self.parts)

    def __len__(self) -> int:
        """How many updates."""
        return len(self.like)

    def fill(self, first: int, end: int, rows: Tensor) -> None:
        """Write updates [first, end) into ``rows``."""
        if self.shared is None or self.kinds is None:
            rows.zero_()
        else:
            torch.index_select(self.shared, 0, self.kinds[first:end], out=rows)
        place = 0
        for part in self.parts:
            own = _part_rows(part, first, end)
            rows[:, place : place + own.shape[1]] += own
            place += own.shape[1]


def _width(part: Part) -> int:
    return part.shape[1] if isinstance(part, Tensor) else part[0].shape[1] * part[1].shape[2]


def _part_rows(part: Part, first: int, end: int) -> Tensor:
    if isinstance(part, Tensor):
        return part[first:end]
    left, right = part[0][first:end], part[1][first:end]
    outer = left.shape[2] == 1
    return (left * right if outer else torch.bmm(left, right)).flatten(1)


def rows_of_updates(updates: Tensor | Updates) -> Tensor:
    """Updates as rows, all at once, [n, P]."""
    made = Rows(updates) if isinstance(updates, Tensor) else updates
    rows = made.like.new_zeros(len(made), made.width)
    made.fill(0, len(made), rows)
    if made.places is None:
        return rows
    whole = rows.new_zeros(len(made), made.slots, made.width)
    whole[torch.arange(len(made), device=whole.device), made.places] = rows
    return whole.flatten(1)


def clip_and_sum(updates: Tensor | Updates, clipping_norm: float) -> tuple[Tensor, Tensor]:
    """Clip each row to the L2 norm ``clipping_norm`` and add the rows up.

    Guarantees, whatever the input holds: each row's contribution to the sum has norm at most
    ``clipping_norm`` (up to the relative rounding, below P 2^-53, of a norm in float64, which the
    noise covers), and a row with a NaN or an infinity contributes exactly nothing. The sum's L2
    sensitivity to adding or removing one row is ``clipping_norm``.

    Each contribution is cut, toward zero, to a lattice on which float64 adds up to 2^22 of them
    exactly: a sum does not depend on their order, and one row cannot change how others round. Rows
    in float32 are scaled and cut in float32, by a factor so little smaller (2^-22) that no rounding
    takes a contribution past C; norms are of float64.

    Args:
        updates: one user's (or record's) update a row, shape [n, P], any float dtype; or what makes
            such rows a few at a time, so that what is in the making stays in the cache.
        clipping_norm: C > 0.

    Returns:
        The sum, float64 [P], and the clipped norms, float64 [n].
    """
    made = Rows(updates) if isinstance(updates, Tensor) else updates
    like, width = made.like, made.width
    step = max(1, (AT_ONCE_GPU if like.is_cuda else AT_ONCE_CPU) // max(1, width))
    scratch = _Scratch(like.new_zeros(step, width), clipping_norm)
    total = torch.zeros(made.slots, width, dtype=torch.float64, device=like.device)
    norms = [total.new_zeros(0)]
    for first in range(0, len(made), step):
        end = min(len(made), first + step)
        scratch.rows[end - first :] = 0.0  # as many rows are computed every time
        made.fill(first, end, scratch.rows[: end - first])
        whole, clipped = scratch.clip()
        if made.places is None:
            total += whole.sum(0)
        else:
            total.index_add_(0, made.places[first:end], whole[: end - first])
        norms.append(clipped[: end - first])
    return total.view(-1) * pitch(clipping_norm, SUM_BITS), torch.cat(norms)


class _Scratch:
    """Memory for some rows, written again and again: new memory costs more than what fills it."""

    def __init__(self, rows: Tensor, clipping_norm: float) -> None:
        self.rows, self._clip = rows, clipping_norm
        self._wide = torch.empty_like(rows, dtype=torch.float64)
        fits = rows.dtype == torch.float32 and clipping_norm >= _SMALLEST_CLIP_FLOAT32
        self._whole = torch.empty_like(rows, dtype=torch.int32) if fits else None

    def clip(self) -> tuple[Tensor, Tensor]:
        """The clipped rows in whole pitches, float64, and their norms; the rows are spoilt."""
        norms = self._wide.copy_(self.rows).norm(dim=1)
        scale, clipped, sound = _scale(norms, self._clip)
        if self._whole is None:
            factors = scale / pitch(self._clip, SUM_BITS)
            finite = torch.where(sound[:, None], self.rows, 0.0)  # 0 x infinity would be NaN
            self._wide.copy_(finite).mul_(factors[:, None]).trunc_()
        else:
            self._cut(self._whole, scale, sound)
            self._wide.copy_(self._whole)
        return self._wide, clipped

    def _cut(self, whole: Tensor, scale: Tensor, sound: Tensor) -> None:
        """Rows cut to whole numbers of pitches, int32: C and so each value is below 2^31."""
        # what is not scaled needs no margin: times a power of two nothing is rounded
        less = torch.where(scale < 1, scale * _TOWARD_ZERO, scale)
        factors = (less / pitch(self._clip, SUM_BITS)).float()
        # a NaN is some whole number here, until it is multiplied by zero
        whole.copy_(self.rows.mul_(factors[:, None])).mul_(sound.int()[:, None])


def _scale(norms: Tensor, clipping_norm: float) -> tuple[Tensor, Tensor, Tensor]:
    """Factors that bring rows of these norms within the clip, the norms then, and what is sound.

    A row's norm is finite only if each of its values is; the factor of another one is 0.
    """
    sound = torch.isfinite(norms)
    scale = torch.where(sound, (clipping_norm / norms.clamp(min=1e-300)).clamp(max=1.0), 0.0)
    return scale, torch.where(sound, norms.clamp(max=clipping_norm), 0.0), sound


def histogram(norms: Tensor, clipping_norm: float, bins: int) -> Tensor:
    """Counts of ``norms`` in ``bins`` equal bins of (0, C]; norm 0 is not counted.

    Who contributes nothing to the sum must count nowhere either: a user whose records are taken
    away would otherwise move from one bin to another, by √2, and not out of one, by 1.

    Args:
        norms: clipped norms, float64 [n], in [0, C].
        clipping_norm: C, the upper edge of the last bin.
        bins: number of bins.

    Returns:
        int64 [bins]; bin i counts norms in (iC/bins, (i+1)C/bins], so that reading each bin as
        its upper edge never understates a norm.
    """
    counted = norms[norms > 0]
    index = torch.ceil(counted * (bins / clipping_norm)).long().sub(1).clamp(0, bins - 1)
    return torch.bincount(index, minlength=bins)
