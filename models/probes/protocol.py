"""What a probe is: a number a record within a declared range, and how a user's is made of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedlens.foundation.errors import WrongUse
from fedlens.models.annotators import Annotator
from fedlens.models.faults.planting import PlantedFault


@dataclass(frozen=True)
class ProbedRecords:
    """One user's records, in one shape whatever the user holds."""

    images: Tensor
    """float32 [n, channels, height, width] in [-1, 1]; zeros where there is no record."""
    labels: Tensor
    """int64 [n]; zeros where there is no record."""
    present: Tensor
    """bool [n]: whether there is a record; those of the user come first."""
    classes: int
    annotator: Annotator | None = None
    """The public or released network that the question needs; None where it needs none."""


@dataclass(frozen=True)
class Argument:
    """What stands behind a probe's name."""

    fault: PlantedFault | None = None
    """The transformation that it tries."""
    number: int = 0
    """The class that it is about."""


RecordValues = Callable[[ProbedRecords, Argument], Tensor]
"""A number for each record, float32 [n]. The work must not depend on what the records hold."""
UserValue = Literal["mean", "vote"]


@dataclass(frozen=True)
class Probe:
    """A question with a bounded number for an answer.

    Formal guarantees: `of_user` lies in [0, 1] whatever ``value`` gives: what is not finite counts
    as ``low``, what lies outside is moved to the range's end. A user without records has 0. So one
    user added or removed moves the sum over users by 1 at most.

    Raises:
        WrongUse: it declares no finite range, so that nothing bounds a user's part.
    """

    name: str
    says: str
    """The hypothesis for people; ``{}`` stands for the argument."""
    value: RecordValues
    low: float = math.nan
    """Least that a record's number is, declared beforehand."""
    high: float = math.nan
    """Most that it is."""
    user: UserValue = "mean"
    """``mean``: of the user's records, from 0 at ``low`` to 1 at ``high``. ``vote``: 1 where that
    mean, in the range's own measure, is above 0."""
    takes: Literal["nothing", "transformation", "class"] = "nothing"
    """What stands behind its name."""
    needs_model: bool = False
    """Whether it asks a network that knows the classes."""

    def __post_init__(self) -> None:
        finite = all(
            isinstance(end, (int, float)) and math.isfinite(end) for end in (self.low, self.high)
        )
        if not finite or not self.low < self.high:
            raise WrongUse(
                f"probe {self.name!r}: low={self.low!r}, high={self.high!r} bound nothing: declare "
                "the finite range that a record's number lies in"
            )

    @torch.no_grad()
    def of_user(self, records: ProbedRecords, argument: Argument) -> Tensor:
        """The user's number in [0, 1], float32 without dimensions.

        Raises:
            ValueError: the probe gives another shape than one number a record.
        """
        found = self.value(records, argument)
        if found.shape != records.labels.shape:
            raise ValueError(f"probe {self.name!r} must give one number for each record")
        held = torch.nan_to_num(found.float(), self.low, self.high, self.low)
        weights = records.present / records.present.sum().clamp(min=1)
        mean = (held.clamp(self.low, self.high) * weights).sum()
        some = records.present.any().float()
        if self.user == "vote":
            return (mean > 0).float() * some
        return ((mean - self.low) / (self.high - self.low)).clamp(0, 1) * some
