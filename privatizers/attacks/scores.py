"""How well an attacker does on records that neither it nor the filter has seen.

Attacks are estimates: a better attacker may come. What one of them proves is a *lower* bound on
what is left of the sensitive attribute: I(S; Q) = H(S) - H(S | Q) >= H(S) - cross-entropy of any
guesser, in nats. Nothing here bounds a leak from above.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedlens.privatizers.attacks.attackers.protocol import Attacker, AttackError, FittedAttacker
from fedlens.privatizers.private_data import PrivateData

RESAMPLES = 1000
CHUNK = 100


@dataclass(frozen=True)
class Score:
    """What one fitted attacker got right on the test records."""

    accuracy: float  # share of sensitive attributes guessed right
    # mean over classes of the share guessed right within the class; 1 / classes for who knows
    # nothing
    balanced_accuracy: float
    cross_entropy: float  # mean of -log of what it gave the true sensitive attribute, nats
    # of the test sensitive attributes' shares, nats; H(S) up to sampling, and below it on average
    entropy: float
    # entropy - cross_entropy, nats: I(S; Q) is at least that in expectation. Negative for an
    # attacker that is worse than the prior; it proves nothing then.
    leak_lower_bound: float
    # bootstrap percentile interval of the former over owners, or records
    leak_interval: tuple[float, float]
    confidence: float  # of that interval

    def row(self) -> dict[str, object]:
        """A JSON object."""
        return {**asdict(self), "leak_interval": list(self.leak_interval)}


def attack(
    attacker: Attacker,
    released: PrivateData,
    test: PrivateData,
    seed: int,
    *,
    resamples: int = RESAMPLES,
) -> Score:
    """Fit an attacker on the released attack part and score it on the released test part.

    Raises:
        AttackError: on sensitive attributes of one class and shapes that do not fit.
    """
    return judge(attacker.fit(released, seed), test, seed, resamples=resamples)


def judge(
    fitted: FittedAttacker, test: PrivateData, seed: int, *, resamples: int = RESAMPLES
) -> Score:
    """Score an attacker that is fitted already (perhaps on raw records: a frozen one)."""
    guesses = fitted.log_probabilities(test.records, test.side)
    return score(guesses, test.sensitive, seed=seed, owners=test.owners, resamples=resamples)


def score(
    log_probabilities: Tensor,
    sensitive: Tensor,
    *,
    seed: int = 0,
    owners: Tensor | None = None,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
) -> Score:
    """Compare guesses with the truth.

    Args:
        log_probabilities: float [n, classes], or [n, T, classes].
        sensitive: int64 [n], or [n, T].
        seed: of the bootstrap.
        owners: int64 [n]; records of one owner are drawn together. None draws records.
        confidence: of the interval, in (0, 1).
        resamples: bootstrap draws, at least 2.

    Raises:
        AttackError: shapes that do not fit, rows that are no probabilities, or one class only.
    """
    _check(log_probabilities, sensitive, confidence, resamples)
    classes = log_probabilities.shape[-1]
    guesses, truth = log_probabilities.double().flatten(0, -2), sensitive.flatten()
    right = (guesses.argmax(-1) == truth).double()
    losses = -guesses.gather(-1, truth[:, None])[:, 0]
    counts = torch.bincount(truth, minlength=classes).double()
    recall = torch.zeros(classes, dtype=torch.float64).index_add_(0, truth, right)[counts > 0]
    entropy = float(_entropies(counts[None].numpy())[0])
    cross_entropy = float(losses.mean())
    cells = _by_owner(losses, sensitive, classes, owners)
    return Score(
        accuracy=float(right.mean()),
        balanced_accuracy=float((recall / counts[counts > 0]).mean()),
        cross_entropy=cross_entropy,
        entropy=entropy,
        leak_lower_bound=entropy - cross_entropy,
        leak_interval=_interval(cells, seed, confidence, resamples),
        confidence=confidence,
    )


def _check(guesses: Tensor, sensitive: Tensor, confidence: float, resamples: int) -> None:
    if guesses.shape[:-1] != sensitive.shape or len(sensitive) == 0:
        raise AttackError(
            f"guesses {tuple(guesses.shape)} for attributes {tuple(sensitive.shape)}; give a row "
            "of log-probabilities for each sensitive attribute"
        )
    if int(sensitive.min()) < 0 or int(sensitive.max()) >= guesses.shape[-1]:
        raise AttackError(
            f"attributes run from {int(sensitive.min())} to {int(sensitive.max())}, guesses have "
            f"{guesses.shape[-1]} classes; fit the attacker with as many classes as there are"
        )
    if int(sensitive.min()) == int(sensitive.max()):
        raise AttackError(
            f"every attribute is {int(sensitive.min())}; give test records of at least two classes"
        )
    off = (guesses.double().exp().sum(-1) - 1).abs().max()
    if not float(off) < 1e-3:
        raise AttackError("guesses are no log-probabilities: their exponentials must sum to 1")
    if not 0 < confidence < 1 or resamples < 2:
        raise AttackError(
            f"confidence={confidence}, resamples={resamples}: give a share in (0, 1) and at least 2"
        )


def _entropies(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Entropy in nats of each row of counts [r, classes]."""
    shares = counts / counts.sum(1, keepdims=True)
    logs = np.log(np.where(shares > 0, shares, 1.0))
    entropies: NDArray[np.float64] = -(shares * logs).sum(1)
    return entropies


def _interval(
    cells: NDArray[np.float64], seed: int, confidence: float, resamples: int
) -> tuple[float, float]:
    """Percentiles of entropy - cross-entropy when the rows of ``cells`` are redrawn."""
    source = np.random.default_rng(seed)
    drawn = []
    for start in range(0, resamples, CHUNK):
        size = min(CHUNK, resamples - start)
        weights = source.multinomial(len(cells), np.full(len(cells), 1 / len(cells)), size)
        totals = weights @ cells
        drawn.append(_entropies(totals[:, 1:]) - totals[:, 0] / totals[:, 1:].sum(1))
    low, high = np.quantile(np.concatenate(drawn), [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def _by_owner(
    losses: Tensor, sensitive: Tensor, classes: int, owners: Tensor | None
) -> NDArray[np.float64]:
    """Sum of losses and number of attributes of each class, [owners (or records), 1 + classes]."""
    hot = torch.nn.functional.one_hot(sensitive.flatten(), classes).double()
    cells = torch.cat([losses[:, None], hot], 1).reshape(len(sensitive), -1, 1 + classes).sum(1)
    found: NDArray[np.float64] = by_owner(cells, owners).numpy()
    return found


def by_owner(cells: Tensor, owners: Tensor | None) -> Tensor:
    """Rows of records [n, k] added up by owner; as they are without owners."""
    if owners is None:
        return cells
    _, who = torch.unique(owners, return_inverse=True)
    return cells.new_zeros(int(who.max()) + 1, cells.shape[1]).index_add_(0, who, cells)
