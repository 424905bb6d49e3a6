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
from server.diagnosis.reference import Reference
from studies.benchmarks.bug_draws import BugDraws, Projected

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


def projected(draws: BugDraws, users: Records, planted: Hypothesis | None = None) -> Projected:
    """Each user's updates as the diagnosis sees them, sound or all with a fault, [users, vectors].

    Args:
        draws: the diagnosis.
        users: images and labels, user by user.
        planted: the fault; None for sound users.
    """
    (images, labels), records = users, draws.inquiry.reference.records
    parts, whole = [], AT_ONCE * records
    for first in range(0, len(labels), whole):
        some = slice(first, first + whole)
        held = Reference("users", images[some], labels[some], draws.inquiry.classes)
        evidence = draws.inquiry.observed.evidence
        sums = HeldSums(evidence, held, records, first // records)
        rows = sums.sound() if planted is None else sums.under(planted)
        parts.append(draws.inquiry.geometry.project(rows))
    return np.concatenate(parts)
