"""The users of a node by keyed numbers: who they are to a registry that must not know their names.

Nodes of one federation share a key that the server never gets. A user's number is a keyed hash of
the user's own id, so that a person who is enrolled on two nodes under one id has one number on
both, a number can be revoked, and without the key no number leads back to an id. What is told is
who is enrolled, which is public here as it is in the guarantee; nothing of what anyone holds.

A node's users have the places of a list, which it makes when a run first asks whom it hosts and
keeps in the run's context: who joins comes last on it, who leaves stays on it and holds nothing.
So a place means the same user for as long as the run lasts, and whoever comes or goes changes no
other user's part in any sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import numpy as np
from flwr.app import ConfigRecord, Context
from numpy.typing import NDArray

from fedlens.client.messages import MEMBER_BYTES, Scalar
from fedlens.client.users.cache import WeakCache
from fedlens.client.users.listed import NUMBER, list_numbers, take_listed
from fedlens.client.users.protocol import LocalUsers, NodeDataError, is_simulated
from fedlens.client.users.seeds import keyed_seed

KEY_FILE = "members-key-file"
"""In a node's own configuration: the file with the federation's key of members."""
MOST_NODES = 64
"""Nodes in one process whose users' numbers are cached."""
LEAST_KEY, MOST_KEY = 16, 64
"""Bytes of a key."""


def members_of(users: LocalUsers, node_config: Mapping[str, Scalar]) -> bytes:
    """The keyed numbers of a node's users by position; empty where the node was given no key.

    Raises:
        NodeDataError: the file of the key cannot be read, or holds too little or too much.
    """
    named = str(node_config.get(KEY_FILE, ""))
    if not named:
        return b""
    key = _read_key(Path(named))
    known = _NUMBERS.get(users, key)
    if known is None:
        known = _numbers(users, key)
        _NUMBERS.put(users, key, known)
    return known


def enrol_users(users: LocalUsers, context: Context) -> LocalUsers:
    """The users as the node tells of them: those of its list, which who joined is put on."""
    before, now = _listed(context), list_numbers(users)
    everyone = np.concatenate([before, now]) if len(before) else now
    first = np.unique(everyone, return_index=True)[1]
    listed = everyone if len(first) == len(everyone) else everyone[np.sort(first)]
    context.state[_STATE] = ConfigRecord({"numbers": listed.tobytes()})
    return take_listed(users, listed)


def named_users(users: LocalUsers, named: int, context: Context) -> LocalUsers:
    """The first ``named`` users of the node's list, by whose places the server asks.

    A simulated node that was never asked whom it hosts has no list, and answers for all.

    Raises:
        NodeDataError: the list is not so long, or lost: the server asks whom the node hosts first.
    """
    listed = _listed(context)
    if is_simulated(context) and _STATE not in context.state.config_records:
        return users
    if named > len(listed):
        raise NodeDataError(
            f"the server asks by a list of {named} users, and this node gave one of {len(listed)}: "
            "it asks again by itself"
        )
    return take_listed(users, listed[:named])


def _listed(context: Context) -> NDArray[np.void]:
    kept = context.state.config_records.get(_STATE)
    packed = b"" if kept is None else cast(bytes, kept["numbers"])
    return np.frombuffer(packed, dtype=NUMBER)


_STATE = "fedlens.members"
_NUMBERS: WeakCache[bytes] = WeakCache(MOST_NODES)


def _numbers(users: LocalUsers, key: bytes) -> bytes:
    packed, size = list_numbers(users).tobytes(), NUMBER.itemsize
    starts = range(0, len(packed), size)
    ids = (int.from_bytes(packed[at : at + size], "big", signed=True) for at in starts)
    numbers = [keyed_seed(key, "member", identity) for identity in ids]
    return b"".join(number.to_bytes(MEMBER_BYTES, "big") for number in numbers)


def _read_key(path: Path) -> bytes:
    try:
        key = path.read_bytes().strip()
    except OSError:
        raise NodeDataError(f"{KEY_FILE}={path} cannot be read") from None
    if not LEAST_KEY <= len(key) <= MOST_KEY:
        raise NodeDataError(
            f"{KEY_FILE}={path} holds {len(key)} bytes: give {LEAST_KEY} to {MOST_KEY} random ones"
        )
    return key
