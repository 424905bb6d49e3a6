"""The generator: post-processing of what was released, so it never sees a real image."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.shapes import ImageShape, check_classes, check_shape, one_hot
from models.weights import initialise, unset_weights


class Generator(nn.Module):
    """Noise and a class to an image: a linear layer, then twice resize and convolve.

    Bilinear resizing with 3 x 3 convolutions, in place of transposed ones, keeps strokes clean
    where the critic's signal is noisy. Batch normalisation is safe here: in training the batch
    holds fakes only. ``forward`` draws nothing; the noise is the caller's.

    Parameters for 10 classes and the default width and latent size: 187,285 for (1, 28, 28),
    240,783 for (3, 32, 32).

    Args:
        shape: (channels, height, width) of an image.
        classes: number of classes.
        width: channels of the first maps (at least 4); each resize halves them.
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
        self.side = self.shape[1] // 4
        with unset_weights(self):
            self.dense = nn.Linear(latent + self.classes, width * self.side**2, bias=False)
            self.norm1 = nn.BatchNorm2d(width)
            self.conv1 = nn.Conv2d(width, width // 2, 3, padding=1, bias=False)
            self.norm2 = nn.BatchNorm2d(width // 2)
            self.conv2 = nn.Conv2d(width // 2, width // 4, 3, padding=1, bias=False)
            self.norm3 = nn.BatchNorm2d(width // 4)
            self.paint = nn.Conv2d(width // 4, self.shape[0], 3, padding=1)
        initialise(self, generator, "relu")

    def forward(self, noise: Tensor, labels: Tensor) -> Tensor:
        """Images [n, c, h, w] in [-1, 1] from noise float32 [n, latent], labels int64 [n]."""
        seeds: Tensor = self.dense(torch.cat([noise, one_hot(labels, self.classes)], 1))
        maps = seeds.view(-1, self.width, self.side, self.side)
        # Channels last halves the time of a training step on a CPU; the values are the same.
        maps = F.relu(self.norm1(maps.contiguous(memory_format=torch.channels_last)))
        maps = F.relu(self.norm2(self.conv1(_twice(maps))))
        maps = F.relu(self.norm3(self.conv2(_twice(maps))))
        return torch.tanh(self.paint(maps)).contiguous()


def _twice(maps: Tensor) -> Tensor:
    """Double height and width."""
    return F.interpolate(maps, scale_factor=2.0, mode="bilinear", align_corners=False)
