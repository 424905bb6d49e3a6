"""A data card from released sums: each histogram with its noise and its users' chance.

A release is the noised sum of users' vectors over the fixed number of enrolled users, so all here
is post-processing. With H the released bins of a statistic of weight w, σ the deviation of their
noise and M the mean of what users' cuts left of them (1 where nobody was cut or is absent):

- of records: shares are H / (w M), moved alike so that they add up to 1. M is not known; it is the
  sum over bins, averaged over all statistics that send every bin. A user's pictures that are all
  alike are cut more, so such users count for less: shares are of pictures weighted so.
- of users: shares are H / w of all enrolled users; what they leave of 1 holds no records.

Two errors are kept apart. That of the noise is known. That of the draw of users, for whom these
users stand for, is bounded: shares x of one user are a point of a simplex, where x xᵀ ≼ diag(x), so
their covariance over users is at most diag(p) − p pᵀ, whatever users hold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedlens.foundation.errors import WrongUse
from fedlens.models.cards.statistics import CardLayout, Statistic, card_layout
from fedlens.server.round.releases import ArchivedRelease

Floats = NDArray[np.float64]
KIND = "card"
LEAST_MASS = 4.0
"""Standard deviations that M has to be above 0 for shares of records to mean anything."""
WIDE = 1.959964


@dataclass(frozen=True)
class Quantity:
    """One number that stands for a histogram, with an interval by noise and draw together."""

    says: str
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Histogram:
    """One statistic of a card."""

    statistic: Statistic
    shares: Floats
    """[bins], adding up to 1 where the statistic is closed; noise may take single ones out of
    [0, 1]."""
    noise: Floats
    """[bins, bins], covariance by the noise."""
    draw: Floats
    """[bins, bins], bound of the covariance by the draw of the users."""
    users: float
    """How many that bound goes by."""

    @property
    def errors(self) -> Floats:
        """Half of each bin's 95% interval, both errors together."""
        return WIDE * np.sqrt(np.diag(self.noise) + np.diag(self.draw))

    def quantity(self, place: int | None = None, reach: float = WIDE) -> Quantity:
        """Its median, the share of the bin that stands for it, or the share of one bin.

        The median's interval goes from edge to edge of the bins in which it may lie, for where in
        a bin its numbers are nobody knows; the value is as if they were spread over it. A mean
        would have the noise of all bins, however far away.

        Args:
            place: the bin whose share is meant; None for the statistic's own quantity.
            reach: half of the interval, in standard deviations.

        Raises:
            WrongUse: there is no such bin, or the bins have names and none stands for all.
        """
        one = self.statistic
        if place is None and one.numeric:
            return self._median(reach)
        place = one.told if place is None else place
        if place is None or not 0 <= place < one.bins:
            asked = one.name if place is None else f"{one.name}[{place}]"
            raise WrongUse(f"{asked}: name one of its bins, {one.name}[0] to [{one.bins - 1}]")
        low, high = self._share_between(place, reach)
        says = f"share of {one.name} {bin_names(one)[place]}"
        return Quantity(says, float(self.shares[place]), low, high)

    def _share_between(self, place: int, reach: float) -> tuple[float, float]:
        """Shares from which that of the bin is off by less than ``reach`` deviations.

        By the deviation at the share itself or at the other one (Wilson's interval, 1927, with the
        noise), whichever is wider: a rare share's own says too little of what is more common, and
        that of a rarer one too little of what few users hold.
        """
        share, part = float(self.shares[place]), reach**2 / self.users
        own = float(self.errors[place]) / WIDE * reach
        noise = (1 + part) * reach**2 * float(self.noise[place, place])
        half = math.sqrt(max(0.0, part * share * (1 - share) + part**2 / 4 + noise))
        low, high = ((share + part / 2 + side * half) / (1 + part) for side in (-1, 1))
        return min(low, share - own), max(high, share + own)

    def _median(self, reach: float) -> Quantity:
        """Where as much lies below as above, of all that lies in the bins.

        What lies below an edge less what lies above is linear in the shares, so its error is exact.
        """
        bins = len(self.shares)
        sides = (np.tril(np.ones((bins + 1, bins)), -1) - 0.5) * 2
        less = sides @ self.shares
        spread = np.einsum("ij,jk,ik->i", sides, self.noise + self.draw, sides)
        half = reach * np.sqrt(np.clip(spread, 0, None))
        less[0], less[-1] = -abs(less[0]), abs(less[-1])
        half[0] = half[-1] = 0.0  # nothing lies below the first edge, everything below the last
        edges = np.array(self.statistic.edges)
        low = edges[max(_reached(less + half) - 1, 0)]
        high = edges[::-1][max(_reached((half - less)[::-1]) - 1, 0)]
        rising = (np.maximum.accumulate(less) + np.minimum.accumulate(less[::-1])[::-1]) / 2
        value = min(high, max(low, _first(edges, rising)))
        return Quantity(f"median of {self.statistic.name}", value, float(low), float(high))


