"""A residual network that reads released images: stronger than the training adversary's kind."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedlens.models.weights import initialise, unset_weights
from fedlens.privatizers.attacks.attackers.networks import NetworkAttacker, adversary_like

CHANNELS = 24


class ResidualNet(nn.Module):
    """Images [n, c, h, w] to logits [n, classes] (He et al. 2016, small).

    Three stages at a half, a quarter and an eighth of the size, each with a block beside a
    shortcut; batch norms; means over what is left.
    """

    def __init__(
        self, shape: tuple[int, int, int], classes: int, width: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        sizes = [width, 2 * width, 2 * width]
        before = [shape[0], *sizes[:-1]]
        with unset_weights():
            self.down = nn.ModuleList(
                nn.Conv2d(one, two, 3, stride=2, padding=1, bias=False)
                for one, two in zip(before, sizes, strict=True)
            )
            self.first = nn.ModuleList(nn.Conv2d(n, n, 3, padding=1, bias=False) for n in sizes)
            self.second = nn.ModuleList(nn.Conv2d(n, n, 3, padding=1, bias=False) for n in sizes)
            self.answer = nn.Linear(sizes[-1], classes)
        self.norms = nn.ModuleList(nn.BatchNorm2d(n) for n in sizes for _ in range(3))
        initialise(self, generator, "relu")

    def forward(self, images: Tensor) -> Tensor:
        """Logits."""
        maps = images
        for stage, down in enumerate(self.down):
            enter, first, second = self.norms[3 * stage : 3 * stage + 3]
            maps = F.relu(enter(down(maps)))
            inner = F.relu(first(self.first[stage](maps)))
            maps = F.relu(maps + second(self.second[stage](inner)))
        logits: Tensor = self.answer(maps.mean((2, 3)))
        return logits


def residual_like(
    shape: tuple[int, ...], classes: int, width: float, generator: torch.Generator
) -> nn.Module:
    """A residual network for images of at least 8 x 8 pixels, else what filters train against."""
    if len(shape) != 3 or min(shape[1:]) < 8:
        return adversary_like(shape, classes, 2 * width, generator)
    image = (shape[0], shape[1], shape[2])
    return ResidualNet(image, classes, round(CHANNELS * width), generator)


def residual_attacker() -> NetworkAttacker:
    """The attacker of this network, with three times the steps of the small ones."""
    return NetworkAttacker(epochs=3, steps=1500, build=residual_like)
