"""Replies to one sum: checked, because the server trusts no node, then noised exactly once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accountant.noise import gaussian
from client.records import TrainReply

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


@dataclass(frozen=True)
class Aggregate:
    """The sum of the accepted replies; private until noised."""

    total: NDArray[np.float64]
    """[P]."""
    norms: NDArray[np.int64]
    """Summed histograms of the realised norms."""
    refused: tuple[tuple[int, str], ...]
    """(node, reason) of each refused reply; a reason never quotes a value."""


def objection(answer: Answer, size: int, clipping_norm: float | None) -> str | None:
    """Why a reply is refused, or None.

    Args:
        answer: the reply.
        size: P.
        clipping_norm: C; the sum of ``asked`` clipped updates has norm at most C x ``asked``.
            None in record mode, where the node's noise has no bound.
    """
    total, norms = answer.reply.total, answer.reply.norms
    if total.shape != (size,):
        return f"its update has another shape than [{size}]"
    norm = float(np.linalg.norm(total))
    if not np.isfinite(norm):
        return "its update is not finite"
    if clipping_norm is None:
        return None
    if norm > clipping_norm * answer.asked * (1 + NORM_SLACK):
        return "its update's norm is above the clipping norm times the users asked"
    if norms.ndim != 1 or (norms < 0).any() or int(norms.sum()) != answer.asked:
        return "its histogram does not count the users asked"
    return None


def combine(
    answers: Iterable[Answer], *, size: int, bins: int, clipping_norm: float | None
) -> Aggregate:
    """Add the sound replies up, in the order of the nodes; no reply at all gives zeros.

    A refused reply is left out whole: the sum then misses those users, its sensitivity and its
    fixed denominator stay.
    """
    total, norms = np.zeros(size), np.zeros(bins, dtype=np.int64)
    refused: list[tuple[int, str]] = []
    for answer in sorted(answers, key=lambda a: a.node):
        reason = objection(answer, size, clipping_norm)
        if reason is None and answer.reply.norms.shape not in ((bins,), (0,)):
            reason = f"its histogram has another shape than [{bins}]"
        if reason is not None:
            refused.append((answer.node, reason))
            continue
        total += answer.reply.total
        if answer.reply.norms.size:
            norms += answer.reply.norms
    return Aggregate(total, norms, tuple(refused))


def noised_mean(
    total: NDArray[np.float64],
    *,
    noise_multiplier: float,
    clipping_norm: float,
    denominator: float,
    source: np.random.Generator,
) -> NDArray[np.float64]:
    """``(total + N(0, (zC)^2)) / denominator``, float64 [P]: the release of a round.

    Args:
        total: sum of updates, each clipped to ``clipping_norm``.
        noise_multiplier: z, relative to C, the sum's sensitivity to one user added or removed.
        clipping_norm: C.
        denominator: qN, fixed beforehand; the realised count is private.
        source: a fresh `accountant.noise.private_source`.
    """
    noise = gaussian(
        len(total), noise_multiplier=noise_multiplier, sensitivity=clipping_norm, source=source
    )
    return (total + noise) / denominator
