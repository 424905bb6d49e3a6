"""What the accountant's speed is compared with computes the same figures."""

import numpy as np
import pytest

from benchmarks.direct_bayesian import direct_round
from fedlens.accountant.bayesian.confidence import student_quantile
from fedlens.accountant.bayesian.costs import hoelder_cost
from fedlens.accountant.bayesian.loss_moments import log_moments
from fedlens.accountant.bayesian.norms import norms_of


def test_the_direct_round_gives_the_costs_that_are_given_quickly() -> None:
    source = np.random.default_rng(0)
    updates = source.normal(size=(64, 3000)).astype(np.float32)
    updates *= (source.uniform(0.1, 1, (64, 1)) / np.linalg.norm(updates, axis=1)[:, None]).astype(
        np.float32
    )
    orders = range(1, 41)
    direct = direct_round(updates, 0.01, 1.2, orders, rounds=20, gamma=1e-9)
    ours = [
        hoelder_cost(side, np.ones(64), power=20, rounds=20, quantile=student_quantile(1e-9, 64))
        for side in log_moments(orders, 0.01, norms_of(updates), 1.2)
    ]
    assert direct == pytest.approx(np.maximum(*ours), rel=1e-4)
