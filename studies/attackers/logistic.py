"""Multinomial logistic regression: the weakest attacker that looks at the record."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from client.datasets.attributes.data import PrivateData
from studies.attackers.protocol import FittedAttacker, check_known
from studies.attackers.tables import Estimator, View, fit_table

ITERATIONS = 150
ROWS = 20_000  # Rows that it is fitted on at most, drawn at random


@dataclass(frozen=True)
class LogisticAttacker:
    """Linear in the standardised record."""

    strength: float = 10.0  # of the weights' L2 penalty, relative to the sum of the rows' losses

    def fit(self, known: PrivateData, seed: int) -> FittedAttacker:
        """Learn; see `Attacker.fit`."""
        check_known(known)
        return fit_table(known, View(steps=known.sensitive.ndim == 2), self._grow, ROWS, seed)

    def _grow(
        self, rows: NDArray[np.float32], sensitive: NDArray[np.int64], seed: int
    ) -> Estimator:
        model = LogisticRegression(C=1 / self.strength, max_iter=ITERATIONS, tol=1e-3)
        fitted: Estimator = make_pipeline(StandardScaler(), model).fit(rows, sensitive)
        return fitted
