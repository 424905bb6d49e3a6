"""All figures of norms that are known, beside differential privacy: for planning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedlens.accountant.bayesian.accountant import DEFAULT_LAMBDAS, BayesianAccountant
from fedlens.accountant.bayesian.costs import epsilon_by_order, hoelder_cost
from fedlens.accountant.bayesian.diagnostics import FEWEST
from fedlens.accountant.bayesian.norms import checked_norms
from fedlens.accountant.bayesian.percentiles import Percentile, capped, percentile_curve
from fedlens.accountant.bayesian.pricing import priced
from fedlens.accountant.bounds import UNBOUNDED, Bound, require_count
from fedlens.accountant.dp.differential import DifferentialAccountant
from fedlens.accountant.events import Sampler, SubsampledGaussian, Unit
from fedlens.foundation.errors import WrongUse


@dataclass(frozen=True)
class Assessment:
    """Every figure at the same δ, each with the order that gave it."""

    as_published: Bound
    """Equations 6 to 8 of arXiv:2003.00997; bounds nothing, and is never capped."""
    corrected: Bound
    """Hölder and Student-t: an estimate, never capped by another figure; each cost is at d = C."""
    confidence_failure: float
    """Probability, within δ, that a confidence bound of the corrected figure fails; the sound
    figure's fail with rounds · orders · gamma at most."""
    sound: Bound
    """Distribution-free confidence bounds; method ``dp`` where differential privacy is less."""
    dp: Bound
    """Differential privacy, which holds for anyone."""
    panel: Bound | None
    """Without Hölder's slack or any confidence bound, if the norms are those of all users."""
    percentiles: tuple[Percentile, ...]
    """The sound figure for most users, shares ascending."""
    percentiles_corrected: tuple[Percentile, ...]
    """The corrected figure for most users: an estimate."""
    warnings: tuple[str, ...]
    """What weakens the corrected figure."""


def assess(
    norms: ArrayLike,
    *,
    clipping_norm: float,
    noise_multiplier: float,
    sampling_rate: float,
    rounds: int,
    delta: float,
    orders: Sequence[int] = DEFAULT_LAMBDAS,
    gamma: float | None = None,
    panel: bool = False,
    users: int | None = None,
    unit: Unit = "user",
    sampler: Sampler = "poisson",
) -> Assessment:
    """Assess ``rounds`` like rounds, in each of which these norms were observed.

    The norms are taken at their word: fewer than 64, or one that outweighs the others, are warned
    of and estimated. Only norms that are all equal below C are charged at C, in the corrected
    figure: no variance is no evidence about users who were not seen.

    Args:
        norms: absolute L2 norms after clipping, [m], at most C. Three at least, or all at C.
        clipping_norm: C > 0.
        noise_multiplier: noise standard deviation over C; 0 gives no bound.
        sampling_rate: q in (0, 1].
        rounds: T ≥ 1.
        delta: δ in (0, 1) of every figure.
        orders: λ to try, whole numbers ≥ 1.
        gamma: failure of one confidence bound; by default 1% of δ split over rounds and orders.
        panel: whether the norms are those of all users there are, each the same in every round.
        users: N, enrolled users, for the percentile curve; by default the norms' number if
            ``panel``, else unknown.
        unit: whose presence is hidden.
        sampler: how cohorts are drawn.

    Raises:
        WrongUse: naming the argument and the fix.
    """
    require_count("rounds", rounds)
    event = SubsampledGaussian(
        unit, sampler, "add-remove", sampling_rate, noise_multiplier, clipping_norm
    )
    distances = checked_norms(norms, event.sensitivity)
    if distances.size == 0:
        raise WrongUse(f"norms: none were given; give {FEWEST} at least")
    bayesian = BayesianAccountant(rounds, delta, lambdas=orders, gamma=gamma, charge_doubtful=False)
    bayesian.compose(event, distances, rounds)
    differential = DifferentialAccountant()
    differential.compose(event, rounds)
    dp = differential.epsilon(delta)
    counted = distances.size if panel and users is None else users
    return Assessment(
        as_published=bayesian.as_published(),
        corrected=bayesian.corrected(),
        confidence_failure=bayesian.confidence_failure,
        sound=capped(bayesian.sound(), dp),
        dp=dp,
        panel=_panel(event, distances, rounds, delta, orders) if panel else None,
        percentiles=percentile_curve(bayesian, dp, users=counted),
        percentiles_corrected=percentile_curve(bayesian, dp, users=counted, figure="corrected"),
        warnings=bayesian.warnings(),
    )


def _panel(
    event: SubsampledGaussian,
    distances: NDArray[np.float64],
    rounds: int,
    delta: float,
    orders: Sequence[int],
) -> Bound:
    """Log E_x Π_t M_t(x) over all users there are, in the place of summed costs in equation 8."""
    lambdas = tuple(sorted({int(order) for order in orders}))
    sample = priced(event, lambdas, distances)
    if sample is None:
        return UNBOUNDED
    cost = hoelder_cost(sample.moments, sample.weights, power=rounds, rounds=1, quantile=0.0)
    found = epsilon_by_order(cost, np.array(lambdas, dtype=np.float64), delta)
    best = int(found.argmin())
    return Bound(float(found[best]), float(lambdas[best]))
