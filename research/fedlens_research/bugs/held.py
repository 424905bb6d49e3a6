"""What users release, user by user, as a diagnosis sees it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fedlens.diagnosis.evidence import Evidence
from fedlens.diagnosis.expected import Matrix, ReferenceSums
from fedlens.diagnosis.hypotheses import Hypothesis
from fedlens.diagnosis.inquiry import Inquiry
from fedlens.diagnosis.reference import Reference
from fedlens.models.faults.protocol import Records

AT_ONCE = 250
"""Users whose updates are computed together."""


class HeldSums(ReferenceSums):
    """Users who hold their own records in order; what is random in a fault is their own too.

    A reference is dealt out anew, the same way each time: as many users more would hold others'
    records, and would share their randomness with the reference that they are compared with.
    """

    def __init__(
        self, evidence: Sequence[Evidence], held: Reference, records: int, first: int
    ) -> None:
        """Take users up from number ``first`` on."""
        super().__init__(evidence, held, records)
        count = len(held.labels) // records
        self._places = torch.arange(count * records).view(count, records)
        self._first = first

    def _applied(
        self, hypothesis: Hypothesis, images: Tensor, labels: Tensor, user: int
    ) -> tuple[Tensor, Tensor]:
        return super()._applied(hypothesis, images, labels, _OTHERS + self._first + user)


_OTHERS = 1_000_000
"""Users are numbered from here on, beyond any reference's."""


class Crowd:
    """Users in groups, whose sums are all that is kept; some may be asked for with a fault."""

    def __init__(self, inquiry: Inquiry, users: Records, kept: int, group: int = 1) -> None:
        """Compute all users' updates without a fault.

        Args:
            inquiry: how they are looked at.
            users: images and labels, user by user.
            kept: how many users, the first ones, may be asked for with a fault.
            group: users whose updates are added up, for runs pick whole groups: as they are dealt
                out by chance, a mean over groups is a mean over users. Others are left out.
        """
        (images, labels), self._inquiry = users, inquiry
        self._records, self._group = inquiry.reference.records, group
        self._blocks: list[HeldSums] = []
        parts, whole = [], max(1, AT_ONCE // group) * group * self._records
        ends = len(labels) // (group * self._records) * group * self._records
        for first in range(0, ends, whole):
            some = slice(first, min(first + whole, ends))
            held = Reference("users", images[some], labels[some], inquiry.classes)
            number = first // self._records
            block = HeldSums(inquiry.observed.evidence, held, self._records, number)
            parts.append(self._grouped(block.sound()))
            if number < kept:
                self._blocks.append(block)
        self.sound: Matrix = np.concatenate(parts)
        """Each group's mean update over the noise, float32 [groups, P]."""

    def faulty(self, planted: Hypothesis) -> Matrix:
        """The same of those that may have a fault, were all of them to have it."""
        return np.concatenate([self._grouped(block.under(planted)) for block in self._blocks])

    def _grouped(self, updates: Matrix) -> Matrix:
        found: Matrix = updates.reshape(-1, self._group, updates.shape[1]).mean(1)
        return found
