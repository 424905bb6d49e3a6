"""A sum of nodes' sums that a few hostile nodes cannot pull far, at the sensitivity of a plain one.

Node i hosts nᵢ users and sent xᵢ. In each coordinate by itself, nodes stand in the order of
vᵢ = xᵢ/nᵢ, what they say of a user of theirs; K users' weight is cut off at both ends, and

    T = Σ wᵢ vᵢ,    wᵢ what is left of nᵢ;    Σ wᵢ = U − 2K, of U users on all nodes.

In other words T = ∫ Q(t) dt over t from K to U − K, Q(t) being the value at place t when each user
stands at the value of the user's node. (Coordinate-wise trimmed means: Yin et al. 2018.)

**One user moves T by C at most, in L2 norm.** A user's contribution δ, ‖δ‖ ≤ C, moves one node's
vᵢ by δ/nᵢ. Take one coordinate with δ ≥ 0 (else look from the other side). Raising vᵢ lowers Q
nowhere, and raises ∫ Q(t) dt over all places, which is Σ nᵢ vᵢ, by exactly δ. So what it raises the
integral over the middle by lies in [0, δ]. Hence |T′ − T| ≤ |δ| in every coordinate, and ‖T′ − T‖ ≤
‖δ‖ ≤ C. That is a plain sum's sensitivity: the noise zC, the ledger's event and the norms (each
user's influence is at most that user's own) stay as they are. It holds whatever the other nodes
send, for every cohort, so under Poisson sampling too. nᵢ is who is *enrolled*, which is public and
no draw, as in the plain sum's denominator.

What it costs is weight: U − 2K users' sum in the noise of U's.

**What hostile nodes move.** Let them host m ≤ K of the U users. Q then is that of the honest nodes,
moved by at most m places, so T lies between ∫ Qₕ from K − m to U − K − m and ∫ Qₕ from K to U − K:
whatever they send, it moves T by at most m times the distance of the honest nodes' lowest and
highest value, coordinate by coordinate. In a plain sum they move it by 2mC anywhere. No bound of
norms can tell a liar from a node whose users differ: those are trimmed alike.

The relation is that of all releases here, zero-out with a public roster. A plain sum hides besides
whether someone is enrolled, T does not: where nᵢ change it moves by more than C.

**In numbers.** vᵢ is put on multiples of g, a power of two, so fine that 64 bits just hold the sum
of N users; wᵢ are whole, and rounding keeps the order. So sums are exact, and all that numbers add
to the sensitivity is K·(g·√P + 2⁻⁵¹·C): the rounding of one node's vᵢ, and that of its quotient in
float64 before (nᵢ ≤ K: larger nodes do not take part). It is added to C where the noise is drawn.
With 130,000 coordinates and a quarter trimmed it is 5·10⁻⁵ of C for a million users, 10⁻⁸ for
10,000. As the margin that every noise has for float32 (`fedlens.accountant.noise.lattice`: 3 to
6·10⁻⁵ of C), it is not in proportion to a user's own part, and Bayesian figures leave both out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedlens.accountant.noise.lattice import pitch
from fedlens.foundation.errors import FedlensError

_WHOLE_BITS = 62
"""Of an int64: the trimmed sum of all users must fit, with slack."""
_QUOTIENT_BITS = 50
"""C is at most 2^(this + 1) steps, so that quotients in float64 are right to a step."""
_QUOTIENTS = 2.0**-51
"""What float64 quotients of two sums may lie apart from exact ones, with slack, in C a user."""
_BLOCK = 2**20
"""Numbers of all nodes that are put in order at a time."""

Sums = NDArray[np.float64]


class TooFewUsers(FedlensError, RuntimeError):
    """So few users are on the nodes that answered that nothing is left when extremes are cut."""


@dataclass(frozen=True)
class Trimming:
    """How node sums of one task are trimmed."""

    users: int
    """K: weight cut off at either end; no node that hosts more takes part."""
    declared: int
    """N, a bound of all users."""
    clipping_norm: float
    """C."""

    @property
    def step(self) -> float:
        """g: so fine that N users' sum is just exact."""
        room = _WHOLE_BITS - 1 - self.declared.bit_length()
        return pitch(self.clipping_norm, min(_QUOTIENT_BITS, room))

    def sensitivity(self, size: int) -> float:
        """L2 sensitivity of the trimmed sum of P = ``size`` coordinates to one user."""
        rounding = self.step * math.sqrt(size) + _QUOTIENTS * self.clipping_norm
        return self.clipping_norm + self.users * rounding

    def total(self, sums: Sequence[Sums], enrolled: Sequence[int]) -> Sums:
        """T, float64 [P].

        Args:
            sums: of each node, float64 [P], of norm at most nᵢC.
            enrolled: nᵢ of each; one that hosts no one has no say.

        Raises:
            TooFewUsers: U ≤ 2K.
        """
        there = [place for place, users in enumerate(enrolled) if users > 0]
        weights = np.array([enrolled[place] for place in there], dtype=np.int64)
        if (whole := int(weights.sum())) <= 2 * self.users:
            raise TooFewUsers(
                f"{whole} users are on the nodes that answered, and {self.users} are trimmed at "
                "either end (aggregation.trimmed_share)"
            )
        told = [sums[place] for place in there]
        size, width = len(told[0]), max(1, _BLOCK // len(there))
        found = np.empty(size)
        for start in range(0, size, width):
            block = np.stack([one[start : start + width] for one in told])
            found[start : start + width] = self._middle(block, weights, whole)
        return found

    def _middle(self, block: Sums, weights: NDArray[np.int64], whole: int) -> Sums:
        """T of some coordinates, from float64 [nodes, coordinates]."""
        most = self.clipping_norm / self.step  # of no sum that is let in; in order and no farther
        told = np.clip(block / (weights[:, None] * self.step), -most, most)
        values = np.rint(told).astype(np.int64)
        order = np.argsort(values, axis=0, kind="stable")
        after = np.cumsum(weights[order], axis=0)
        before = after - weights[order]
        kept = np.minimum(after, whole - self.users) - np.maximum(before, self.users)
        middle = (np.maximum(kept, 0) * np.take_along_axis(values, order, axis=0)).sum(axis=0)
        found: Sums = middle.astype(np.float64) * self.step
        return found
