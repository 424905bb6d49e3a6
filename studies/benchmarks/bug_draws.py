"""Diagnoses by the hundred: what runs would release, drawn without training one.

Each user's clipped updates are computed once, sound and under each fault, by the nodes' own rows,
and only their products with what a diagnosis compares with are kept. A draw then picks who is
faulty and adds noise of the right covariance: a fraction of a second. Simulation only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.faults import FAULTS
from models.faults.protocol import Variant
from server.diagnosis.diagnose import by_fault, judged
from server.diagnosis.evidence import observed_of
from server.diagnosis.expected import ReferenceSums
from server.diagnosis.fitting import joint_shares, selected, unexplained
from server.diagnosis.hypotheses import Hypothesis, library
from server.diagnosis.inquiry import Inquiry
from server.diagnosis.reference import Reference
from server.kept_releases import KeptRelease

AT_ONCE = 10_000
"""Records of users whose updates are computed together."""
Projected = NDArray[np.float64]
"""Each user's updates as the diagnosis sees them, [users, vectors]."""


@dataclass(frozen=True)
class DrawnDiagnosis:
    """What a diagnosis says of one draw."""

    found: tuple[str, ...]
    """Faults, surest first."""
    shares: tuple[float, ...]
    intervals: tuple[tuple[float, float], ...]
    p_value: float
    """Of the omnibus test."""
    fits: bool
    """Whether the reference was believed."""


class BugDraws:
    """A federation whose users' records are known, diagnosed beside a reference."""

    def __init__(
        self,
        releases: Sequence[KeptRelease],
        reference: Reference,
        users: tuple[Tensor, Tensor],
        records: int,
        left_out: str = "",
        *,
        difference: bool = False,
    ) -> None:
        """Compute what is compared with.

        Args:
            releases: how a run asked: all but the values themselves is used.
            reference: what the diagnosis compares with.
            users: their images and labels, user by user.
            records: that each user holds.
            left_out: a fault that the library is without.
            difference: whether an earlier run of as many other users is subtracted.
        """
        from dataclasses import replace

        self._observed = replace(observed_of(releases), difference=difference)
        wanted = [
            one for one in library(reference.shape, reference.classes) if one.fault.name != left_out
        ]
        self.inquiry = Inquiry(self._observed, reference, records, wanted)
        self._reference, self._users, self._records = reference, users, records
        values, vectors = np.linalg.eigh(self.inquiry.geometry.gram)
        self._root = vectors * np.sqrt(np.maximum(values, 0))
        self._names = [one.fault.name for one in wanted]
        self._model = self.inquiry.model()

    @property
    def smallest_detectable(self) -> dict[str, float]:
        """By fault."""
        return by_fault(self.inquiry.hypotheses, self._model)

    def users(
        self,
        fault: str = "",
        chosen: tuple[int, ...] = (),
        amount: float = 0.0,
        most: int | None = None,
    ) -> Projected:
        """Users' updates under a fault; none where it is not named.

        Args:
            fault: its name.
            chosen: the classes that it is about.
            amount: how strong it is; 0 for what is planted where none is said.
            most: how many users' are computed; None: all.
        """
        last = None if most is None else most * self._records
        images, labels = self._users[0][:last], self._users[1][:last]
        whole = AT_ONCE // self._records * self._records
        parts = []
        for first in range(0, len(labels), whole):
            some = slice(first, first + whole)
            held = Reference("users", images[some], labels[some], self._reference.classes)
            sums = ReferenceSums(self._observed.evidence, held, self._records)
            if fault:
                variant = Variant(chosen, amount or FAULTS[fault].amounts[0])
                rows = sums.under(Hypothesis(FAULTS[fault], variant))
            else:
                rows = sums.sound()
            parts.append(self.inquiry.geometry.project(rows))
        return np.concatenate(parts)

    def draw(self, sound: Projected, faulty: Projected, share: float, seed: int) -> DrawnDiagnosis:
        """A run in which a share of all users, picked among the faulty, has a fault."""
        source = np.random.default_rng(seed)
        picked = source.permutation(len(faulty))[: round(share * len(sound))]
        total = sound.sum(0) + (faulty[picked] - sound[picked]).sum(0)
        seen = total / len(sound) + self._root @ source.standard_normal(self._root.shape[1])
        return self._said(seen)

    def _said(self, seen: Projected) -> DrawnDiagnosis:
        model = self.inquiry.geometry.model(seen, difference=self._observed.difference)
        taken = selected(model, self._names)
        places = [place for place, _ in taken]
        rest = unexplained(model, places)
        shares = joint_shares(model, places) if places else None
        return DrawnDiagnosis(
            tuple(self._names[place] for place in places),
            () if shares is None else tuple(float(one) for one in shares.values),
            () if shares is None else tuple(shares.interval(i) for i in range(len(places))),
            rest.p_value,
            judged(self._reference, rest, len(taken)).fits,
        )


def dealt(images: Tensor, labels: Tensor, records: int, seed: int) -> tuple[Tensor, Tensor]:
    """Records in another order, so that each ``records`` of them are a user's."""
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(labels)))
    kept = order[: len(order) // records * records]
    return images[kept], labels[kept]
