"""What a diagnosis tries: every fault of the library, in each way in which it can show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedlens.foundation.names import call_classes
from fedlens.models.faults import FAULTS
from fedlens.models.faults.protocol import Fault, FaultSetting, Variant
from fedlens.models.shapes import ImageShape


@dataclass(frozen=True)
class Hypothesis:
    """A share of the users has this fault."""

    fault: Fault
    variant: Variant

    def described(self, names: Sequence[str] = ()) -> str:
        """The fault in words, with its amount and classes, which ``names`` has names of."""
        fault, variant = self.fault, self.variant
        amount = f", {variant.amount:g} {fault.measure}" if fault.measure else ""
        classes = f" ({call_classes(variant.chosen, names)})" if variant.chosen else ""
        return f"{fault.says}{amount}{classes}"

    def renamed(self, classes: int) -> Tensor | None:
        """The name that each class gets, int64 [classes], where the fault only exchanges names."""
        if not self.fault.renames:
            return None
        setting = FaultSetting(classes, self.variant.chosen, self.variant.amount)
        return self.fault.applied(torch.zeros(classes, 1, 1, 1), torch.arange(classes), setting)[1]

    def of_class(self, number: int) -> Hypothesis:
        """The same fault in records of one class alone."""
        return Hypothesis(self.fault, Variant((number,), self.variant.amount))

    def between(self) -> list[Hypothesis]:
        """The same fault with amounts between its own and the nearest ones of the library."""
        own, known = self.variant.amount, sorted(self.fault.amounts)
        if not self.fault.continuous or own not in known:
            return []
        place = known.index(own)
        near = [known[i] for i in (place - 1, place + 1) if 0 <= i < len(known)]
        steps = [own + share * (other - own) for other in near for share in (0.25, 0.5)]
        return [Hypothesis(self.fault, Variant(self.variant.chosen, step)) for step in steps]


def by_images(hypotheses: Sequence[Hypothesis]) -> list[list[Hypothesis]]:
    """Those together that do the same to images and differ in the classes of which alone."""
    found: dict[tuple[Fault, float], list[Hypothesis]] = {}
    for one in hypotheses:
        found.setdefault((one.fault, one.variant.amount), []).append(one)
    return list(found.values())


def library(shape: ImageShape, classes: int) -> list[Hypothesis]:
    """All hypotheses that data of such a kind can show."""
    return hypotheses_of(FAULTS.values(), shape, classes)


def hypotheses_of(faults: Iterable[Fault], shape: ImageShape, classes: int) -> list[Hypothesis]:
    """The ways in which data of such a kind can show some faults.

    Where records have no labels, or all the same one, that is none about labels.
    """
    return [
        Hypothesis(fault, variant)
        for fault in faults
        if (shape[0] > 1 or not fault.colours) and (classes > 1 or not fault.needs_labels)
        for variant in fault.variants(classes)
    ]
