"""A convolution of stride 2 as one of stride 1 over blocks of 2 x 2 pixels, as a matrix product.

A map that is padded by one and cut into blocks [(side + 2) / 2, (side + 2) / 2, 2, 2, channels] has
the patch of each output in 2 x 2 neighbouring blocks. So patches are copied, and their slopes added
up, in four long runs of memory for each output, where pixels one by one would take sixteen short
ones: that, not the product, is what such a convolution costs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True)
class StridedLayer:
    """A convolution of stride 2 and padding 1 over a square map, with a kernel of side 3 or 4."""

    kernel: int
    channels: int
    """Of what it is given."""
    outputs: int
    """Channels of what it gives."""
    side: int
    """Of the map it is given, in pixels."""

    def __post_init__(self) -> None:
        """Check.

        Raises:
            ValueError: a kernel whose patches do not lie in 2 x 2 blocks.
        """
        if self.kernel not in (3, 4):
            raise ValueError(f"a kernel of side {self.kernel}: blocks of 2 x 2 hold 3 or 4")

    @property
    def reach(self) -> int:
        """Side of the map it gives."""
        return (self.side + 2 - self.kernel) // 2 + 1

    @property
    def patch(self) -> int:
        """Values of one patch."""
        return self.kernel * self.kernel * self.channels

    @cached_property
    def taps(self) -> tuple[tuple[int, int], ...]:
        """Rows and columns of the kernel in the order in which a patch has them."""
        return tuple(
            (2 * down + row, 2 * right + column)
            for down, right, rows, columns in self._quarters()
            for row in range(rows)
            for column in range(columns)
        )

    def _quarters(self) -> Iterator[tuple[int, int, int, int]]:
        """Each of the 2 x 2 blocks of a patch, and how many of its rows and columns are in it."""
        for down in range(2):
            for right in range(2):
                yield down, right, min(2, self.kernel - 2 * down), min(2, self.kernel - 2 * right)

    def _pieces(self, blocks: Tensor, patches: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """What four parts of all patches are views of, and these parts: equal in shape."""
        place, reach = 0, self.reach
        for down, right, rows, columns in self._quarters():
            size = rows * columns * self.channels
            part = patches[..., place : place + size]
            inside = blocks[..., down : down + reach, right : right + reach, :rows, :columns, :]
            yield inside, part.view(*part.shape[:-1], rows, columns, self.channels)
            place += size

    def blocks_shape(self) -> tuple[int, ...]:
        """Of a map in blocks."""
        return self.reach + 1, self.reach + 1, 2, 2, self.channels

    def _parities(self, maps: Tensor, blocks: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Pixels of each place in a block, in maps [..., side, side, channels] and in blocks."""
        for row in range(2):
            for column in range(2):
                pixels = maps[..., 1 - row :: 2, 1 - column :: 2, :]
                down, right = pixels.shape[-3:-1]
                first, left = 1 - row, 1 - column
                yield pixels, blocks[..., first : first + down, left : left + right, row, column, :]

    def to_blocks(self, maps: Tensor, blocks: Tensor) -> None:
        """Write maps [..., side, side, channels] into blocks whose padding holds zeros."""
        for pixels, inside in self._parities(maps, blocks):
            inside.copy_(pixels)

    def from_blocks(self, blocks: Tensor, maps: Tensor) -> None:
        """The other way; what lies in the padding is let go."""
        for pixels, inside in self._parities(maps, blocks):
            pixels.copy_(inside)

    def to_patches(self, blocks: Tensor, patches: Tensor) -> None:
        """Write the patch of each output, [..., reach, reach, patch]."""
        for inside, part in self._pieces(blocks, patches):
            part.copy_(inside)

    def add_patches(self, patches: Tensor, blocks: Tensor) -> None:
        """Each pixel of the blocks becomes the sum of the patches' values for it."""
        first, *others = self._pieces(blocks, patches)
        first[0].copy_(first[1])  # all but the last row and column of blocks
        blocks[..., self.reach :, :, :, :, :].zero_()
        blocks[..., self.reach :, :, :, :].zero_()
        for inside, part in others:
            inside.add_(part)

    def as_matrix(self, weights: Tensor) -> Tensor:
        """Weights [outputs, channels, kernel, kernel] as a matrix [patch, outputs]."""
        rows, columns = torch.tensor(self.taps, device=weights.device).T
        return weights[:, :, rows, columns].permute(2, 1, 0).reshape(self.patch, self.outputs)

    def from_matrix(self, matrices: Tensor) -> Tensor:
        """Matrices [n, patch, outputs] as flat weights [n, outputs x channels x kernel²]."""
        order = [self.taps.index((i, j)) for i in range(self.kernel) for j in range(self.kernel)]
        taps = matrices.view(len(matrices), len(order), self.channels, self.outputs)
        return taps[:, order].permute(0, 3, 2, 1).reshape(len(matrices), -1)
