"""Diagnoses of what runs would release, at any size of the noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from server.diagnosis.diagnose import by_fault, judged
from server.diagnosis.fitting import joint_shares, least_visible, selected, unexplained
from server.diagnosis.hypotheses import Hypothesis
from server.diagnosis.inquiry import Inquiry
from server.diagnosis.reference import Reference

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


class NoisyDraws:
    """An inquiry as if the noise of all releases were larger by one factor.

    Everything is in units of the noise: users' updates, what they are compared with, and so the
    products of both, which are smaller by the factor's square.
    """

    def __init__(self, inquiry: Inquiry, reference: Reference, noise: float) -> None:
        """Take up what depends on the noise.

        Args:
            inquiry: with noise 1; nothing may be added to it later.
            reference: that it compares with.
            noise: how many times the noise is larger.
        """
        gram = inquiry.geometry.gram
        self._inquiry, self._reference, self._noise = inquiry, reference, noise
        self._geometry = inquiry.geometry.rescaled(np.full(len(gram), 1 / noise))
        values, vectors = np.linalg.eigh(gram)
        self._root = vectors * np.sqrt(np.maximum(values, 0)) / noise
        self._names = [one.fault.name for one in inquiry.hypotheses]

    @property
    def smallest_detectable(self) -> dict[str, float]:
        """By fault, as the diagnosis itself says."""
        model = self._inquiry.with_users(self._inquiry.observed.users, self._noise)
        return by_fault(self._inquiry, model)

    def least_visible(self, planted: Hypothesis) -> float:
        """The share of users below which no reader of these sums could find a fault."""
        place = self._inquiry.hypotheses.index(planted)
        return least_visible(self._inquiry.geometry.size(place) / self._noise**2)

    def draw(
        self, sound: Projected, faulty: Projected, users: int, share: float, seed: int
    ) -> DrawnDiagnosis:
        """A run of so many users out of all, of whom a share has a fault.

        Args:
            sound: all people's updates at noise 1, [people, vectors].
            faulty: of the first ones with the fault, [some, vectors].
            users: of the run, picked among all people; as many others are an earlier run's users
                where that is what is compared with.
            share: of the users that is picked among the faulty.
            seed: of who takes part, who has the fault, and of the noise.
        """
        source = np.random.default_rng(seed)
        ill = source.permutation(len(faulty))[: round(share * users)]
        well = source.permutation(np.setdiff1d(np.arange(len(sound)), ill))
        own = users - len(ill)
        total = sound[well[:own]].sum(0) + faulty[ill].sum(0)
        if self._inquiry.observed.difference:
            total = total - sound[well[own : own + users]].sum(0)
        noise = self._root @ source.standard_normal(self._root.shape[1])
        return self._said(total / users / self._noise**2 + noise)

    def _said(self, seen: Projected) -> DrawnDiagnosis:
        difference = self._inquiry.observed.difference
        model = self._geometry.model(seen, difference=difference)
        taken = selected(model, self._names, self._inquiry.named)
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
