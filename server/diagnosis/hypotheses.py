"""What a diagnosis tries: every fault of the library, in each way in which it can show."""

from __future__ import annotations

from dataclasses import dataclass

from models.faults import FAULTS
from models.faults.protocol import Fault, Variant
from models.shapes import ImageShape


@dataclass(frozen=True)
class Hypothesis:
    """A share of the users has this fault."""

    fault: Fault
    variant: Variant

    @property
    def said(self) -> str:
        """The fault in words, with its amount and classes."""
        fault, variant = self.fault, self.variant
        amount = f", {variant.amount:g} {fault.measure}" if fault.measure else ""
        classes = f" (class {', '.join(map(str, variant.chosen))})" if variant.chosen else ""
        return f"{fault.says}{amount}{classes}"

    def of_class(self, number: int) -> Hypothesis:
        """The same fault in records of one class alone."""
        return Hypothesis(self.fault, Variant((number,), self.variant.amount))


def library(shape: ImageShape, classes: int) -> list[Hypothesis]:
    """All hypotheses that data of such a kind can show."""
    return [
        Hypothesis(fault, variant)
        for fault in FAULTS.values()
        if shape[0] > 1 or not fault.colours
        for variant in fault.variants(classes)
    ]
