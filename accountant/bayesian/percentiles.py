"""The percentile curve: which ε holds for which share of users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fedlens.accountant.bayesian.accountant import BayesianAccountant
from fedlens.accountant.bounds import Bound, require_count

DEFAULT_SHARES = (0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 0.9995, 0.9999, 0.99999)
"""Shares of users that a curve is drawn at."""
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Percentile:
    """One point of the curve: for ``share`` of users at least, (ε, δ)-DP holds."""

    share: float
    """1 − p in (0, 1]: users for whom it holds."""
    bound: Bound
    """ε at the curve's δ, with its order; method ``dp`` where differential privacy gave it, which
    holds for all users."""
    meaningful: bool
    """Whether p leaves out one user at least; a smaller share says nothing about any that there
    are."""


def percentile_curve(
    accountant: BayesianAccountant,
    dp: Bound,
    *,
    shares: Sequence[float] = DEFAULT_SHARES,
    users: int | None = None,
    figure: Literal["sound", "corrected"] = "sound",
) -> tuple[Percentile, ...]:
    """The curve by Markov's inequality; see `BayesianAccountant.percentiles`.

    Args:
        accountant: with everything booked.
        dp: differential privacy's bound at the accountant's δ. No point lies above it.
        shares: 1 − p, each in (0, 1].
        users: N, enrolled users; None where that is not known: every share counts as meaningful.
        figure: which costs to take.

    Raises:
        WrongUse: a share or N out of range.
    """
    if users is not None:
        require_count("users", users)
    found = accountant.percentiles(shares, figure)
    return tuple(
        Percentile(share, capped(bound, dp), users is None or (1 - share) * users >= 1 - _ROUNDING)
        for share, bound in zip(shares, found, strict=True)
    )


def capped(bound: Bound, dp: Bound) -> Bound:
    """The bound, or differential privacy's if that is less: it implies Bayesian DP at the same δ.

    Returns:
        one of both; ``dp``'s then has the method ``dp``, and its own order.
    """
    if bound.epsilon <= dp.epsilon:
        return bound
    return Bound(dp.epsilon, dp.order, "dp")
