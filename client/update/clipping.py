"""Clipping: the one place where sensitivity is bounded."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedlens.accountant.noise.lattice import SUM_BITS, pitch
from fedlens.client.update.row_sums import clip_and_sum_rows, shrunk

_AT_ONCE = 1 << 20
"""Values of outer products that are made at a time."""


@dataclass(frozen=True)
class Blocks:
    """Updates most of whose values are zeros, as the blocks that are not.

    An update is a [slots, width] matrix, flattened row by row. No two blocks of one update are at
    the same slot.
    """

    values: Tensor
    """[blocks, width], any float dtype."""
    owners: Tensor
    """int64 [blocks]: whose update a block belongs to, in [0, updates)."""
    places: Tensor
    """int64 [blocks]: its slot, in [0, slots)."""
    updates: int
    slots: int

    def __post_init__(self) -> None:
        """Check.

        Raises:
            ValueError: a slot is filled twice, so that norms could not be told from the blocks.
        """
        filled = self.owners * self.slots + self.places
        if len(torch.unique(filled)) != len(filled):
            raise ValueError("two blocks of one update lie at the same slot: add them up first")

    def __len__(self) -> int:
        """How many updates."""
        return self.updates

    def dense(self) -> Tensor:
        """The updates as rows, [updates, slots x width]."""
        whole = self.values.new_zeros(self.updates * self.slots, self.values.shape[1])
        whole[self.owners * self.slots + self.places] = self.values
        return whole.view(self.updates, -1)


@dataclass(frozen=True)
class Products:
    """Updates that are outer products: that of row i is ``left[i] ⊗ right[i]``, flattened."""

    left: Tensor
    """[n, a], any float dtype."""
    right: Tensor
    """[n, b]."""

    def __len__(self) -> int:
        """How many updates."""
        return len(self.left)


@dataclass(frozen=True)
class Layered:
    """Updates whose parts lie apart, layer by layer, each plus a row that its kind shares.

    Row i is the parts' rows i side by side, plus ``shared[kinds[i]]``. It is made when its turn
    comes to be clipped, so that memory never holds all of them.
    """

    parts: tuple[Tensor | tuple[Tensor, Tensor], ...]
    """Rows [n, its share of P], or matrices [n, a, m] and [n, m, b] whose products they are."""
    shared: Tensor
    """[kinds, P], float32: public."""
    kinds: Tensor
    """int64 [n], in [0, kinds)."""

    def __len__(self) -> int:
        """How many updates."""
        return len(self.kinds)

    def fill(self, first: int, end: int, rows: Tensor) -> None:
        """Write updates [first, end) into ``rows``, [end - first, P].

        Raises:
            ValueError: the parts' widths do not add up to P.
        """
        torch.index_select(self.shared, 0, self.kinds[first:end], out=rows)
        place = 0
        for part in self.parts:
            own = _part_rows(part, first, end)
            rows[:, place : place + own.shape[1]] += own
            place += own.shape[1]
        if place != self.shared.shape[1]:
            raise ValueError(f"parts of {place} values in all, where P is {self.shared.shape[1]}")

    def dense(self) -> Tensor:
        """The updates as rows, [n, P]."""
        rows = self.shared.new_empty(len(self), self.shared.shape[1])
        self.fill(0, len(self), rows)
        return rows


def _part_rows(part: Tensor | tuple[Tensor, Tensor], first: int, end: int) -> Tensor:
    if isinstance(part, Tensor):
        return part[first:end]
    left, right = part[0][first:end], part[1][first:end]
    outer = left.shape[2] == 1
    return (left * right if outer else torch.bmm(left, right)).flatten(1)


Updates = Tensor | Blocks | Products | Layered
"""Unclipped updates, one a user or record."""


def clip_and_sum(updates: Updates, clipping_norm: float) -> tuple[Tensor, Tensor]:
    """Clip each row to the L2 norm ``clipping_norm`` and add the rows up.

    Guarantees, whatever the input holds: each row's contribution to the sum has norm at most
    ``clipping_norm`` (up to the relative rounding, below P 2^-53, of a norm in float64, which the
    noise covers), and a row with a NaN or an infinity contributes exactly nothing. The sum's L2
    sensitivity to adding or removing one row is ``clipping_norm``.

    Each contribution is cut, toward zero, to a lattice on which float64 adds up to 2^22 of them
    exactly: a sum does not depend on their order, and one row cannot change how others round.

    Args:
        updates: one user's (or record's) update a row, shape [n, P], any float dtype; or the same
            as `Blocks`, as `Products` or as `Layered`.
        clipping_norm: C > 0.

    Returns:
        The sum, float64 [P], and the clipped norms, float64 [n].
    """
    if isinstance(updates, Blocks):
        return _clip_and_sum_blocks(updates, clipping_norm)
    if isinstance(updates, Products):
        return clip_and_sum_products(updates.left, updates.right, clipping_norm)
    if isinstance(updates, Layered):
        shape = len(updates), updates.shared.shape[1]
        return clip_and_sum_rows(shape, updates.fill, updates.shared, clipping_norm)
    count, size = updates.shape

    def fill(first: int, end: int, rows: Tensor) -> None:
        rows.copy_(updates[first:end])

    return clip_and_sum_rows((count, size), fill, updates, clipping_norm)


def clip_and_sum_products(
    left: Tensor, right: Tensor, clipping_norm: float
) -> tuple[Tensor, Tensor]:
    """`clip_and_sum` of rows that are outer products, without making all rows at once.

    Row i is ``left[i] ⊗ right[i]``, whose norm is the product of both norms; the guarantees are
    those of `clip_and_sum`.

    Args:
        left: [n, a], any float dtype.
        right: [n, b].
        clipping_norm: C > 0.

    Returns:
        The sum, float64 [a x b], and the clipped norms, float64 [n].
    """
    left, right = left.double(), right.double()
    scale, clipped, sound = shrunk(left.norm(dim=1) * right.norm(dim=1), clipping_norm)
    finite_left, finite_right = (torch.where(sound[:, None], x, 0.0) for x in (left, right))
    step = pitch(clipping_norm, SUM_BITS)
    total = left.new_zeros(left.shape[1], right.shape[1])
    at_once = max(1, _AT_ONCE // max(1, total.numel()))
    scaled = finite_left * (scale / step)[:, None]
    for one, other in zip(
        torch.split(scaled, at_once), torch.split(finite_right, at_once), strict=True
    ):
        total += (one[:, :, None] * other[:, None, :]).trunc_().sum(0)
    return total.view(-1) * step, clipped


def _clip_and_sum_blocks(updates: Blocks, clipping_norm: float) -> tuple[Tensor, Tensor]:
    values, owners = updates.values.double(), updates.owners
    squares = values.new_zeros(updates.updates).index_add_(0, owners, values.square().sum(1))
    scale, clipped, sound = shrunk(squares.sqrt(), clipping_norm)
    finite = torch.where(sound[owners][:, None], values, 0.0)
    total = values.new_zeros(updates.slots, values.shape[1])
    step = pitch(clipping_norm, SUM_BITS)
    total.index_add_(0, updates.places, (finite * (scale / step)[owners][:, None]).trunc_())
    return total.view(-1) * step, clipped


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
