"""A user's records cut to a public number before any of them is read.

What a node does for a user must not depend on how much the user holds: one with 300,000 records
would exhaust the node's memory or outlast the round, and with it every other user of the node would
be missing from the sum, whose sensitivity to that one user would be many times the clip.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass

import numpy as np

from fedlens.client.users.around import SensitiveUsersAround
from fedlens.client.users.cache import KeptBeside
from fedlens.client.users.protocol import LocalData, LocalUsers, Rows
from fedlens.client.users.seeds import keyed_seed

MOST_NODES = 4096
"""Nodes of one process whose capped users are remembered; they hold no record."""


def kept_rows(held: int, most: int, seed: int) -> Rows:
    """Which of ``held`` records are kept: all, or ``most`` of them, each set as likely as another.

    Floyd's sampling (Bentley & Floyd 1987): ``most`` draws, whatever ``held`` is.

    Returns:
        Ascending positions, int64 [min(held, most)].
    """
    if held <= most:
        return np.arange(held, dtype=np.int64)
    last = np.arange(held - most, held)
    drawn = np.random.default_rng(seed).integers(0, last + 1)
    chosen: set[int] = set()
    for top, draw in zip(last.tolist(), drawn.tolist(), strict=True):
        chosen.add(top if draw in chosen else draw)
    return np.array(sorted(chosen), dtype=np.int64)


@dataclass(frozen=True, eq=False)
class CappedUsers(SensitiveUsersAround):
    """Users around users, each with at most ``most`` records, the same ones for the whole run."""

    most: int
    key: bytes
    """The run's; it decides together with the user's id which records are kept."""

    def held(self, position: int) -> int:
        """How many records of the user are kept."""
        return min(self.users.held(position), self.most)

    def user(self, position: int, rows: Rows | None = None) -> LocalData:
        """The kept records of a user."""
        seed = keyed_seed(self.key, "records", self.users.user_id(position))
        kept = kept_rows(self.users.held(position), self.most, seed)
        return self.users.user(position, kept if rows is None else kept[rows])


_KEPT: KeptBeside[CappedUsers] = KeptBeside(MOST_NODES)


def capped(users: LocalUsers, most: int, key: bytes) -> CappedUsers:
    """The users, each with at most ``most`` records; the same object for the same arguments."""
    known = _KEPT.get(users, (most, key))
    if known is None:
        # held weakly: what is made of users goes with them, as when a node's file is written anew
        known = CappedUsers(weakref.proxy(users), most, key)
        _KEPT.put(users, (most, key), known)
    return known
