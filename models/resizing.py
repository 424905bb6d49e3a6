"""Convolutions behind a doubling of height and width, computed before it.

A bilinear doubling followed by a 3 x 3 convolution makes each output pixel a weighted sum over
3 x 3 *input* pixels, with one of four sets of weights: one for each pixel of a 2 x 2 block. So it
is a single convolution of the small maps with four times the output channels, whose weights are
fixed blends of the 3 x 3 ones. On a CPU that is faster, chiefly in the gradient: no large maps are
written between, and wider channels fill the vector units.

Maps whose 2 x 2 blocks are held as channels are called *folded* here: [n, 4 x channels, h, w] for
images of 2h x 2w pixels, the channels of the block's first pixel first.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_DOUBLED = torch.tensor(
    [
        [[0.75, 0.25, 0.0], [0.25, 0.75, 0.0], [0.0, 0.75, 0.25]],
        [[0.25, 0.75, 0.0], [0.0, 0.75, 0.25], [0.0, 0.25, 0.75]],
    ]
)
"""Along an axis, for output pixel 2i + p and tap k of its convolution: what the doubled pixel
2i + p + k - 1 takes of the small pixels i - 1, i, i + 1. Indices p, k, then the small pixel."""


def _folded_taps() -> Tensor:
    """Along an axis: where output pixel 2i + p finds pixel 2i + p + k - 1 of folded maps.

    Returns:
        [p, q, k, t]: 1 where that pixel is the q-th of block i + t - 1, else 0.
    """
    taps = torch.zeros(2, 2, 3, 3)
    for p in range(2):
        for k in range(3):
            block, q = divmod(p + k - 1, 2)
            taps[p, q, k, block + 1] = 1
    return taps


_FOLDED = _folded_taps()


class DoublingConv2d(nn.Conv2d):
    """Double height and width bilinearly, then convolve 3 x 3, without a bias; gives folded maps.

    Equal to ``conv2d(interpolate(maps, scale_factor=2, mode="bilinear"), weight, padding=1)`` up
    to rounding, except at the rim, where what lies outside is zero before the doubling already.
    """

    def __init__(self, channels: int, outputs: int) -> None:
        super().__init__(channels, outputs, 3, padding=1, bias=False)

    def forward(self, maps: Tensor) -> Tensor:
        """Folded maps [n, 4 x outputs, h, w] of maps [n, channels, h, w]."""
        blend = _DOUBLED.to(self.weight)
        weight = torch.einsum("pkt,qls,ockl->pqocts", blend, blend, self.weight)
        return F.conv2d(maps, _channels_last(weight.reshape(-1, *self.weight.shape[1:])), padding=1)


class FoldedConv2d(nn.Conv2d):
    """A 3 x 3 convolution of folded maps that gives folded maps."""

    def __init__(self, channels: int, outputs: int) -> None:
        super().__init__(channels, outputs, 3, padding=1)

    def forward(self, maps: Tensor) -> Tensor:
        """Folded maps [n, 4 x outputs, h, w] of folded maps [n, 4 x channels, h, w]."""
        taps = _FOLDED.to(self.weight)
        weight = torch.einsum("pmkt,qnls,ockl->pqomncts", taps, taps, self.weight)
        outputs, channels = self.weight.shape[:2]
        bias = None if self.bias is None else self.bias.repeat(4)
        return F.conv2d(
            maps, _channels_last(weight.reshape(4 * outputs, 4 * channels, 3, 3)), bias, padding=1
        )


def normalised(maps: Tensor, norm: nn.BatchNorm2d) -> Tensor:
    """Batch-normalised and rectified folded maps; each channel's four pixels count as one."""
    count, _, height, width = maps.shape
    pixels = maps.permute(0, 2, 3, 1).reshape(count, -1, 1, norm.num_features)
    rectified = F.relu(norm(pixels.permute(0, 3, 1, 2)), inplace=True)
    return rectified.permute(0, 2, 3, 1).reshape(count, height, width, -1).permute(0, 3, 1, 2)


def unfolded(maps: Tensor) -> Tensor:
    """Maps [n, channels, 2h, 2w], channels last in memory, of folded [n, 4 x channels, h, w]."""
    count, channels, height, width = maps.shape
    blocks = maps.permute(0, 2, 3, 1).reshape(count, height, width, 2, 2, channels // 4)
    pixels = blocks.permute(0, 1, 3, 2, 4, 5).reshape(count, 2 * height, 2 * width, channels // 4)
    return pixels.permute(0, 3, 1, 2)


def _channels_last(weight: Tensor) -> Tensor:
    return weight.contiguous(memory_format=torch.channels_last)
