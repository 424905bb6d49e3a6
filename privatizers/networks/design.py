"""The networks of a privatizer that a federation trains, and how a user's update is laid out.

Server and nodes build the same design from the same public settings. A user's update is one vector
of blocks, in the order of `Design.blocks`: minus each network's gradient, the objective's scalars,
and the shares of the sensitive classes. Each block has its own share of the clip, so that no large
gradient drowns a small number that all need.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedlens.models.classifiers import ConvClassifier, Mlp
from fedlens.privatizers.methods import Scalar, Settings, method_of
from fedlens.privatizers.networks.filters import DenseFilter, UNet
from fedlens.privatizers.networks.releasers import ConvReleaser
from fedlens.privatizers.networks.spectral import LowFrequencies, SpectralReleaser
from fedlens.privatizers.protocol import FILTER, PrivatizerError

SCALARS, SHARES = "scalars", "shares"
SCALAR_SHARE, SENSITIVE_SHARE = 0.03, 0.02
"""Shares of C² that bound the blocks of the scalars and of the sensitive classes' shares."""
PIXELS = (-1.0, 1.0)
DENSE_NOISE = 16
"""Entries of noise beside the dense filter's units."""
CODE = 10
"""Numbers of the code that everything passes in a filter of network ``code`` or ``spectral``."""
FilterNetwork = UNet | DenseFilter | ConvReleaser | SpectralReleaser


@dataclass(frozen=True)
class Block:
    """Some neighbouring entries of an update.

    Attributes:
        name: of a network, or ``scalars`` or ``shares``.
        size: entries.
        bound: L2 bound of the block relative to C; their squares add up to 1 at most.
    """

    name: str
    size: int
    bound: float


@dataclass(frozen=True, eq=False)
class Design:
    """What is trained.

    Attributes:
        networks: by name; ``filter`` is the one that nodes run afterwards.
        scalars: what the objective squares, or takes the logarithm of.
        sensitive_classes: classes of the sensitive attribute.
        blocks: how an update is laid out.
    """

    networks: dict[str, nn.Module]
    scalars: tuple[Scalar, ...]
    sensitive_classes: int
    blocks: tuple[Block, ...]

    @property
    def size(self) -> int:
        """P: length of an update."""
        return sum(block.size for block in self.blocks)

    def split(self, update: Tensor) -> dict[str, Tensor]:
        """The blocks of updates [..., P] by name."""
        parts = torch.split(update, [block.size for block in self.blocks], -1)
        return {block.name: part for block, part in zip(self.blocks, parts, strict=True)}

    def bounds(self, clipping_norm: float) -> dict[str, float]:
        """Each block's L2 bound at clipping norm C."""
        return {block.name: block.bound * clipping_norm for block in self.blocks}

    def public_start(self) -> Tensor:
        """Scalars and uniform shares before the first release, float32 [scalars + classes]."""
        starts = [scalar.start for scalar in self.scalars]
        return torch.tensor([*starts, *[1 / self.sensitive_classes] * self.sensitive_classes])

    def encoded(self, scalars: Tensor, bound: float) -> Tensor:
        """A user's scalars as a block of norm at most ``bound``; its values are linear in them."""
        if not self.scalars:
            return scalars
        low, high = self._ends(scalars)
        return torch.clamp(scalars, low, high) * self._factors(scalars, bound)

    def decoded(self, block: Tensor, bound: float) -> Tensor:
        """Scalars of a mean of blocks."""
        return block / self._factors(block, bound) if self.scalars else block

    def within_ends(self, scalars: Tensor) -> Tensor:
        """Scalars brought back to where a user's can be."""
        return torch.clamp(scalars, *self._ends(scalars)) if self.scalars else scalars

    def _ends(self, like: Tensor) -> tuple[Tensor, Tensor]:
        return like.new_tensor([s.low for s in self.scalars]), like.new_tensor(
            [s.high for s in self.scalars]
        )

    def _factors(self, like: Tensor, bound: float) -> Tensor:
        largest = [max(abs(s.low), abs(s.high)) for s in self.scalars]
        return bound / (math.sqrt(len(largest)) * like.new_tensor(largest))


