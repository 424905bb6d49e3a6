"""Diagnoses of what runs would release, at any size of the noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedlens.diagnosis.diagnose import by_fault, judged
from fedlens.diagnosis.fitting import joint_shares, least_visible, selected, unexplained
from fedlens.diagnosis.hypotheses import Hypothesis
from fedlens.diagnosis.inquiry import Inquiry
from fedlens.diagnosis.reference import Reference

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
    """An inquiry as if there were other users and the noise of all releases were larger.

    Everything is in units of the noise: users' updates, what they are compared with, and so the
    products of both, which are smaller by the factor's square.
    """

    def __init__(
        self, inquiry: Inquiry, reference: Reference, noise: float, users: int, group: int = 1
    ) -> None:
        """Take up what depends on noise and users.

        Args:
            inquiry: with noise 1; nothing may be added to it later.
            reference: that it compares with.
            noise: how many times the noise is larger.
            users: of a run.
            group: of so many people, of whom all take part or none, and all have a fault or none.
        """
        gram, self._factors = inquiry.geometry.gram, inquiry.factors(users, noise)
        self._inquiry, self._reference = inquiry, reference
        self._noise, self._users, self._group = noise, users, group
        self._geometry = inquiry.geometry.rescaled(self._factors)
        values, vectors = np.linalg.eigh(gram)
        self._root = self._factors[:, None] * vectors * np.sqrt(np.maximum(values, 0))
        self._names = [one.fault.name for one in inquiry.hypotheses]

    @property
    def smallest_detectable(self) -> dict[str, float]:
        """By fault, as the diagnosis itself says."""
        model = self._geometry.model(np.zeros(len(self._factors)))
        return by_fault(self._inquiry, model)

    def least_visible(self, planted: Hypothesis) -> float:
        """The share of users below which no reader of these sums could find a fault."""
        place = self._inquiry.hypotheses.index(planted)
        return least_visible(self._inquiry.geometry.size(place) / self._noise**2)

    def draw(
        self, sound: Projected, faulty: Projected, share: float, seed: int, without: str = ""
    ) -> DrawnDiagnosis:
        """A run whose users are picked out of all people, of whom a share has a fault.

        Args:
            sound: all people's mean updates at noise 1, by group, [groups, vectors].
            faulty: of the first ones with the fault, [some, vectors].
            share: of the users that is picked among the faulty; as many people as there are users
                are an earlier run's where that is what is compared with.
            seed: of who takes part, who has the fault, and of the noise.
            without: a fault that the library is to lack.
        """
        source, users = np.random.default_rng(seed), self._users // self._group
        ill = source.permutation(len(faulty))[: round(share * users)]
        well = source.permutation(np.setdiff1d(np.arange(len(sound)), ill))
        own = users - len(ill)
        total = sound[well[:own]].sum(0) + faulty[ill].sum(0)
        if self._inquiry.observed.difference:
            total = total - sound[well[own : own + users]].sum(0)
        noise = self._root @ source.standard_normal(self._root.shape[1])
        return self._said(self._factors * total / users / self._noise + noise, without)

    def _said(self, seen: Projected, without: str) -> DrawnDiagnosis:
        difference = self._inquiry.observed.difference
        model = self._geometry.model(seen, difference=difference)
        kept = [place for place, name in enumerate(self._names) if name != without or not name]
        names, model = [self._names[place] for place in kept], model.only(kept)
        count = sum(place < self._inquiry.named for place in kept)
        taken = selected(model, names, count)
        places = [place for place, _ in taken]
        rest = unexplained(model, places, count)
        shares = joint_shares(model, places) if places else None
        return DrawnDiagnosis(
            tuple(names[place] for place in places),
            () if shares is None else tuple(float(one) for one in shares.values),
            () if shares is None else tuple(shares.interval(i) for i in range(len(places))),
            rest.p_value,
            judged(self._reference, rest, len(taken)).fits,
        )
