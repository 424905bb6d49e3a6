"""A releaser that sees an image's low frequencies alone, for filters that are fitted on moments.

What a federation releases in one go, the sums of its users' features and of their products, says
what features of a kind of image are like: their mean and covariance. A filter can be fitted on
features drawn from these (`fedlens.privatizers.pair_moments`), if it sees nothing else of an image.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedlens.models.classifiers import check_image
from fedlens.models.shapes import ShapeError
from fedlens.models.weights import initialise, unset_weights
from fedlens.privatizers.networks.information import bounded, radius_of
from fedlens.privatizers.networks.masks import chosen
from fedlens.privatizers.networks.recurrent import check_sizes


class LowFrequencies(nn.Module):
    """An image's lowest frequencies as a vector of length 1 at most.

    The orthonormal cosine transform (DCT-II) of each channel, of which the entries (i, j) with
    i + j ≤ ``highest`` are kept; less a centre, times a scale each, and cut to length 1. Centre and
    scales are public or released numbers.

    Args:
        shape: (channels, height, width) of an image.
        highest: of the frequencies that are kept, 1 or more.

    Attributes:
        highest: of the frequencies that are kept.
        reach: length that the frequencies of an image with values in [-1, 1] can have.

    Raises:
        ShapeError: there is no frequency as high as ``highest`` in such an image.
    """

    def __init__(self, shape: tuple[int, int, int], highest: int = 10) -> None:
        super().__init__()
        channels, height, width = self.shape = check_image(shape)
        if not 1 <= highest < min(height, width):
            raise ShapeError(f"highest={highest} must be at least 1 and below the image's sides")
        self.highest = highest
        kept = [(i, j) for i in range(highest + 1) for j in range(highest + 1 - i)]
        rows = torch.stack(
            [torch.outer(_cosine(i, height), _cosine(j, width)).flatten() for i, j in kept]
        )
        self.size = channels * len(kept)
        self.reach = math.sqrt(channels * height * width)
        self.register_buffer("waves", rows, persistent=False)  # public, so it need not travel
        self.register_buffer("centre", torch.zeros(self.size))
        self.register_buffer("scale", torch.ones(self.size))

    waves: Tensor
    centre: Tensor
    scale: Tensor

    def raw(self, records: Tensor) -> Tensor:
        """Frequencies float32 [n, size] of images [n, c, h, w], neither centred nor scaled."""
        return (records.flatten(2) @ self.waves.T).flatten(1)

    def forward(self, records: Tensor) -> Tensor:
        """Features float32 [n, size] of images [n, c, h, w], of length 1 at most."""
        moved = (self.raw(records) - self.centre) * self.scale
        found: Tensor = moved / moved.norm(dim=1, keepdim=True).clamp_min(1.0)
        return found

    def images(self, features: Tensor) -> Tensor:
        """The smoothest images [n, c, h, w] that have these features [n, size], of any range."""
        plain = features / self.scale + self.centre
        channels = plain.view(len(plain), self.shape[0], -1) @ self.waves
        return channels.view(-1, *self.shape)


class SpectralReleaser(nn.Module):
    """`ConvReleaser`'s bounded code, with dense layers on an image's low frequencies.

    The capacity of the code, its certificate and its noise are as there.

    Args:
        shape: (channels, height, width) of an image.
        features: what is seen of it; its centre and scales stay as they are.
        width: units of the encoder's second layer; twice as many in its first and the decoder's.
        code: numbers of the code.
        capacity: nats that the code may tell of anything.
        low: least value of a released pixel.
        high: greatest value.
        choices: opt-in bits; with 1 an image whose owner minds nothing goes out as it is.
        generator: CPU generator of the weights; ``None`` is seed 0.

    Raises:
        ShapeError: a size is below 1.
        InformationError: the capacity is not above 0 or too large.
    """

    repeats_noise = True
    """A record that is released again goes out with the noise that it had."""
    output_noise_std = 0.0

    def __init__(
        self,
        features: LowFrequencies,
        width: int = 128,
        *,
        code: int = 10,
        capacity: float = 6.0,
        low: float = -1.0,
        high: float = 1.0,
        choices: int = 0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        check_sizes(width=width, code=code)
        self.choices, self.low, self.high = choices, low, high
        self.capacity, self.radius, self.coded = capacity, radius_of(capacity, code), code
        self.noise_shape = (code,)
        size = features.size
        with unset_weights():
            self.enter = nn.Linear(size, 2 * width)
            self.middle = nn.Linear(2 * width, width)
            self.encode = nn.Linear(width, code)
            self.decode = nn.Linear(code, 2 * width)
            self.leave = nn.Linear(2 * width, size)
        initialise(self, generator, "relu")
        self.features = features  # after the layers, whose making empties what there is

    def forward(self, records: Tensor, noise: Tensor, choice: Tensor | None = None) -> Tensor:
        """Released images [n, c, h, w] of images and noise [n, code]."""
        return self.coded_release(records, noise, choice)[1]

    def channel(self, records: Tensor, noise: Tensor, choice: Tensor | None = None) -> Tensor:
        """All that a filtered image's release is computed from, float32 [n, code]."""
        units = F.relu(self.enter(math.sqrt(self.features.size) * self.features(records)))
        answer: Tensor = self.encode(F.relu(self.middle(units)))
        return bounded(answer, self.radius) + noise

    def decoded(self, code: Tensor) -> Tensor:
        """Images [n, c, h, w] of codes [n, code]."""
        features: Tensor = self.leave(F.relu(self.decode(code)))
        smooth = self.features.images(features / math.sqrt(self.features.size))
        return smooth + (smooth.clamp(self.low, self.high) - smooth).detach()

    def coded_release(
        self, records: Tensor, noise: Tensor, choice: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The channel and the release that is made from it."""
        code = self.channel(records, noise)
        return code, chosen(records, self.decoded(code), choice if self.choices else None)


def _cosine(frequency: int, length: int) -> Tensor:
    places = (torch.arange(length, dtype=torch.float64) + 0.5) * math.pi * frequency / length
    wave = torch.cos(places) * math.sqrt((2 if frequency else 1) / length)
    return wave.float()
