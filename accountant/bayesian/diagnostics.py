"""What weakens the corrected Bayesian figure: counted round by round, told in words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedlens.accountant.bayesian.costs import largest_share
from fedlens.accountant.bayesian.pricing import PricedDistances
from fedlens.foundation.errors import WrongUse

HEAVIEST = 0.5
"""One norm that makes up more than this share of Σ M^T shows that the tail was not seen."""
FEWEST = 3
"""Norms below which Student's t says nothing at all."""
_AT_CLIP = "were charged at the clipping norm"
_TAKEN = "were estimated all the same"


class Diagnostics:
    """Rounds that could not be estimated soundly, wholly or at some orders."""

    def __init__(self, lambdas: Sequence[int], least_norms: int, charged: bool) -> None:
        """Say what is doubtful, and what is done about it.

        Args:
            lambdas: the orders that are tried.
            least_norms: norms that a round needs.
            charged: charge rounds with fewer norms, and orders at which one norm outweighs the
                others, at the clipping norm; else they are estimated and told of.
        """
        self._lambdas, self._least, self._charged = tuple(lambdas), least_norms, charged
        self._missing = self._few = self._equal = 0
        self._heavy = np.zeros(len(self._lambdas), dtype=np.int64)

    def refuse(self, sample: PricedDistances | None) -> None:
        """Refuse evidence that would be estimated from, and from which nothing can be.

        Raises:
            WrongUse: fewer than `FEWEST` norms.
        """
        if self._charged or sample is None or sample.at_largest or sample.size >= FEWEST:
            return
        raise WrongUse(
            f"norms: {sample.size} cannot be estimated from: give {FEWEST} at least, or charge "
            "the clipping norm"
        )

    def charge_round(self, sample: PricedDistances | None, rounds: int) -> bool:
        """Whether like rounds with this evidence are charged at the clipping norm altogether."""
        if sample is None:
            self._missing += rounds
            return True
        if sample.at_largest:
            return True
        few = sample.size < self._least
        if few and self._charged:
            self._few += rounds
            return True
        if sample.constant:
            self._equal += rounds
            return True
        self._few += rounds * few
        return False

    def charge_orders(self, sample: PricedDistances, power: int, rounds: int) -> NDArray[np.bool_]:
        """At which orders like rounds are charged at the clipping norm, bool [orders]."""
        heavy = largest_share(sample.moments, sample.weights, power) > HEAVIEST
        self._heavy += rounds * heavy
        result: NDArray[np.bool_] = heavy & self._charged
        return result

    def in_words(self, rounds: int, order: float) -> tuple[str, ...]:
        """What to tell of ``rounds`` rounds, of which λ = ``order`` gave the corrected figure."""
        for_few = _AT_CLIP if self._charged else _TAKEN
        reasons = (
            (self._missing, "no evidence", _AT_CLIP),
            (self._few, f"fewer than {self._least} norms", for_few),
            (self._equal, "norms that are all equal", _AT_CLIP),
        )
        found = [f"{n} of {rounds} rounds had {what} and {then}" for n, what, then in reasons if n]
        return (*found, *self._of_order(rounds, order))

    def _of_order(self, rounds: int, order: float) -> list[str]:
        if order not in self._lambdas:
            return []
        place, found = self._lambdas.index(int(order)), []
        if self._heavy[place]:
            then = f"{_AT_CLIP} there" if self._charged else _TAKEN
            found.append(
                f"{self._heavy[place]} of {rounds} rounds had one norm that outweighs the others "
                f"at order λ = {order:g} and {then}"
            )
        if place in (0, len(self._lambdas) - 1):
            found.append(f"the best order λ = {order:g} is at the end of those that were tried")
        return found
