"""What a code of bounded length certifies: of one release, of a person's many, in plain figures.

A release is z = c + N(0, I) of a code c of k numbers with |c| < r, and tells at most
(k/2) log(1 + r²/k) nats of anything (:func:`gaussian_capacity`). A person has many records, and
their noise comes from one field (:mod:`fedlens.privatizers.noise_field`): near codes share it.

Let K be the correlations of the noises of n releases and D the distances of their codes. *Given how
alike the records are*, that is K and D, the i-th release adds at most

    I(C; z_i | z_1..z_i-1, D) ≤ (k/2) log(τ_i² / s_i²)

nats. s_i² is the variance that the noise of z_i has when the noises before are known (simple
kriging); τ_i² is per number the mean square of z_i − Σ w_j z_j, with noise, for weights that add up
to 1: there Σ v_a v_b (K_ab − D_ab²/2k), v = (1, −w). Any such weights will do, for a Gaussian has
the most entropy for its power; those that are best for a constant are taken (ordinary kriging).
Without predecessors, or where that is less, τ² is 1 + r²/k. Far codes cost a whole capacity each;
near ones next to nothing.

What this is **not**: a bound on a single draw, which can tell more than its mean; a bound on how
alike a person's records are, which anyone sees who holds their releases; and a bound against
records that others *chose*, whose codes are known to them (:func:`nats_beside_known`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedlens.accountant.dp.profiles import gaussian_epsilon
from fedlens.privatizers.networks.information import InformationError, gaussian_capacity
from fedlens.privatizers.noise_field import LENGTH, OWN

_STEPS = 60  # Of a bisection of [0, 1]: to 1e-18


@dataclass
class Releases:
    """Releases of one filter with one key, and what they tell together at most.

    Attributes:
        radius: r, that no code is longer than.
        size: k, numbers of a code.
        codes: float64 [n, k], clean ones of distinct records.
        nats: that these tell at most, given how alike they are.
    """

    radius: float
    size: int
    codes: NDArray[np.float64] = field(init=False)
    nats: float = field(init=False, default=0.0)
    _inverse: NDArray[np.float64] = field(init=False, repr=False)  # of K's Cholesky root

    def __post_init__(self) -> None:
        self.codes, self._inverse = np.empty((0, self.size)), np.empty((0, 0))

    @classmethod
    def after(
        cls,
        radius: float,
        codes: NDArray[np.float64],
        near: NDArray[np.float64],
        nats: float,
    ) -> Releases:
        """Goes on with a count: codes [n, k], correlations [n, n] of their noises, nats so far."""
        found = cls(radius, codes.shape[1])
        found.codes, found.nats = codes, nats
        if len(near):
            found._inverse = np.linalg.inv(np.linalg.cholesky(near))
        return found

    def cost(self, code: NDArray[np.float64], near: NDArray[np.float64]) -> float:
        """Nats that a further release adds at most.

        Args:
            code: float64 [k], of the record.
            near: correlation of its noise with that of each release before, float64 [n].
        """
        return self._cost(code, near, self._inverse @ near)

    def add(self, code: NDArray[np.float64], near: NDArray[np.float64]) -> float:
        """Count a release; what it cost, as :meth:`cost` says."""
        half, count = self._inverse @ near, len(self.codes)
        cost, left = self._cost(code, near, half), math.sqrt(1 - half @ half)
        grown = np.zeros((count + 1, count + 1))
        grown[:count, :count], grown[count, count] = self._inverse, 1 / left
        grown[count, :count] = -half @ self._inverse / left
        self._inverse = grown
        self.codes = np.vstack([self.codes, code]) if count else code[None]
        self.nats += cost
        return cost

    def _cost(
        self, code: NDArray[np.float64], near: NDArray[np.float64], half: NDArray[np.float64]
    ) -> float:
        power = 1 + self.radius**2 / self.size
        if len(self.codes):
            power = min(power, self._left_over(code, near, half))
        left = float(1 - half @ half)
        return self.size / 2 * math.log(max(1.0, power / left))

    def _left_over(
        self, code: NDArray[np.float64], near: NDArray[np.float64], half: NDArray[np.float64]
    ) -> float:
        """τ² with the weights of ordinary kriging."""
        ones = self._inverse.sum(1)
        white = half + ones * (1 - ones @ half) / (ones @ ones)
        places = code - (self._inverse.T @ white) @ self.codes
        return float(1 - 2 * white @ half + white @ white + places @ places / self.size)


def nats_of_burst(radius: float, size: int, count: int, spread: float) -> float:
    """Nats that ``count`` near records tell at most, their codes ``spread`` apart from each other.

    Args:
        radius: r, in units of the noise.
        size: k, numbers of a code.
        count: records.
        spread: distance of any two codes, in units of the noise.
    """
    found = Releases(radius, size)
    for number in range(count):
        corner = np.zeros(count)  # of a simplex: as many sides as it takes, for sides alone count
        corner[number] = spread / math.sqrt(2)
        found.add(corner, np.full(number, (1 - OWN) * math.exp(-spread / LENGTH)))
    return found.nats


def nats_beside_known(radius: float, size: int, distance: float) -> float:
    """Nats that a release tells at most to who had a record of their own released at ``distance``.

    They know that record's code, and so its noise, of which this one's is in part: of the noise
    1 − ρ² is left, ρ the correlation at that distance (``distance`` in units of the noise).
    """
    left = 1 - ((1 - OWN) * math.exp(-distance / LENGTH)) ** 2
    return gaussian_capacity(radius / math.sqrt(left), size)


# What nats mean for people.


def best_accuracy(nats: float, shares: Sequence[float]) -> float:
    """How often anybody can name an attribute at most, on average, who is told ``nats`` of it.

    The greatest a with kl(a, max p) ≤ I and, by Fano, H(S) − I ≤ h(a) + (1 − a) log(m − 1), where
    kl and h are of one coin. 1 where the bound is vacuous: it forbids nothing about this attribute.

    Args:
        nats: I, that are told of the attribute at most.
        shares: p, of its m values among people; 1/N each for who of N it is.

    Raises:
        InformationError: the shares are none, or ``nats`` is negative.
    """
    prior = _checked(nats, shares)
    unknown = float(-(prior * np.log(prior)).sum()) - nats
    if unknown <= 0:
        return 1.0
    others = math.log(len(prior) - 1) if len(prior) > 2 else 0.0
    low, high = float(prior.max()), 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        coin = _coin(middle)
        allowed = (
            _divergence(middle, float(prior.max())) <= nats
            and unknown <= coin + (1 - middle) * others
        )
        low, high = (middle, high) if allowed else (low, middle)
    return low


PEOPLE = 1000
"""Of whom a release is somebody's, where it is said how often they can be named at most."""
BURST, BURST_SPREAD = 10, 0.02
"""Records of a burst, and how far apart their codes lie in units of the noise."""
WORST_DELTA = 1e-5
"""δ of the worst case that is stated beside averages."""


