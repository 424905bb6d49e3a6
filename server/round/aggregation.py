"""Replies to one sum: checked, because the server trusts no node, then noised exactly once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedlens.accountant.bayesian.norms import BIN_EDGES, NORM_BINS
from fedlens.accountant.events import SubsampledGaussian
from fedlens.accountant.noise import BitSource, add_noise, on_lattice
from fedlens.client.messages import TrainReply
from fedlens.foundation.errors import WrongUse
from fedlens.server.config.trimming import Trimming

NORM_SLACK = 1e-9
"""Relative float64 rounding that a sum of clipped updates may show above its bound."""


@dataclass(frozen=True)
class Answer:
    """One node's reply beside what was asked of it."""

    node: int
    """Position in the roster."""
    asked: int
    """Users drawn on the node."""
    reply: TrainReply
    enrolled: int = 0
    """Users who may be drawn on the node; what it weighs where sums are trimmed."""


@dataclass(frozen=True)
class Neighbours:
    """Between which two inputs a sensitivity is measured, in the words of the ledger's events."""

    unit: str
    """Whose contribution differs: a user's, or a record's."""
    adjacency: str
    """How it differs: it is there or not."""


ONE_USER = Neighbours("user", "add-remove")
ONE_RECORD = Neighbours("record", "add-remove")


@dataclass(frozen=True, eq=False)
class BoundedSum:
    """A sum of contributions that were checked, with how far one of them can move it.

    Noise is scaled to the sensitivity that stands here, which is set where the bound is enforced.
    """

    values: NDArray[np.float64]
    """[P]; private until noised."""
    sensitivity: float
    """L2 distance that ``values`` moves at most between neighbours. Infinite where nothing here
    bounds it: in record mode nodes have added their noise already, and none may be added again."""
    neighbours: Neighbours
    """Which neighbours."""

    def require_same_neighbours(self, event: SubsampledGaussian) -> None:
        """Refuse an event that would pay for other neighbours than those the bound is for.

        Raises:
            WrongUse: it would.
        """
        paid = Neighbours(event.unit, event.adjacency)
        if paid != self.neighbours:
            raise WrongUse(f"the sum is bounded for {self.neighbours}, and {paid} are paid for")


@dataclass(frozen=True)
class Aggregate:
    """The sum of the accepted replies; private until noised."""

    total: BoundedSum
    """Of size P."""
    norms: NDArray[np.int64]
    """Summed histograms of the realised norms."""
    refused: tuple[tuple[int, str], ...]
    """(node, reason) of each refused reply; a reason never quotes a value."""
    accepted: tuple[int, ...] = ()
    """Nodes whose replies were added up, as positions in the roster."""


@dataclass(frozen=True)
class Limits:
    """What a sound reply keeps to."""

    size: int
    """P."""
    norm: float
    """L2 bound of one user's update (the clipping norm C); in record mode of a node's change."""
    evidence: bool
    """Whether replies carry histograms of their users' norms."""
    positive: bool = False
    """Whether no update has a number below 0."""


def objection(answer: Answer, limits: Limits) -> str | None:
    """Why a reply is refused, or None; never with a value of it."""
    total = answer.reply.total
    if total.shape != (limits.size,):
        return f"its update has another shape than [{limits.size}]"
    with np.errstate(over="ignore", invalid="ignore"):
        norm = float(np.linalg.norm(total))
    if not np.isfinite(norm):
        return "its update is not finite"
    if limits.positive and float(total.min()) < 0:
        return "its update has a number below 0, which no user's can have"
    users = answer.asked if limits.evidence else 1
    if norm > limits.norm * users * (1 + NORM_SLACK):
        return "its update's norm is above what clipped updates can add up to"
    return _histogram_objection(answer, norm, limits) if limits.evidence else None


def _histogram_objection(answer: Answer, norm: float, limits: Limits) -> str | None:
    norms = answer.reply.norms
    if norms.shape != (NORM_BINS,):
        return f"its histogram has another shape than [{NORM_BINS}]"
    counted = (norms >= 0).all() and (norms <= answer.asked).all()
    if not counted or int(norms.sum()) > answer.asked:
        return "its histogram counts more users than were asked"
    if norm > float(norms @ BIN_EDGES) * limits.norm * (1 + NORM_SLACK):
        return "its histogram understates its users' norms"
    return None


def combine(
    answers: Iterable[Answer], limits: Limits, trimming: Trimming | None = None
) -> Aggregate:
    """Add the sound replies up, in the order of the nodes; no reply at all gives zeros.

    A refused reply is left out whole: the sum then misses those users, its sensitivity and its
    fixed denominator stay. In user mode replies are put on the lattice of sums, on which those of
    our nodes are already: they add up exactly then, whatever another node sent.

    Args:
        answers: of the nodes.
        limits: what a sound one keeps to.
        trimming: how sums are trimmed, in user mode; None adds all of each up. Histograms of norms
            are added up as they are.

    Raises:
        TooFewUsers: nothing would be left of the sound replies, though there are some.
    """
    refused: list[tuple[int, str]] = []
    sound: list[Answer] = []
    for answer in sorted(answers, key=lambda a: a.node):
        reason = objection(answer, limits)
        if reason is not None:
            refused.append((answer.node, reason))
        else:
            sound.append(answer)
    norms = np.zeros(NORM_BINS, dtype=np.int64)
    for answer in sound:
        norms += answer.reply.norms if limits.evidence else 0
    total = _total(sound, limits, trimming)
    return Aggregate(total, norms, tuple(refused), tuple(answer.node for answer in sound))


def _total(sound: Sequence[Answer], limits: Limits, trimming: Trimming | None) -> BoundedSum:
    if not limits.evidence:
        noised = sum((answer.reply.total for answer in sound), np.zeros(limits.size))
        return BoundedSum(noised, math.inf, ONE_RECORD)
    sums = (on_lattice(answer.reply.total, limits.norm) for answer in sound)
    if trimming is None:
        return BoundedSum(sum(sums, np.zeros(limits.size)), limits.norm, ONE_USER)
    enrolled = [answer.enrolled for answer in sound]
    middle = trimming.total(list(sums), enrolled) if sound else np.zeros(limits.size)
    return BoundedSum(middle, trimming.sensitivity(limits.size), ONE_USER)


def noised_mean(
    total: BoundedSum, *, noise_multiplier: float, denominator: float, source: BitSource
) -> NDArray[np.float64]:
    """``(total + N(0, (zS)^2)) / denominator``, float64 [P]: the release of a round.

    The numerator lies on a lattice, noise and all (`fedlens.accountant.noise.lattice`).

    Args:
        total: what is noised, with its L2 sensitivity S: C for a plain sum of clipped updates.
        noise_multiplier: z, relative to S.
        denominator: qN, fixed beforehand; the realised count is private.
        source: a fresh `fedlens.accountant.noise.private_source`.

    Raises:
        WrongUse: nothing bounds the sum.
    """
    if not math.isfinite(total.sensitivity):
        raise WrongUse("nothing bounds what one contribution moves this sum by: it takes no noise")
    noised = add_noise(
        total.values,
        noise_multiplier=noise_multiplier,
        sensitivity=total.sensitivity,
        source=source,
    )
    return noised / denominator
