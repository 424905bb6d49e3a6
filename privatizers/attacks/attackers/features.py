"""Boosted trees on features made by hand: what an analyst computes who knows what images are.

How much ink there is and how wide its strokes are at several thresholds, profiles of rows and
columns, orientations of edges (Dalal and Triggs 2005) and principal components of the attacker's
own releases. Records that are no images are read as rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingClassifier
from torch import Tensor
from torch.nn import functional as F

from fedlens.data.attributes.thickness import stroke_widths
from fedlens.privatizers.attacks.attackers.protocol import FittedAttacker, check_known
from fedlens.privatizers.attacks.attackers.tables import Estimator, TableFitted, View
from fedlens.privatizers.private_data import PrivateData

THRESHOLDS = (0.25, 0.4, 0.5, 0.6, 0.75)  # Of the range of pixels; ink is what lies above
COMPONENTS, ORIENTATIONS, CELLS = 48, 8, 4
PCA_ROWS = 8000
CHUNK = 2000


@dataclass(frozen=True, eq=False)
class FeaturesFitted:
    """Trees on features, with the attacker's own components."""

    trees: TableFitted
    middle: Tensor
    components: Tensor

    def log_probabilities(self, records: Tensor, side: Tensor | None = None) -> Tensor:
        """See `FittedAttacker.log_probabilities`."""
        rows = features(records, self.middle, self.components)
        return self.trees.log_probabilities(rows, side)


@dataclass(frozen=True)
class FeaturesAttacker:
    """Computes features of images, and has trees read them."""

    rounds: int = 250  # of boosting at most
    rows: int = 30_000  # that trees learn from at most

    def fit(self, known: PrivateData, seed: int) -> FittedAttacker:
        """Learn; see `Attacker.fit`."""
        check_known(known)
        if known.records.ndim != 4:
            return self._grow(known, known.records, seed)
        order = torch.randperm(len(known), generator=torch.Generator().manual_seed(seed))
        known = known.take(order[: self.rows])
        middle, components = _components(known.records[:PCA_ROWS].flatten(1), seed)
        rows = features(known.records, middle, components)
        return FeaturesFitted(self._grow(known, rows, seed), middle, components)

    def _grow(self, known: PrivateData, records: Tensor, seed: int) -> TableFitted:
        view = View(steps=known.sensitive.ndim == 2)
        rows, truth = view(records, known.side), known.sensitive.flatten()
        chosen = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
        chosen = chosen[: self.rows]
        trees: Estimator = HistGradientBoostingClassifier(
            learning_rate=0.08,
            max_iter=self.rounds,
            max_leaf_nodes=23,
            l2_regularization=1.0,
            max_features=0.4,
            max_bins=63,
            early_stopping=True,
            n_iter_no_change=10,
            random_state=seed,
        ).fit(rows[chosen].numpy(), truth[chosen].numpy())
        return TableFitted(trees, view, known.sensitive_classes)


@torch.no_grad()
def features(images: Tensor, middle: Tensor, components: Tensor) -> Tensor:
    """Features float32 [n, k] of images [n, c, h, w] in [-1, 1]; colours are averaged."""
    parts = []
    for part in torch.split(images, CHUNK):
        grey = (part.mean(1, keepdim=True) + 1) / 2
        projected = (part.flatten(1) - middle) @ components
        parts.append(torch.cat([_strokes(grey), _profiles(grey), orientations(grey), projected], 1))
    return torch.cat(parts)


def _strokes(grey: Tensor) -> Tensor:
    """Ink, its share of what is bright, its outline and its strokes' width at each threshold."""
    smooth = F.avg_pool2d(grey, 3, stride=1, padding=1)
    found = [grey.flatten(1).mean(1), grey.flatten(1).square().mean(1)]
    for image in (grey, smooth):
        for threshold in THRESHOLDS:
            ink = image > threshold
            area = ink.flatten(1).float().mean(1)
            across, down = (ink.float().diff(dim=dim).abs().flatten(1).mean(1) for dim in (2, 3))
            widths = torch.from_numpy(stroke_widths((ink * 255).to(torch.uint8).numpy())).float()
            found += [area, area / (across + down).clamp_min(1e-3), widths]
    return torch.stack(found, 1)


def _profiles(grey: Tensor) -> Tensor:
    """Mean of each row and column."""
    return torch.cat([grey.mean((1, 2)), grey.mean((1, 3))], 1)


def orientations(grey: Tensor) -> Tensor:
    """How much edge of each direction there is in each cell, float32 [n, cells² · directions]."""
    down, across = (torch.gradient(grey, dim=dim)[0] for dim in (2, 3))
    size = (down.square() + across.square()).sqrt()
    turn = torch.atan2(down, across) / math.pi * ORIENTATIONS / 2
    kind = turn.floor().long() % ORIENTATIONS
    planes = F.one_hot(kind.squeeze(1), ORIENTATIONS).movedim(-1, 1) * size
    return F.adaptive_avg_pool2d(planes, CELLS).flatten(1)


def _components(rows: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Mean and principal directions [entries, k] of rows."""
    middle = rows.mean(0)
    count = min(COMPONENTS, *rows.shape)
    covariance = torch.cov(rows.T.double()).reshape(rows.shape[1], -1)
    _, directions = np.linalg.eigh(covariance.numpy())
    return middle, torch.from_numpy(directions[:, -count:].copy()).float()
