"""What is measured on the real path: canaries' scores, one canary alone, and silence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from server.private_step import NoUsableReply
from simulations.audits.canaries import OVERLONG, CanaryFederation, Coins, Floats, random_directions
from simulations.audits.schedule import Schedule

Observer = Callable[[str, int, int], None]
"""Told what is measured, how many steps of it are done, and out of how many."""

SILENT_ROUNDS = 10
SILENT_SIZE = 100_000


@dataclass(frozen=True)
class CanaryRun:
    """All rounds of a schedule with canaries."""

    scores: Floats
    """float64 [m]: sum over the releases of their inner product with the canary's direction of
    length 1, in units of the clipping norm."""
    included: Coins
    """bool [m]: the coins, thrown before the first round."""
    draws: NDArray[np.bool_]
    """bool [T, m]: whom the sampler drew."""
    refused: int
    """Replies that the server refused, and rounds without any usable one."""


def canary_run(
    schedule: Schedule,
    *,
    canaries: int,
    dims: int,
    source: np.random.Generator,
    observer: Observer | None = None,
) -> CanaryRun:
    """Carry the schedule out with canaries in the users' place.

    Args:
        schedule: of a user-level run.
        canaries: m.
        dims: d, well above m: canaries' directions must hardly overlap.
        source: of coins and directions.
        observer: told after each round.
    """
    clip, rounds = schedule.event.clipping_norm, schedule.rounds
    raw = random_directions(canaries, dims, OVERLONG * clip, source)
    included = source.random(canaries) < 0.5
    stage = CanaryFederation(schedule, raw, included)
    total, refused = np.zeros(dims), 0
    draws = np.zeros((rounds, canaries), dtype=np.bool_)
    for number in range(1, rounds + 1):
        before = stage.asked.copy()
        try:
            release, wrong = stage.released(number)
        except NoUsableReply:
            release, wrong = np.zeros(dims), 1
        total, refused = total + release, refused + wrong
        draws[number - 1] = stage.asked > before
        if observer is not None:
            observer("canaries", number, rounds)
    # the score is linear, so one product with the sum of the releases is all of them
    scores = (raw @ total.astype(np.float32)).astype(np.float64) / (OVERLONG * clip * clip)
    return CanaryRun(scores, included, draws, refused)


def clip_probe(
    schedule: Schedule, *, dims: int, source: np.random.Generator
) -> tuple[float, float, int]:
    """One canary alone, drawn for sure, before the noise.

    Returns:
        The norm of what arrived over the clipping norm, its cosine with what was sent, and how many
        replies were refused.
    """
    everybody = schedule.with_mechanism(sampling_rate=1.0)
    clip = schedule.event.clipping_norm
    raw = random_directions(1, dims, OVERLONG * clip, source)
    try:
        found = CanaryFederation(everybody, raw, np.ones(1, dtype=np.bool_)).gathered(1)
    except NoUsableReply:
        return 0.0, 0.0, 1
    norm = float(np.linalg.norm(found.total))
    cosine = float(found.total @ raw[0]) / (norm * OVERLONG * clip) if norm else 0.0
    return norm / clip, cosine, len(found.refused)


def silent_releases(
    schedule: Schedule,
    *,
    rounds: int = SILENT_ROUNDS,
    size: int = SILENT_SIZE,
    observer: Observer | None = None,
) -> Floats:
    """What the mechanism releases of users who hold nothing: its noise, over zC.

    Two lives of the mechanism, as before and after a restart, with the same rounds' numbers.

    Returns:
        float64 [2 · rounds, size].
    """

    def begin() -> Callable[[int], Floats]:
        silent = np.zeros((schedule.config.data.nodes, size), dtype=np.float32)
        stage = CanaryFederation(schedule, silent, np.zeros(len(silent), dtype=np.bool_))
        return lambda number: stage.released(number)[0]

    deviation = schedule.event.noise_multiplier * schedule.event.clipping_norm
    return two_lives(begin, deviation, rounds, observer)


def two_lives(
    begin: Callable[[], Callable[[int], Floats]],
    deviation: float,
    rounds: int,
    observer: Observer | None,
) -> Floats:
    """What a mechanism releases of nothing, over ``deviation``, in each of two lives of it."""
    found = []
    for life in range(2):
        released = begin()
        for number in range(1, rounds + 1):
            found.append(released(number) / deviation)
            if observer is not None:
                observer("noise", life * rounds + number, 2 * rounds)
    return np.stack(found)