def _first(edges: Floats, less: Floats) -> float:
    """Where a line through numbers at the edges first reaches 0."""
    at = _reached(less)
    if at == 0:
        return float(edges[0])
    start, end = less[at - 1], less[at]
    return float(edges[at - 1] + (edges[at] - edges[at - 1]) * -start / (end - start))


def _reached(less: Floats) -> int:
    """The first edge at which numbers are 0 or above."""
    return int(np.argmax(less >= 0))


@dataclass(frozen=True)
class Card:
    """What a release says of its users."""

    histograms: tuple[Histogram, ...]
    users: float
    """Expected users behind the release, q N."""
    mass: float
    """M: what is left of users' histograms of records, those who are absent among them."""
    mass_noise: float
    """Standard deviation of M by the noise."""
    deviation: float
    """σ, of the noise in each coordinate of the release, relative to the clipping norm's C / N."""

    def __getitem__(self, name: str) -> Histogram:
        """The histogram of a statistic.

        Raises:
            WrongUse: the card has none of that name.
        """
        for one in self.histograms:
            if one.statistic.name == name:
                return one
        known = ", ".join(one.statistic.name for one in self.histograms)
        raise WrongUse(f"{name!r} is not in this card: choose of {known}")


def card_of(releases: Sequence[ArchivedRelease]) -> Card:
    """The card that a run released; several rounds are averaged.

    Raises:
        WrongUse: it released none, one of another version, or one that the noise drowns.
    """
    found = [one for one in releases if one.request.kind == KIND]
    if not found:
        raise WrongUse(
            "the run kept no release of a task of kind 'card': ask for one with `fedlens card`, or "
            "schedule one"
        )
    layout = card_layout(found[0].shape, found[0].classes)
    if any(one.release.shape != (layout.size,) for one in found):
        raise WrongUse("the card was made by another version of fedlens: read it with that one")
    if not all(np.isfinite(one.release).all() and 0 < one.deviation < math.inf for one in found):
        raise WrongUse("the card's release is damaged: restore it from a backup")
    mean = np.mean([one.release for one in found], axis=0)
    deviation = math.sqrt(sum(one.deviation**2 for one in found)) / len(found)
    users = found[0].request.mechanism.denominator
    return estimate_card(mean, deviation, users, layout)


