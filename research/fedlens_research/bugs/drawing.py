"""Diagnoses of what runs would release, at any size of the noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedlens.diagnosis.agreement import disagreement, parts_of
from fedlens.diagnosis.diagnose import by_fault, explains, judged, sure_names
from fedlens.diagnosis.expected import Matrix
from fedlens.diagnosis.fitting import (
    joint_shares,
    least_visible,
    left_over,
    other_changes,
    selected,
    unexplained,
)
from fedlens.diagnosis.hypotheses import Hypothesis
from fedlens.diagnosis.inquiry import Inquiry
from fedlens.diagnosis.reference import Reference

Projected = NDArray[np.float64]
"""A release as the diagnosis sees it, [vectors]."""


@dataclass(frozen=True)
class DrawnDiagnosis:
    """What a diagnosis says of one draw."""

    found: tuple[str, ...]
    """Faults with a name, surest first."""
    shares: tuple[float, ...]
    intervals: tuple[tuple[float, float], ...]
    p_value: float
    """Of the omnibus test."""
    fits: bool
    """Whether the reference was believed."""
    surest: str = ""
    """The fault that fits best, with a name or without; empty where none was needed."""
    like: str = ""
    """The fault that something without a name looks most like; empty where all has one."""


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
        self._factors = inquiry.factors(users, noise)
        self._inquiry, self._reference = inquiry, reference
        self._noise, self._users, self._group = noise, users, group
        self._geometry = inquiry.geometry.rescaled(self._factors)
        self._starts, self._others = parts_of(inquiry), set(inquiry.others)
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
        self, sound: Matrix, faulty: Matrix, share: float, seed: int, without: str = ""
    ) -> DrawnDiagnosis:
        """A run whose users are picked out of all people, of whom a share has a fault.

        Args:
            sound: all people's mean updates at noise 1, by group, [groups, P].
            faulty: of the first ones with the fault, [some, P].
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
        noise = source.standard_normal(len(total), dtype=np.float32)
        return self._said((total / users / self._noise + noise).astype(np.float32), without)

    def _said(self, release: Matrix, without: str) -> DrawnDiagnosis:
        difference = self._inquiry.observed.difference
        seen: Projected = self._factors * self._inquiry.geometry.project(release[None])[0]
        model = self._geometry.model(seen, difference=difference)
        kept = [place for place, name in enumerate(self._names) if name != without or not name]
        names, model = [self._names[place] for place in kept], model.only(kept)
        count = sum(place < self._inquiry.named for place in kept)
        taken = selected(model, names, count)
        places = [place for place, _ in taken]
        rest = unexplained(model, places, count)
        fits = judged(self._reference, rest, len(taken)).fits
        agreed = self._agreed([kept[place] for place in places], release)
        sure = fits and explains(rest.p_value, agreed)
        shares = joint_shares(model, places) if places else None
        named: list[int] = []
        if shares is not None and sure:
            kinds = [self._inquiry.hypotheses[kept[place]].fault.kind for place in places]
            others = [i for i, place in enumerate(kept) if place in self._others]
            other = other_changes(model, places, others)
            names_hold = sure_names([q for _, q in taken], shares.values.tolist(), kinds, other)
            named = [i for i, holds in enumerate(names_hold) if holds]
        weak = [place for i, place in enumerate(places) if i not in named]
        z = left_over(model, []).z[:count]
        like = names[weak[0] if weak else int(np.argmax(z))]
        return DrawnDiagnosis(
            tuple(names[places[i]] for i in named),
            tuple(float(shares.values[i]) for i in named) if shares else (),
            tuple(shares.interval(i) for i in named) if shares else (),
            rest.p_value,
            fits,
            names[places[0]] if places else "",
            like if fits and not (sure and len(named) == len(taken)) else "",
        )

    def _agreed(self, places: list[int], release: Matrix) -> float:
        """By p value, a test that all parts of the sums tell the same shares."""
        if not places:
            return 1.0
        difference = self._inquiry.observed.difference
        parts = self._geometry.parts(places, release, self._starts, difference=difference)
        return disagreement(parts, len(places))
