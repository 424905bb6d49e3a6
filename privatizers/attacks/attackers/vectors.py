"""A strong reader of vectors: of a filter's noisy code, or of what a mask keeps.

Learners that fail in different places: a residual network, boosted trees and, of short vectors, a
Gaussian for each pair of utility and attribute. One of them or the mean of all answers, whichever
does best on records held back.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingClassifier
from torch import Tensor, nn
from torch.distributions import MultivariateNormal
from torch.nn import functional as F

from fedlens.models.weights import initialise, unset_weights
from fedlens.privatizers.attacks.attackers.protocol import (
    EVERYTHING,
    AttackError,
    FittedAttacker,
    Knowledge,
    cautious,
    check_known,
)
from fedlens.privatizers.private_data import PrivateData

HELD_BACK, MOST_HELD = 0.1, 5000
"""Share of the owners that choose epoch and learner, and records of theirs at most."""
CHUNK = 4096
MOST_COLUMNS = 64  # Of vectors that Gaussians are fitted to
RIDGE, SHRINK = 1e-3, 4.0  # Added to variances of about 1; rows a column that count as those of all
LOOKS = 12  # How often a network in training is tried on what is held back
SMOOTH = 0.05  # Columns that vary less than this share of the most varied are not blown up


class ResidualMlp(nn.Module):
    """Vectors [n, entries] to logits [n, classes]: blocks of two layers, each beside a shortcut."""

    def __init__(
        self, entries: int, classes: int, width: int, blocks: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        with unset_weights():
            self.enter = nn.Linear(entries, width)
            self.blocks = nn.ModuleList(
                nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
                for _ in range(blocks)
            )
            self.answer = nn.Linear(width, classes)
        initialise(self, generator, "relu")
        with torch.no_grad():
            for block in self.blocks:
                block.get_parameter("2.weight").mul_(0.3)

    def forward(self, vectors: Tensor) -> Tensor:
        """Logits."""
        units = F.relu(self.enter(vectors))
        for block in self.blocks:
            units = F.relu(units + block(units))
        logits: Tensor = self.answer(units)
        return logits


@dataclass(frozen=True, eq=False)
class VectorsFitted:
    """Learners whose probabilities are averaged, of standardised vectors."""

    learners: Sequence[_Learner]
    middle: Tensor
    scale: Tensor

    def log_probabilities(self, records: Tensor, side: Tensor | None = None) -> Tensor:
        """See `FittedAttacker.log_probabilities`."""
        rows = (_rows(records, side) - self.middle) / self.scale
        found = torch.stack([learner.probabilities(rows) for learner in self.learners])
        return cautious(found.mean(0))


@dataclass(frozen=True)
class VectorReader:
    """Reads the sensitive attribute from vectors, of which one owner may have several.

    Rows of one ``owners`` (draws of one record's noise) are held back together: a learner that is
    judged on a record whose other draw it has seen would be judged on memories.
    """

    knows: Knowledge = EVERYTHING
    steps: int = 4000  # batches of the network
    batch: int = 512
    width: int = 128  # units of its layers
    blocks: int = 3
    rate: float = 2e-3  # Adam's, at its peak
    decay: float = 1e-3  # of its weights
    tree_rows: int = 60_000  # that trees learn from at most
    tree_rounds: int = 250

    def fit(self, known: PrivateData, seed: int) -> FittedAttacker:
        """Learn; see `Attacker.fit`.

        Raises:
            AttackError: also for attributes of single steps, or too few records to hold some back.
        """
        check_known(known)
        if known.sensitive.ndim != 1:
            raise AttackError("a reader of vectors answers once a record; give one attribute each")
        generator = torch.Generator().manual_seed(seed)
        rows = _rows(known.records, known.side)
        kept, apart = _held_back(known, generator)
        middle, spread = rows[kept].mean(0), rows[kept].std(0)
        scale = spread.clamp_min(SMOOTH * float(spread.max()) + 1e-12)
        rows = (rows - middle) / scale
        learners: list[_Learner] = [
            self._network(rows, known, kept, apart, generator),
            self._trees(rows, known, kept, seed),
        ]
        if rows.shape[1] <= MOST_COLUMNS:
            learners.append(_Gaussians.fit(rows[kept], known.take(kept)))
        chosen = _best(learners, rows[apart], known.sensitive[apart])
        return VectorsFitted(chosen, middle, scale)

    def _network(
        self,
        rows: Tensor,
        known: PrivateData,
        kept: Tensor,
        apart: Tensor,
        generator: torch.Generator,
    ) -> _Network:
        classes, truth = known.sensitive_classes, known.sensitive
        net = ResidualMlp(rows.shape[1], classes, self.width, self.blocks, generator)
        optimiser = torch.optim.AdamW(net.parameters(), lr=self.rate, weight_decay=self.decay)
        cycle = torch.optim.lr_scheduler.OneCycleLR(optimiser, self.rate, total_steps=self.steps)
        best, state = math.inf, copy.deepcopy(net.state_dict())
        look = max(1, self.steps // LOOKS)
        for step in range(1, self.steps + 1):
            drawn = kept[torch.randint(len(kept), (self.batch,), generator=generator)]
            optimiser.zero_grad(set_to_none=True)
            torch.autograd.backward(F.cross_entropy(net(rows[drawn]), truth[drawn]))
            optimiser.step()
            cycle.step()
            if step % look == 0 or step == self.steps:
                loss = _loss(_Network(net).probabilities(rows[apart]), truth[apart])
                if loss < best:
                    best, state = loss, copy.deepcopy(net.state_dict())
        net.load_state_dict(state)
        return _Network(net.eval())

    def _trees(self, rows: Tensor, known: PrivateData, kept: Tensor, seed: int) -> _Trees:
        trees = HistGradientBoostingClassifier(
            learning_rate=0.1,
            max_iter=self.tree_rounds,
            max_leaf_nodes=23,
            l2_regularization=1.0,
            max_bins=127,
            early_stopping=True,
            n_iter_no_change=10,
            random_state=seed,
        )
        some = kept[: self.tree_rows]
        trees.fit(rows[some].numpy(), known.sensitive[some].numpy())
        return _Trees(trees, known.sensitive_classes)


class _Network:
    def __init__(self, net: nn.Module) -> None:
        self.net = net

    @torch.no_grad()
    def probabilities(self, rows: Tensor) -> Tensor:
        logits = torch.cat([self.net(part) for part in torch.split(rows, CHUNK)])
        return logits.double().softmax(-1)


class _Trees:
    def __init__(self, trees: HistGradientBoostingClassifier, classes: int) -> None:
        self.trees, self.classes = trees, classes

    def probabilities(self, rows: Tensor) -> Tensor:
        found = torch.from_numpy(np.asarray(self.trees.predict_proba(rows.numpy())))
        wide = torch.zeros(len(rows), self.classes, dtype=torch.float64)
        wide[:, torch.from_numpy(np.asarray(self.trees.classes_))] = found.double()
        return wide


class _Gaussians:
    """p(s|z) by Bayes' rule, where z of each pair of utility and attribute is normal."""

    def __init__(self, parts: list[tuple[int, float, MultivariateNormal]], classes: int) -> None:
        self.parts, self.classes = parts, classes

    @classmethod
    def fit(cls, rows: Tensor, known: PrivateData) -> _Gaussians:
        size, parts = rows.shape[1], []
        classes = known.sensitive_classes
        pairs = known.utility * classes + known.sensitive
        pooled = torch.cov(rows.T).reshape(size, size) + RIDGE * torch.eye(size)
        for pair in torch.unique(pairs).tolist():
            own = rows[pairs == pair]
            own_share = len(own) / (len(own) + SHRINK * size)  # Few rows lean on those of all
            spread = torch.cov(own.T).reshape(size, size) if len(own) > 1 else pooled
            covariance = own_share * spread + (1 - own_share) * pooled + RIDGE * torch.eye(size)
            law = MultivariateNormal(own.mean(0), covariance_matrix=covariance)
            parts.append((pair % classes, math.log(len(own) / len(rows)), law))
        return cls(parts, classes)

    @torch.no_grad()
    def probabilities(self, rows: Tensor) -> Tensor:
        found = torch.full((len(rows), self.classes), -math.inf)
        for value, share, law in self.parts:
            density = share + law.log_prob(rows)  # type: ignore[no-untyped-call]
            found[:, value] = torch.logaddexp(found[:, value], density)
        return found.double().softmax(-1)


_Learner = _Network | _Trees | _Gaussians


def _rows(records: Tensor, side: Tensor | None) -> Tensor:
    flat = records.flatten(1)
    return flat if side is None else torch.cat([flat, side.flatten(1)], 1)


def _held_back(known: PrivateData, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Rows to learn from and rows to choose by, no owner in both, in random order."""
    size = len(known)
    owners = torch.arange(size) if known.owners is None else known.owners
    _, who = torch.unique(owners, return_inverse=True)
    people = int(who.max()) + 1
    held = round(HELD_BACK * people)
    if held < 1:
        raise AttackError(f"{people} records are too few for a reader; give at least 10")
    apart = torch.zeros(people, dtype=torch.bool)
    apart[torch.randperm(people, generator=generator)[:held]] = True
    order = torch.randperm(size, generator=generator)
    return order[~apart[who[order]]], order[apart[who[order]]][:MOST_HELD]


def _best(learners: Sequence[_Learner], rows: Tensor, truth: Tensor) -> Sequence[_Learner]:
    """A learner alone or all together, by the loss on records held back, classes alike."""
    found = [learner.probabilities(rows) for learner in learners]
    teams = [*([number] for number in range(len(learners))), list(range(len(learners)))]
    losses = [_loss(torch.stack([found[one] for one in team]).mean(0), truth) for team in teams]
    best = teams[int(np.argmin(losses))]
    return [learners[one] for one in best]


def _loss(probabilities: Tensor, truth: Tensor) -> float:
    """Cross-entropy of answers divided by the classes' shares, each class counting alike."""
    classes = probabilities.shape[-1]
    counts = torch.bincount(truth, minlength=classes).double().clamp_min(1)
    fair = cautious(probabilities / counts)
    losses = -fair.gather(-1, truth[:, None])[:, 0]
    return float((losses / counts[truth]).sum() / (1 / counts[truth]).sum())
