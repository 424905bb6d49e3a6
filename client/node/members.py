"""The users of a node by keyed numbers: who they are to a registry that must not know their names.

Nodes of one federation share a key that the server never gets. A user's number is a keyed hash of
the user's own id, so that a person who is enrolled on two nodes under one id has one number on
both, a number can be revoked, and without the key no number leads back to an id. What is told is
who is enrolled, which is public here as it is in the guarantee; nothing of what anyone holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from flwr.app import Context

from fedlens.client.messages import MEMBER_BYTES, Scalar, TrainRequest, roster_digest
from fedlens.client.users.cache import WeakCache
from fedlens.client.users.protocol import LocalUsers, NodeDataError
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
        NodeDataError: the file of the key cannot be read, or holds too little or too much; or two
            users of the node have one number.
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


def check_members(request: TrainRequest, users: LocalUsers, context: Context) -> None:
    """Refuse a request by positions among users who have changed.

    Raises:
        NodeDataError: users came or went since the server asked who is there.
    """
    told = members_of(users, context.node_config) if request.roster else b""
    if request.roster and request.roster != roster_digest(told):
        raise NodeDataError("users came or went since the server asked: it asks again by itself")


_NUMBERS: WeakCache[bytes] = WeakCache(MOST_NODES)


def _numbers(users: LocalUsers, key: bytes) -> bytes:
    people = users.people  # a store's own numbers differ from node to node
    ids = (
        users.user_id(position) if people is None else int(people[position])
        for position in range(len(users))
    )
    numbers = [keyed_seed(key, "member", identity) for identity in ids]
    if len(set(numbers)) < len(numbers):
        raise NodeDataError("two users of this node have one number: give each an id of its own")
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