@dataclass(frozen=True)
class Certified:
    """What a bound in nats forbids, for people.

    Attributes:
        sent: what is released.
        nats: that it tells of anything at most, on average.
        secret: share of secrets that can be named at most; 1 where it is vacuous: the secret has
            no more nats than that. None where its values are not known.
        person: the same of who of `PEOPLE` it is.
        worst: ε at `WORST_DELTA` of whichever record, no average; None of several, whose noise
            hangs together.
    """

    sent: str
    nats: float
    secret: float | None
    person: float
    worst: float | None


def certified(radius: float, size: int, shares: Sequence[float] = ()) -> list[Certified]:
    """What the codes of a filter certify of a record, a burst and a person.

    Args:
        radius: r, that no code is longer than, in units of the noise.
        size: k, numbers of a code.
        shares: of the secret's values among people; empty where they are not known.
    """
    one = gaussian_capacity(radius, size)
    burst = nats_of_burst(radius, size, BURST, BURST_SPREAD)
    sent = (
        ("a record", one, worst_case_epsilon(radius)),
        (f"a burst of {BURST}, with a key", burst, None),
        (f"{BURST} unlike records of a person", BURST * one, None),
    )
    each = [1 / PEOPLE] * PEOPLE
    return [
        Certified(
            name,
            nats,
            best_accuracy(nats, shares) if shares else None,
            best_accuracy(nats, each),
            worst,
        )
        for name, nats, worst in sent
    ]


def worst_case_epsilon(radius: float, delta: float = WORST_DELTA) -> float:
    """ε of one release of *any* record, at δ: how far a single draw can tell two records apart.

    Two codes are 2r apart at most, so a release is (ε, δ)-locally differentially private as the
    Gaussian mechanism of sensitivity 2r and deviation 1 is (Balle & Wang 2018, theorem 8).
    """
    return gaussian_epsilon(delta, 2 * radius)


def _checked(nats: float, shares: Sequence[float]) -> NDArray[np.float64]:
    prior = np.asarray(shares, dtype=np.float64)
    if nats < 0 or len(prior) < 2 or not (prior > 0).all() or not math.isclose(prior.sum(), 1):
        raise InformationError(
            f"nats={nats:g} must be at least 0 and shares={prior.tolist()[:5]} two or more "
            "positive numbers that add up to 1"
        )
    return prior


def _coin(share: float) -> float:
    return -_weighed_log(share, share) - _weighed_log(1 - share, 1 - share)


def _divergence(share: float, prior: float) -> float:
    return _weighed_log(share, share / prior) + _weighed_log(1 - share, (1 - share) / (1 - prior))


def _weighed_log(weight: float, value: float) -> float:
    return weight * math.log(value) if weight else 0.0
