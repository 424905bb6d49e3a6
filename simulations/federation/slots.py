"""Dealing records to users who each want a number of them and their own mix of classes.

A *slot* is one record that a user still wants. All slots draw a class at once; each class serves
as many of its slots as it has records; the rest draw again among the classes that have some left.
A class is exhausted in every round that leaves a slot unserved, so there are at most as many
rounds as classes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


def fill_slots(
    labels: Integers, wanted: Integers, mix: Floats, rng: np.random.Generator, *, strict: bool
) -> tuple[Integers, Integers]:
    """Deal each record at most once.

    Args:
        labels: int64 [n], class of each record.
        wanted: int64 [users], slots of each user; together at most n.
        mix: float64 [users, classes], each user's class probabilities.
        rng: decides draws and order.
        strict: leave slots empty rather than serve a class that the user's mix gives zero.

    Returns:
        ``owner`` and ``indices``, int64 [served]: who got which record. Without ``strict`` every
        slot is served. A user's first slot goes before all second ones.
    """
    user, turn = _slots(wanted)
    # Evenly spread draws for the first round: a user's counts are its mix, rounded.
    quantile = (turn + rng.random(len(wanted))[user]) / wanted[user]
    pools = _Pools(labels, mix.shape[1], rng)
    order = np.lexsort((rng.random(len(user)), turn > 0))
    user, quantile = user[order], quantile[order]
    owners: list[Integers] = []
    records: list[Integers] = []
    while len(user):
        picked = _pick(mix, user, quantile, pools.left > 0, strict)
        served, indices = pools.serve(picked)
        owners.append(user[served])
        records.append(indices)
        waiting = ~served & (picked >= 0)
        user = user[waiting]
        quantile = rng.random(len(user))
    return np.concatenate(owners), np.concatenate(records)


def _slots(wanted: Integers) -> tuple[Integers, Integers]:
    """User of each slot and its number within the user."""
    user = np.repeat(np.arange(len(wanted)), wanted)
    first = np.cumsum(wanted) - wanted
    return user, np.arange(len(user)) - first[user]


def _pick(
    mix: Floats, user: Integers, quantile: Floats, available: NDArray[np.bool_], strict: bool
) -> Integers:
    """A class for each slot, among those available; -1 where the mix allows none (strict)."""
    open_mix = mix * available
    if not strict:
        # A user whose classes are all gone takes any that is left.
        open_mix[open_mix.sum(1) == 0] = available
    ladder = np.cumsum(open_mix, axis=1)
    height = ladder[user, -1] * quantile
    # Strictly below the top even when the product rounds up to it.
    height = np.minimum(height, np.nextafter(ladder[user, -1], 0))
    picked = (ladder[user] <= height[:, None]).sum(1)
    return np.where(ladder[user, -1] > 0, picked, -1)


class _Pools:
    """The records of each class in random order, handed out from the front."""

    def __init__(self, labels: Integers, classes: int, rng: np.random.Generator) -> None:
        order = rng.permutation(len(labels))
        self.records = order[np.argsort(labels[order], kind="stable")]
        sizes = np.bincount(labels, minlength=classes)
        self.next = np.cumsum(sizes) - sizes
        self.left = sizes

    def serve(self, picked: Integers) -> tuple[NDArray[np.bool_], Integers]:
        """Serve slots in order as far as each class reaches: a mask, and the served's records."""
        turn = _turns(picked)
        served = (picked >= 0) & (turn < self.left[picked])
        own = picked[served]
        indices = self.records[self.next[own] + turn[served]]
        used = np.bincount(own, minlength=len(self.left))
        self.next, self.left = self.next + used, self.left - used
        return served, indices


def _turns(picked: Integers) -> Integers:
    """How many earlier entries have the same value."""
    order = np.argsort(picked, kind="stable")
    _, first, counts = np.unique(picked[order], return_index=True, return_counts=True)
    turns = np.empty(len(picked), np.int64)
    turns[order] = np.arange(len(picked)) - np.repeat(first, counts)
    return turns
