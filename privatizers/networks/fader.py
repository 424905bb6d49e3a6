"""FaderNet: an autoencoder whose code is to carry no attribute, which the decoder is told instead.

Lample et al. 2017, small. As a filter it is the baseline of Bertran et al. 2019 (section 5.3): the
image is encoded, then decoded with an attribute that is not the person's own. Its code hides the
attribute from the discriminator that it was trained against, and its *image* need not hide
it; the paper puts a U-Net behind it.
"""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedlens.models.classifiers import check_image
from fedlens.models.shapes import check_classes
from fedlens.models.weights import initialise, unset_weights


class FaderNet(nn.Module):
    """Encoder, and decoder that is told the attribute; as a filter it tells the decoder another.

    Args:
        shape: (channels, height, width) of an image, any sides of at least 8 pixels.
        prior: shares of the attribute's classes, float [classes].
        width: channels of the first convolution; twice and four times as many further down.
        drawn: tell the decoder an attribute drawn from the prior by the noise, so that what an
            image shows says nothing of its owner; otherwise the prior itself, a face between.
        limits: least and greatest value of a released pixel, or None for no limits.
        generator: CPU generator of the weights; ``None`` is seed 0.

    Raises:
        ShapeError: on a shape or number of classes that is not supported.
    """

    prior: Tensor

    def __init__(
        self,
        shape: tuple[int, int, int],
        prior: Tensor,
        width: int = 8,
        *,
        drawn: bool = False,
        limits: tuple[float, float] | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.shape, self.drawn, self.limits = check_image(shape), drawn, limits
        self.classes = check_classes(len(prior))
        self.noise_shape: tuple[int, ...] = (1,) if drawn else ()
        channels, told = self.shape[0], self.classes
        with unset_weights():
            self.down1 = nn.Conv2d(channels, width, 3, stride=2, padding=1)
            self.down2 = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
            self.code = nn.Conv2d(2 * width, 4 * width, 3, padding=1)
            self.up1 = nn.Conv2d(4 * width + told, 2 * width, 3, padding=1)
            self.up2 = nn.Conv2d(2 * width + told, width, 3, padding=1)
            self.paint = nn.Conv2d(width + told, channels, 3, padding=1)
        initialise(self, generator, "relu")
        self.register_buffer("prior", prior.float() / prior.sum())

    @property
    def code_shape(self) -> tuple[int, int, int]:
        """(channels, height, width) of a code."""
        _, height, breadth = self.shape
        return self.code.out_channels, -(-height // 4), -(-breadth // 4)

    def forward(
        self,
        records: Tensor,
        noise: Tensor,
        choice: Tensor | None = None,
        attribute: Tensor | None = None,
    ) -> Tensor:
        """Released images [n, c, h, w].

        Args:
            records: images [n, c, h, w].
            noise: float32 [n, 1] where an attribute is drawn, else not looked at.
            choice: not looked at: the attribute of everybody is hidden.
            attribute: float32 [n, classes], told to the decoder; None: as the filter does.
        """
        if attribute is None:
            attribute = self.shown(noise) if self.drawn else self.prior.expand(len(records), -1)
        return self.decode(self.encode(records), attribute)

    def encode(self, records: Tensor) -> Tensor:
        """Codes [n, *code_shape] of images."""
        maps = F.relu(self.down2(F.relu(self.down1(records))))
        codes: Tensor = torch.tanh(self.code(maps))
        return codes

    def decode(self, codes: Tensor, attribute: Tensor) -> Tensor:
        """Images of codes, with attributes float32 [n, classes]."""
        _, height, breadth = self.shape
        half = (-(-height // 2), -(-breadth // 2))
        maps = F.relu(self.up1(_told(codes, attribute)))
        maps = F.relu(self.up2(_told(F.interpolate(maps, size=half), attribute)))
        images: Tensor = self.paint(_told(F.interpolate(maps, size=(height, breadth)), attribute))
        return images if self.limits is None else images.clamp(*self.limits)

    def shown(self, noise: Tensor) -> Tensor:
        """Attributes drawn from the prior by standard normal noise [n, 1], one-hot [n, classes]."""
        levels = torch.special.ndtr(noise)
        above = torch.cumsum(self.prior, 0)
        below = above - self.prior
        shown: Tensor = ((levels > below) & (levels <= above)).float()
        return shown


class Chained(nn.Module):
    """One filter after another; the first is held as it is, the second learns.

    Args:
        first: a trained filter, frozen from here on.
        second: a filter of what the first releases.
    """

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first.requires_grad_(False), second
        self.sizes = tuple(_entries(net) for net in (first, second))
        self.noise_shape = (sum(self.sizes),)
        self.choices = max(int(getattr(net, "choices", 0)) for net in (first, second))

    def forward(self, records: Tensor, noise: Tensor, choice: Tensor | None = None) -> Tensor:
        """Released records of records and noise [n, entries of both filters' noise]."""
        released = self.first(records, self._part(noise, self.first, 0), choice)
        answer: Tensor = self.second(released, self._part(noise, self.second, 1), choice)
        return answer

    def _part(self, noise: Tensor, net: nn.Module, place: int) -> Tensor:
        start = sum(self.sizes[:place])
        own = noise[:, start : start + self.sizes[place]]
        shape: tuple[int, ...] = getattr(net, "noise_shape", ())
        return own.reshape(len(noise), *shape) if shape else own


def _entries(net: nn.Module) -> int:
    shape: tuple[int, ...] = getattr(net, "noise_shape", ())
    return prod(shape) if shape else 0


def _told(maps: Tensor, attribute: Tensor) -> Tensor:
    planes = attribute[:, :, None, None].expand(-1, -1, *maps.shape[2:])
    return torch.cat([maps, planes], 1)