def design(
    settings: Settings,
    shape: tuple[int, int, int],
    classes: int,
    sensitive_classes: int,
    seed: int = 0,
) -> Design:
    """The networks and the layout that a ``privatizer`` section's settings give.

    Args:
        settings: ``method``, ``alpha``, ``network``, ``width``, ``adversary_width``,
            ``filter_share`` and ``consenting``.
        shape: of an image.
        classes: of the utility.
        sensitive_classes: of the sensitive attribute.
        seed: of the first weights.

    Raises:
        ShapeError: no network is built for such images.
        PrivatizerError: there is one sensitive class only, the method is unknown, or its order too
            small.
    """
    if sensitive_classes < 2:
        raise PrivatizerError(
            f"sensitive_classes={sensitive_classes}: an attribute with one class cannot be hidden"
        )
    method = method_of(settings)
    scalars = method.scalars(settings, classes, sensitive_classes)
    source = torch.Generator().manual_seed(seed)
    networks: dict[str, nn.Module] = {FILTER: filter_network(settings, shape, source)}
    for name, answers in method.classifiers(classes, sensitive_classes).items():
        networks[name] = _classifier(settings, shape, answers, source)
    blocks = _blocks(networks, scalars, sensitive_classes, float(settings["filter_share"]))
    return Design(networks, scalars, sensitive_classes, blocks)


def filter_network(
    settings: Settings, shape: tuple[int, int, int], source: torch.Generator | None = None
) -> FilterNetwork:
    """The filter alone, with first weights from ``source``; those of no meaning without it."""
    given, source = str(settings["network"]), source or torch.Generator().manual_seed(0)
    width, choices = int(settings["width"]), 1 if float(settings["consenting"]) > 0 else 0
    if given == "dense":
        return DenseFilter(shape, width, noise=DENSE_NOISE, limits=PIXELS, generator=source)
    if given == "code":
        low, high = PIXELS
        return ConvReleaser(
            shape,
            width,
            code=CODE,
            capacity=float(settings["capacity"]),
            output_noise_std=float(settings["output_noise_std"]),
            low=low,
            high=high,
            choices=choices,
            generator=source,
        )
    if given == "spectral":
        return spectral_filter(
            settings, LowFrequencies(shape, int(settings["highest_frequency"])), source
        )
    return UNet(shape, width, choices=choices, limits=PIXELS, generator=source)


def spectral_filter(
    settings: Settings, features: LowFrequencies, source: torch.Generator
) -> SpectralReleaser:
    """A filter of network ``spectral`` that sees these features of an image."""
    low, high = PIXELS
    return SpectralReleaser(
        features,
        int(settings["width"]),
        code=CODE,
        capacity=float(settings["capacity"]),
        low=low,
        high=high,
        choices=1 if float(settings["consenting"]) > 0 else 0,
        generator=source,
    )


def _classifier(
    settings: Settings, shape: tuple[int, int, int], answers: int, source: torch.Generator
) -> nn.Module:
    width = int(settings["adversary_width"])
    if settings["network"] == "dense":
        return Mlp(math.prod(shape), answers, (width,), generator=source)
    return ConvClassifier(shape, answers, width, generator=source)


def _blocks(
    networks: Mapping[str, nn.Module],
    scalars: tuple[Scalar, ...],
    sensitive_classes: int,
    share: float,
) -> tuple[Block, ...]:
    left = 1 - SENSITIVE_SHARE - (SCALAR_SHARE if scalars else 0.0)
    each = left * (1 - share) / (len(networks) - 1)
    blocks = [
        Block(name, _entries(net), math.sqrt(left * share if name == FILTER else each))
        for name, net in networks.items()
    ]
    if scalars:
        blocks.append(Block(SCALARS, len(scalars), math.sqrt(SCALAR_SHARE)))
    return (*blocks, Block(SHARES, sensitive_classes, math.sqrt(SENSITIVE_SHARE)))


def _entries(net: nn.Module) -> int:
    return sum(parameter.numel() for parameter in net.parameters())
