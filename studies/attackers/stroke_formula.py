"""The formula attackers: where a source's attribute is computed from its records, so can others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from client.datasets.attributes import SOURCES
from client.datasets.attributes.data import PrivateData
from client.datasets.attributes.thickness import stroke_widths
from studies.attackers.formula import FormulaAttacker
from studies.attackers.ink_formula import THRESHOLDS, InkFormula
from studies.attackers.protocol import Attacker
from studies.attackers.reading_nets import read_images

CHUNK = 500
FINENESS, MOST = 5, 60
"""Answers in a pixel of stroke width, and the greatest of them."""


@dataclass(frozen=True, eq=False)
class StrokeFormula:
    """Stroke width by distance transform, and the digit that it is compared among."""

    reader: nn.Module  # network that reads the digit from a released image
    ink: float = 0.0  # brightness from which on a pixel is ink, of pixels in [-1, 1]

    @torch.no_grad()
    def __call__(self, records: Tensor, side: Tensor | None) -> Tensor:
        """The digit and the width in fifths of a pixel as one answer, int64 [n]."""
        logits = torch.cat([self.reader(part) for part in torch.split(records, CHUNK)])
        images = ((records > self.ink) * 255).to(torch.uint8).numpy()
        widths = torch.from_numpy(stroke_widths(images))
        steps = (FINENESS * widths).round().long().clamp(0, MOST)
        return steps * logits.shape[-1] + logits.argmax(-1)


def formula_of(name: str, reader: nn.Module | None) -> Attacker | None:
    """The attacker that computes the attribute of a source; None where no formula is known.

    Args:
        name: of the source.
        reader: fresh network for the utility of the records that it is to attack.
    """
    kind = name.partition(":")[0]
    formula = SOURCES[kind].formula if kind in SOURCES else ""
    if formula == "coordinate":
        return FormulaAttacker([_second_coordinate])
    if reader is None:
        return None
    if formula == "ink":
        return FormulaAttacker([InkFormula(reader, threshold) for threshold in THRESHOLDS])
    if formula == "strokes":
        return FormulaAttacker([StrokeFormula(reader, ink) for ink in (-0.5, 0.0)])
    return None


def with_formula(
    attackers: Mapping[str, Attacker], attack: PrivateData, source: str, *, steps: int, seed: int
) -> dict[str, Attacker]:
    """The attackers and, where the attribute of images has a formula, the one that computes it.

    Args:
        attackers: by name; the formula's is ``formula``.
        attack: images as the attackers are fitted on, of which a fresh network reads the utility.
        source: whose sensitive attribute it is, as in `formula_of`.
        steps: of that network.
        seed: of it.
    """
    if formula_of(source, nn.Identity()) is None:  # before a network is trained for nothing
        return dict(attackers)
    formula = formula_of(source, read_images(attack, steps, seed))
    return {**attackers, **({} if formula is None else {"formula": formula})}


def _second_coordinate(records: Tensor, side: Tensor | None) -> Tensor:
    """Which corner of the mixture a point is nearest to, by its second coordinate."""
    return (records[:, 1] > 0.5).long()
