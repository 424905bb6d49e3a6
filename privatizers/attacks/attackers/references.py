"""Lines of reference: what is guessed without looking at the record."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_selection import SelectKBest, f_classif
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from fedlens.privatizers.attacks.attackers.protocol import FittedAttacker, cautious, check_known
from fedlens.privatizers.attacks.attackers.tables import Estimator, View, fit_table
from fedlens.privatizers.private_data import PrivateData

# Attackers that read tables: logistic regression (the weakest) and trees.

ITERATIONS = 150
LINEAR_ROWS, ROWS = 20_000, 12_000  # Rows that each is fitted on at most, drawn at random
COLUMNS = 96
"""Entries that trees see: those whose means differ most between classes (F test on the rows)."""


@dataclass(frozen=True)
class LogisticAttacker:
    """Linear in the standardised record."""

    strength: float = 10.0  # of the weights' L2 penalty, relative to the sum of the rows' losses

    def fit(self, known: PrivateData, seed: int) -> FittedAttacker:
        """Learn; see `Attacker.fit`."""
        check_known(known)
        return fit_table(
            known, View(steps=known.sensitive.ndim == 2), self._grow, LINEAR_ROWS, seed
        )

    def _grow(
        self, rows: NDArray[np.float32], sensitive: NDArray[np.int64], seed: int
    ) -> Estimator:
        model = LogisticRegression(C=1 / self.strength, max_iter=ITERATIONS, tol=1e-3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # as far as it gets is its reading
            fitted: Estimator = make_pipeline(StandardScaler(), model).fit(rows, sensitive)
        return fitted


@dataclass(frozen=True)
class TreesAttacker:
    """Boosted trees on histograms of entries, with early stopping on a tenth of the rows."""

    rounds: int = 80  # of boosting at most; one tree a class and round
    leaves: int = 15  # of a tree at most

    def fit(self, known: PrivateData, seed: int) -> FittedAttacker:
        """Learn; see `Attacker.fit`."""
        check_known(known)
        return fit_table(known, View(steps=known.sensitive.ndim == 2), self.grow, ROWS, seed)

    def grow(self, rows: NDArray[np.float32], sensitive: NDArray[np.int64], seed: int) -> Pipeline:
        """Fit the trees on rows float32 [n, k] and classes int64 [n]."""
        trees = HistGradientBoostingClassifier(
            learning_rate=0.15,
            max_iter=self.rounds,
            max_leaf_nodes=self.leaves,
            max_bins=63,
            early_stopping=True,
            n_iter_no_change=8,
            random_state=seed,
        )
        chosen = SelectKBest(_informative, k=min(COLUMNS, rows.shape[1]))
        return make_pipeline(chosen, trees).fit(rows, sensitive)


def _informative(rows: NDArray[np.float32], sensitive: NDArray[np.int64]) -> NDArray[np.float64]:
    """How far each column's class means are apart (F statistic); 0 for a constant column."""
    with np.errstate(divide="ignore", invalid="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # constant columns, which rank last
        apart: NDArray[np.float64] = f_classif(rows, sensitive)[0]
    return np.nan_to_num(apart, nan=0.0)


@dataclass(frozen=True, eq=False)
class _Constant:
    shares: Tensor
    steps: bool

    def log_probabilities(self, records: Tensor, side: Tensor | None = None) -> Tensor:
        """The classes' shares, whatever the record."""
        rows = records.shape[:2] if self.steps else records.shape[:1]
        return cautious(self.shares).expand(*rows, -1)


class PriorAttacker:
    """Knows nothing but how common each class is; its balanced accuracy is 1 / classes."""

    def fit(self, known: PrivateData, seed: int) -> FittedAttacker:
        """Count; see `Attacker.fit`."""
        check_known(known)
        shares = torch.bincount(known.sensitive.flatten(), minlength=known.sensitive_classes)
        return _Constant(shares, known.sensitive.ndim == 2)


@dataclass(frozen=True)
class SideAttacker:
    """Sees the side information alone; boosted trees, since that is often categories in disguise.

    Without side information (and position) it knows what `PriorAttacker` knows.
    """

    # it also knows which step of a series is asked for, as everybody does who has one: the hour of
    # the day alone says much of whether a person is at home
    position: bool = False

    def fit(self, known: PrivateData, seed: int) -> FittedAttacker:
        """Learn from ``side``; see `Attacker.fit`."""
        check_known(known)
        steps = known.sensitive.ndim == 2
        if known.side is None and not (steps and self.position):
            return PriorAttacker().fit(known, seed)
        view = View(steps=steps, record=False, position=self.position)
        return fit_table(known, view, TreesAttacker().grow, ROWS, seed)


def position_attacker() -> SideAttacker:
    """Knows the side information, and which step of a series is asked for."""
    return SideAttacker(position=True)
