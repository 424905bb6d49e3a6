"""Adversaries: what a released series tells, step by step; and what a noisy code tells."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedlens.models.shapes import check_classes
from fedlens.models.weights import initialise, unset_weights
from fedlens.privatizers.networks.recurrent import build_lstm, check_sizes, each_step


class LstmAdversary(nn.Module):
    """An LSTM that reads each step's sensitive value from the series up to that step, or from all.

    Jafarzadeh Asl et al. 2023, section IV-D, has three layers of 32 cells; its factorisation
    (equation 7) makes the adversary causal. 21,442 parameters for one channel and two classes.
    An adversary with a whole day of
    released values also knows what came after a step, and reads more: ``both_ways``.

    Args:
        inputs: channels of a series.
        classes: number of classes of the sensitive attribute.
        hidden: units of each layer.
        layers: layers one upon the other.
        side: entries of side information, given beside each step.
        both_ways: also read the series from its end; twice as many cells.
        generator: CPU generator of the weights; ``None`` is seed 0.

    Raises:
        ShapeError: there is no input or class.
    """

    def __init__(
        self,
        inputs: int,
        classes: int,
        *,
        hidden: int = 32,
        layers: int = 3,
        side: int = 0,
        both_ways: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        check_sizes(inputs=inputs, hidden=hidden, layers=layers)
        source = generator if generator is not None else torch.Generator().manual_seed(0)
        with unset_weights():
            self.head = nn.Linear(hidden * (1 + both_ways), check_classes(classes))
        initialise(self, source, "linear")
        self.lstm = build_lstm(inputs + side, hidden, layers, source, both_ways=both_ways)

    def forward(self, series: Tensor, side: Tensor | None = None) -> Tensor:
        """Logits float32 [n, T, classes] of series [n, T, inputs] and what else is known.

        The logits of a step depend on it and the steps before (``both_ways``: on all steps), and on
        the side information float32 [n, k] or [n, T, k].
        """
        seen = series if side is None else torch.cat([series, each_step(side, series.shape[1])], 2)
        logits: Tensor = self.head(self.lstm(seen)[0])
        return logits


class CodeAdversary(nn.Module):
    """Reads a noisy code: residual blocks of two layers each (He et al. 2016).

    For a code of 10 numbers, 128 units and two blocks: 67,714 parameters.

    Args:
        inputs: numbers of the code.
        classes: number of classes of the sensitive attribute.
        hidden: units of each layer.
        blocks: residual blocks.
        generator: CPU generator of the weights; ``None`` is seed 0.

    Raises:
        ShapeError: there is no input or class.
    """

    def __init__(
        self,
        inputs: int,
        classes: int,
        *,
        hidden: int = 128,
        blocks: int = 2,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        check_sizes(inputs=inputs, hidden=hidden, blocks=blocks)
        with unset_weights():
            self.enter = nn.Linear(inputs, hidden)
            self.first = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(blocks))
            self.second = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(blocks))
            self.head = nn.Linear(hidden, check_classes(classes))
        initialise(self, generator, "relu")

    def forward(self, codes: Tensor, side: Tensor | None = None) -> Tensor:
        """Logits float32 [n, classes] of codes [n, inputs], side information included in them."""
        units = self.enter(codes if side is None else torch.cat([codes, side], 1))
        for first, second in zip(self.first, self.second, strict=True):
            units = units + second(F.relu(first(F.relu(units))))
        logits: Tensor = self.head(F.relu(units))
        return logits
