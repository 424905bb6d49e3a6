"""Membership inference on a run's released samples. Simulation only: it opens users' records.

A unit (a user, or in record mode a record) looks like a member when its records are nearer to the
released samples than to a reference of other people's records (the idea of DOMIAS, van Breugel et
al., arXiv:2302.12580). Every unit that took part is compared with a twin of held-out records of the
same classes, so that a skewed deal of classes does not look like a leak.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedlens.accountant.audit.finding import BOUND_ERROR, Finding
from fedlens.accountant.audit.membership import MembershipAttack, attack, cap
from fedlens.accountant.audit.verdicts import Claim, membership_finding
from fedlens.simulations.audits.schedule import NothingToAudit, Schedule
from fedlens.simulations.federation.apps import simulated_federation

MOST_UNITS = 500
MOST_RECORDS = 10
FEWEST_UNITS = 8

Pixels = NDArray[np.float32]
Integers = NDArray[np.int64]
Scores = NDArray[np.float64]


@dataclass(frozen=True)
class Suspects:
    """Members and their twins: row i of one has the classes of row i of the other."""

    members: Pixels
    """float32 [units, records, pixels]; records of users that the run trained on."""
    twins: Pixels
    """float32 [units, records, pixels]; records that no run trained on."""
    reference: Pixels
    """float32 [n, pixels]; others' records, as many held-out as training ones: a reference of one
    kind would be nearer to the units of that kind, and look like a leak (or hide one)."""


def membership_audit(
    schedule: Schedule,
    images: NDArray[np.uint8],
    *,
    claim: Claim,
    confidence: float,
    source: np.random.Generator,
) -> Finding:
    """Attack a run's released samples, and a generator that replays records, the same way.

    Args:
        schedule: of the run; its data are loaded and dealt out as its simulation did.
        images: what the run released, uint8 [n, channels, height, width].
        claim: of the run.
        confidence: of the figures.
        source: chooses units, twins and halves.

    Raises:
        NothingToAudit: the data leave too few held-out records.
    """
    suspects = find_suspects(schedule, source)
    released = _flat(images)
    records = suspects.members.reshape(-1, suspects.members.shape[-1])
    sure = 1 - BOUND_ERROR
    units = len(suspects.members)

    def measured(samples: Pixels, at: float) -> MembershipAttack:
        members, others = (
            scores(rows, samples, suspects.reference) for rows in (suspects.members, suspects.twins)
        )
        return attack(members, others, delta=claim.delta, source=source, confidence=at)

    return membership_finding(
        measured(released, confidence),
        measured(records, confidence),
        measured(source.random(released.shape, dtype=np.float32), confidence),
        measured(released, max(confidence, sure)),
        cap=cap(units, units, delta=claim.delta, confidence=sure),
        claim=claim,
    )


def scores(units: Pixels, samples: Pixels, reference: Pixels) -> Scores:
    """How much nearer a unit's records are to the samples than to the reference, on average.

    Args:
        units: float32 [units, records, pixels].
        samples: float32 [n, pixels].
        reference: float32 [k, pixels].
    """
    rows = units.reshape(-1, units.shape[-1])
    nearer = nearest(rows, reference) - nearest(rows, samples)
    means: Scores = nearer.reshape(units.shape[:2]).mean(axis=1)
    return means


def nearest(rows: Pixels, others: Pixels) -> Scores:
    """Euclidean distance of each row to the nearest of the others, float64 [rows]."""
    squares = (others**2).sum(axis=1)
    found = np.empty(len(rows))
    for start in range(0, len(rows), 512):
        part = rows[start : start + 512]
        least = (squares - 2 * part @ others.T).min(axis=1) + (part**2).sum(axis=1)
        found[start : start + len(part)] = np.sqrt(np.maximum(least, 0))
    return found


def find_suspects(schedule: Schedule, source: np.random.Generator) -> Suspects:
    """Members, twins of the same classes, and a reference, all disjoint.

    Raises:
        NothingToAudit: too few held-out records.
    """
    data = schedule.config.data
    dataset, dealt = simulated_federation(data, schedule.config.seed)
    held = source.permutation(len(dataset.test_labels))
    pool, reference = held[: len(held) // 2], held[len(held) // 2 :]
    size = 1 if schedule.record_mode else int(np.clip(len(pool) // MOST_UNITS, 1, MOST_RECORDS))
    records = schedule.record_mode
    candidates = dealt.indices[:, None] if records else _users(dealt.offsets, dealt.indices, size)
    chosen, twins = _pair(
        candidates[source.permutation(len(candidates))],
        dataset.train_labels,
        {c: list(pool[dataset.test_labels[pool] == c]) for c in range(dataset.classes)},
    )
    if len(chosen) < FEWEST_UNITS or not len(reference):
        raise NothingToAudit(
            f"{len(held)} held-out records make {len(chosen)} twins of users: membership inference "
            f"needs {FEWEST_UNITS} at least"
        )
    train, test = _flat(dataset.train_images), _flat(dataset.test_images)
    others = source.permutation(np.setdiff1d(np.arange(len(train)), chosen))[: len(reference)]
    both = np.concatenate([test[reference], train[others]])
    return Suspects(train[chosen], test[twins], both)


def _users(offsets: Integers, indices: Integers, size: int) -> Integers:
    """The first ``size`` records of every user that has as many, int64 [users, size]."""
    starts = offsets[:-1][np.diff(offsets) >= size]
    records: Integers = indices[starts[:, None] + np.arange(size)]
    return records


def _pair(
    candidates: Integers, labels: Integers, pool: dict[int, list[np.int64]]
) -> tuple[Integers, Integers]:
    """Units and their twins, as record numbers [units, records]; each pooled record once."""
    chosen: list[Integers] = []
    twins: list[list[np.int64]] = []
    for unit in candidates:
        wanted = [int(c) for c in labels[unit]]
        if len(chosen) == MOST_UNITS or not any(pool.values()):
            break
        if all(len(pool[c]) >= wanted.count(c) for c in wanted):
            chosen.append(unit)
            twins.append([pool[c].pop() for c in wanted])
    shape = (-1, candidates.shape[1])
    return np.array(chosen, np.int64).reshape(shape), np.array(twins, np.int64).reshape(shape)


def _flat(images: NDArray[np.uint8]) -> Pixels:
    return (images.reshape(len(images), -1) / 255).astype(np.float32)
