"""What the rule of annotated MNIST measures of an image: the ink in the row of its digit."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from client.datasets.attributes.thickness import row_widths

THRESHOLDS = (-0.9, 0.0)  # Pixels above one of these count as ink


@dataclass(frozen=True, eq=False)
class InkFormula:
    """What the annotated-MNIST rule measures: the ink in the row of an image's digit."""

    reader: nn.Module  # network that reads the digit from a released image
    threshold: float  # pixels above it are ink

    @torch.no_grad()
    def __call__(self, records: Tensor, side: Tensor | None) -> Tensor:
        """The digit and its row's width as one answer, int64 [n]."""
        digits = torch.cat([self.reader(part).argmax(-1) for part in torch.split(records, 500)])
        widths = row_widths((records > self.threshold).numpy(), digits.numpy())
        return torch.from_numpy(widths) * 10 + digits
