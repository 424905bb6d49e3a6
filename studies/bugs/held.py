"""What users release, user by user, as a diagnosis sees it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from models.faults.protocol import Records
from server.diagnosis.evidence import Evidence
from server.diagnosis.expected import ReferenceSums
from server.diagnosis.hypotheses import Hypothesis
from server.diagnosis.inquiry import Inquiry
from server.diagnosis.reference import Reference
from studies.bugs.drawing import Projected

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

    def once(self, hypothesis: Hypothesis) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        """Users' updates where all have a fault, without keeping rows for another time."""
        found = self.under(hypothesis)
        self._faulty.clear()
        return found

    def _applied(
        self, hypothesis: Hypothesis, images: Tensor, labels: Tensor, user: int
    ) -> tuple[Tensor, Tensor]:
        return super()._applied(hypothesis, images, labels, _OTHERS + self._first + user)


_OTHERS = 1_000_000
"""Users are numbered from here on, beyond any reference's."""


class Crowd:
    """Users in blocks; the rows of those that may have a fault are kept."""

    def __init__(self, inquiry: Inquiry, users: Records, kept: int) -> None:
        """Compute all users' updates without a fault.

        Args:
            inquiry: how they are looked at.
            users: images and labels, user by user.
            kept: how many users, the first ones, may be asked for with a fault.
        """
        (images, labels), self._inquiry = users, inquiry
        self._records = inquiry.reference.records
        self._blocks: list[HeldSums] = []
        parts, whole = [], AT_ONCE * self._records
        for first in range(0, len(labels), whole):
            some = slice(first, first + whole)
            held = Reference("users", images[some], labels[some], inquiry.classes)
            number = first // self._records
            block = HeldSums(inquiry.observed.evidence, held, self._records, number)
            parts.append(inquiry.geometry.project(block.sound()))
            if number < kept:
                self._blocks.append(block)
        self.sound: Projected = np.concatenate(parts)
        """Each user's updates as the diagnosis sees them, [users, vectors]."""

    def faulty(self, planted: Hypothesis) -> Projected:
        """The same of those that may have a fault, were all of them to have it."""
        project = self._inquiry.geometry.project
        return np.concatenate([project(block.once(planted)) for block in self._blocks])
