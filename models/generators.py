"""The generator: post-processing of what was released, so it never sees a real image."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedlens.models.resizing import DoublingConv2d, FoldedConv2d, normalised, unfolded
from fedlens.models.shapes import TWICE_DOUBLED, ImageShape, check_classes, check_shape, one_hot
from fedlens.models.weights import initialise, unset_weights

LANES = 8
"""Channels come in multiples of this: CPUs compute that many at once, so fewer save no time."""


class Generator(nn.Module):
    """Noise and a class to an image: a linear layer, a convolution, then twice resize and convolve.

    Images of more than 64 pixels a side are doubled once more.

    Bilinear resizing with 3 x 3 convolutions, in place of transposed ones, keeps strokes clean
    where the critic's signal is noisy. Batch normalisation is safe here: in training the batch
    holds fakes only. ``forward`` draws nothing; the noise is the caller's.

    Most of the capacity is where maps are small and cheap: of ``width`` channels a convolution
    keeps half before the first resize, a quarter are left after it and an eighth after the second,
    each a multiple of 8 (the quarter rounded up, the half twice that, the eighth rounded down). A
    training step with a width of 64 takes hardly longer than with the default, one with 96 about
    1.6 times as long.

    Parameters for 10 classes and the default width and latent size: 193,913 for (1, 28, 28),
    247,339 for (3, 32, 32).

    Args:
        shape: (channels, height, width) of an image.
        classes: number of classes.
        width: channels of the first maps.
        latent: length of the noise vector.
        generator: CPU generator of the weights; ``None`` is seed 0.

    Raises:
        ShapeError: on a shape or number of classes that is not supported.
    """

    def __init__(
        self,
        shape: ImageShape,
        classes: int,
        width: int = 48,
        latent: int = 64,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.shape = check_shape(shape)
        self.classes = check_classes(classes)
        self.latent = latent
        self.width = width
        self.side = self.shape[1] // (4 if self.shape[1] <= TWICE_DOUBLED else 8)
        small, middle, last = _channels(width)
        with unset_weights():
            self.dense = nn.Linear(latent + self.classes, width * self.side**2, bias=False)
            self.norm1 = nn.BatchNorm2d(width)
            self.mix = nn.Conv2d(width, small, 3, padding=1, bias=False)
            self.norm2 = nn.BatchNorm2d(small)
            self.conv1 = DoublingConv2d(small, middle)
            self.norm3 = nn.BatchNorm2d(middle)
            self.conv2 = DoublingConv2d(middle, last)
            self.norm4 = nn.BatchNorm2d(last)
            if self.shape[1] > TWICE_DOUBLED:
                self.conv3 = DoublingConv2d(last, last)
                self.norm5 = nn.BatchNorm2d(last)
            self.paint = FoldedConv2d(last, self.shape[0])
        initialise(self, generator, "relu")

    def forward(self, noise: Tensor, labels: Tensor) -> Tensor:
        """Images [n, c, h, w] in [-1, 1] from noise float32 [n, latent] and labels int64 [n].

        In place of labels there may be shares of classes, float32 [n, classes]: the images then lie
        between classes. No training sees such, and students learn from them where classes part.
        """
        shares = one_hot(labels, self.classes) if labels.dim() == 1 else labels
        seeds: Tensor = self.dense(torch.cat([noise, shares], 1))
        # channels are last in memory all the way, which halves the time on a CPU
        maps = seeds.view(-1, self.side, self.side, self.width).permute(0, 3, 1, 2)
        maps = self.mix(F.relu(self.norm1(maps), inplace=True))
        maps = F.relu(self.norm2(maps), inplace=True)
        maps = unfolded(normalised(self.conv1(maps), self.norm3))
        maps = normalised(self.conv2(maps), self.norm4)
        if self.shape[1] > TWICE_DOUBLED:
            maps = normalised(self.conv3(unfolded(maps)), self.norm5)
        return torch.tanh(unfolded(self.paint(maps))).contiguous()


def _channels(width: int) -> tuple[int, int, int]:
    """Channels before the first resize, after it, and after the second."""
    middle = LANES * -(-width // (4 * LANES))
    return 2 * middle, middle, LANES * max(1, width // (8 * LANES))
