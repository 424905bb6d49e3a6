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

**In numbers.** vᵢ is put on multiples of g, a power of two; wᵢ are whole. So T is exact, and what
rounding adds to the sensitivity, K·g·√P·(1 + 2⁻¹⁴) (nᵢ ≤ K: larger nodes do not take part), is
added to C where the noise is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accountant.noise.lattice import NOISE_BITS, pitch
from foundation.errors import FedlensError

_ROUNDING = 1 + 2.0**-14
_EXACT_BITS = 52
"""Of a float64: the trimmed sum of all users must fit."""
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
        """g: the pitch of the noise, or a coarser one where N users' sum would not be exact."""
        room = _EXACT_BITS - 1 - self.declared.bit_length()
        return pitch(self.clipping_norm, min(NOISE_BITS, room))

    def sensitivity(self, size: int) -> float:
        """L2 sensitivity of the trimmed sum of P = ``size`` coordinates to one user."""
        return self.clipping_norm + self.users * self.step * math.sqrt(size) * _ROUNDING

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
        values = np.rint(block / (weights[:, None] * self.step)).astype(np.int64)
        order = np.argsort(values, axis=0, kind="stable")
        after = np.cumsum(weights[order], axis=0)
        before = after - weights[order]
        kept = np.minimum(after, whole - self.users) - np.maximum(before, self.users)
        middle = (np.maximum(kept, 0) * np.take_along_axis(values, order, axis=0)).sum(axis=0)
        found: Sums = middle.astype(np.float64) * self.step
        return found
