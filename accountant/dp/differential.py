"""Differential privacy of everything booked: the moments accountant and the tight one together.

Every figure is an upper bound on the same truth, so their minimum is one too. Nothing here looks at
data: stopping a run on these answers reveals nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

from fedlens.accountant.bounds import Bound, require_count, require_probability
from fedlens.accountant.dp.moments import MomentsAccountant
from fedlens.accountant.dp.tight import tight_delta, tight_epsilon
from fedlens.accountant.events import Event, PricedMechanism


class DifferentialAccountant:
    """An upper bound on (ε, δ) of everything booked, in whatever order it was booked.

    Noise counts relative to each event's own sensitivity; the figure of a mixture of two units
    holds for neither. Queries are kept until the
    next booking, and work that another round can use again is kept in the process.
    """

    def __init__(self) -> None:
        """Start with nothing booked."""
        self._counts: Counter[PricedMechanism] = Counter()
        self._moments = MomentsAccountant()
        self._known: dict[float, Bound] = {}

    def compose(self, event: Event, count: int = 1) -> None:
        """Book ``count`` occurrences of ``event``.

        Raises:
            WrongUse: ``count`` is not a whole number of at least 1.
        """
        require_count("count", count)
        self._moments.compose(event, count)
        self._counts[event.mechanism] += count * event.count
        self._known.clear()

    @property
    def counts(self) -> Mapping[PricedMechanism, int]:
        """How often each mechanism was booked."""
        return self._counts

    def rdp(self, delta: float) -> Bound:
        """The moments accountant's ε at ``delta`` in (0, 1), with its Rényi order."""
        return self._moments.epsilon(delta)

    def tight(self, delta: float) -> Bound:
        """The tight ε at ``delta``: method ``analytic``, ``contour`` or ``participation``.

        ``rdp`` where the moments accountant's is no larger, and `bounds.UNBOUNDED` without noise.
        """
        require_probability("delta", delta)
        if delta not in self._known:
            found = tight_epsilon(self._counts, delta)
            self._known[delta] = min(found, self.rdp(delta), key=lambda bound: bound.epsilon)
        return self._known[delta]

    def epsilon(self, delta: float) -> Bound:
        """The least of what is valid, saying which: as `tight`, which no other one is below."""
        return self.tight(delta)

    def delta(self, epsilon: float) -> float:
        """The least valid δ at ``epsilon`` ≥ 0.

        Raises:
            WrongUse: ``epsilon`` is negative or not a number.
        """
        by_moments = self._moments.delta(epsilon)
        return min(by_moments, tight_delta(self._counts, float(epsilon)))

    def would_exceed(self, event: Event, *, epsilon: float, delta: float) -> bool:
        """Whether booking ``event`` as well would take ε at ``delta`` above ``epsilon``.

        The moments accountant is asked first: while it allows the event nothing else is computed.
        """
        if not self._moments.would_exceed(event, epsilon=epsilon, delta=delta):
            return False
        after = Counter(self._counts)
        after[event.mechanism] += event.count
        bound = tight_epsilon(after, delta).epsilon
        return bool(bound > epsilon) or math.isnan(bound)