def estimate_card(mean: Floats, deviation: float, users: float, layout: CardLayout) -> Card:
    """The card of a noised mean of users' vectors.

    Args:
        mean: float64 [layout.size].
        deviation: standard deviation of the noise in each coordinate, above 0.
        users: expected users that the mean is over.
        layout: which statistics.

    Raises:
        WrongUse: the noise drowns it.
    """
    mass, mass_noise = _mass(mean, deviation, layout)
    if mass < LEAST_MASS * mass_noise:
        raise WrongUse(
            f"the card says nothing: what users added to it, {mass:.2g} of a whole, is below "
            f"{LEAST_MASS:g} standard deviations of its noise: ask more users, or give a larger "
            "epsilon"
        )
    histograms = []
    for one in layout.statistics:
        own = mean[layout.places[one.name]] / one.weight
        noise = deviation / one.weight
        if one.of_users:
            shares, covariance, counted = *_implied(one, own, noise), users
        else:
            shares, covariance = _of_records(one, own / mass, noise / mass, mass_noise / mass)
            counted = users * min(1.0, mass)
        histograms.append(Histogram(one, shares, covariance, _draw(shares, counted), counted))
    return Card(tuple(histograms), users, mass, mass_noise, deviation)


def _mass(mean: Floats, deviation: float, layout: CardLayout) -> tuple[float, float]:
    """M and its standard deviation, each whole histogram of records weighted by its precision."""
    whole = [one for one in layout.statistics if not one.of_users and one.implied is None]
    sums = np.array([mean[layout.places[one.name]].sum() / one.weight for one in whole])
    precisions = np.array([one.weight**2 / one.bins for one in whole])
    total = float(precisions.sum())
    return float(precisions @ sums) / total, deviation / math.sqrt(total)


def _implied(one: Statistic, own: Floats, noise: float) -> tuple[Floats, Floats]:
    """Shares, of a bin that is not sent what the others leave, and their covariance."""
    shares, spread = np.zeros(one.bins), np.zeros((one.bins, len(own)))
    spread[list(one.sent), range(len(own))] = 1.0
    shares[list(one.sent)] = own
    if one.implied is not None:
        spread[one.implied] = -1.0
        shares[one.implied] = 1.0 - own.sum()
    return shares, noise**2 * spread @ spread.T


def _of_records(
    one: Statistic, own: Floats, noise: float, mass_noise: float
) -> tuple[Floats, Floats]:
    """The same of records; the error of M, which is relative, moves all shares together."""
    if one.implied is not None:
        shares, covariance = _implied(one, own, noise)
        moved = shares.copy()
        moved[one.implied] -= 1.0
    else:
        level = 1 / one.bins
        shares = own - (own.sum() - 1) * level
        covariance = noise**2 * (np.eye(one.bins) - level)
        moved = shares - level
    return shares, covariance + mass_noise**2 * np.outer(moved, moved)


def _draw(shares: Floats, users: float) -> Floats:
    sound = np.clip(shares, 0.0, None)
    sound = sound / max(sound.sum(), 1.0)
    found: Floats = (np.diag(sound) - np.outer(sound, sound)) / users
    return found


def bin_names(statistic: Statistic) -> list[str]:
    """What stands below each bar."""
    if statistic.named:
        return list(statistic.named)
    pairs = list(zip(statistic.edges[:-1], statistic.edges[1:], strict=True))
    if not statistic.whole:
        return [f"{low:.3g} to {high:.3g}" for low, high in pairs]
    return [
        f"{low:.0f}" if high - low == 1 else f"{low:.0f} to {high - 1:.0f}" for low, high in pairs
    ]


def to_json(card: Card) -> dict[str, Any]:
    """As a JSON object: the histograms with both errors."""
    return {
        "users": card.users,
        "mass": card.mass,
        "mass_noise": card.mass_noise,
        "deviation": card.deviation,
        "statistics": [_statistic_json(one) for one in card.histograms],
    }


def _statistic_json(one: Histogram) -> dict[str, Any]:
    quantity = one.quantity() if one.statistic.has_quantity else None
    return {
        "name": one.statistic.name,
        "says": one.statistic.says,
        "of": "users" if one.statistic.of_users else "records",
        "bins": bin_names(one.statistic),
        "shares": one.shares.tolist(),
        "half_widths": one.errors.tolist(),
        "noise": np.sqrt(np.diag(one.noise)).tolist(),
        "quantity": None if quantity is None else asdict(quantity),
    }
