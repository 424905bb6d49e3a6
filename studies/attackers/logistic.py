"""Multinomial logistic regression: the weakest attacker that looks at the record."""

from __future__ import annotations

from dataclasses import dataclass

from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from studies.attackers.protocol import FittedAttacker, count_classes
from studies.attackers.tables import TableFitted, View, some_rows

ITERATIONS = 150
ROWS = 20_000
"""Rows that it is fitted on at most, drawn at random."""


@dataclass(frozen=True)
class LogisticAttacker:
    """Linear in the standardised record.

    Attributes:
        strength: of the weights' L2 penalty, relative to the sum of the rows' losses.
    """

    strength: float = 10.0

    def fit(
        self,
        records: Tensor,
        sensitive: Tensor,
        side: Tensor | None,
        seed: int,
        *,
        classes: int | None = None,
    ) -> FittedAttacker:
        """Learn; see `Attacker.fit`."""
        found = count_classes(records, sensitive, side, classes)
        view = View(steps=sensitive.ndim == 2)
        model = make_pipeline(
            StandardScaler(), LogisticRegression(C=1 / self.strength, max_iter=ITERATIONS, tol=1e-3)
        )
        rows, truth = some_rows(view(records, side), sensitive, ROWS, seed)
        model.fit(rows, truth)
        return TableFitted(model, view, found)
