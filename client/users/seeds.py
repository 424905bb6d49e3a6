"""Seeds that belong to a user or a record, whatever its place among others.

All follow from the run's key by a keyed hash, so that taking one user out of a node's data, adding
one or reordering them changes no other user's seed.
"""

from __future__ import annotations

import hashlib


def keyed_seed(key: bytes, purpose: str, *parts: int | bytes) -> int:
    """A seed in [0, 2^63).

    Args:
        key: the run's, up to 64 bytes. Users' seeds are no secret and protect no one: privacy noise
            never comes from them.
        purpose: keeps the uses of one key apart; up to 16 ASCII letters.
        parts: what the seed belongs to, such as a round and a user's id.
    """
    digest = hashlib.blake2b(digest_size=8, key=key, person=purpose.encode("ascii"))
    for part in parts:
        plain = part if isinstance(part, bytes) else part.to_bytes(16, "big", signed=True)
        digest.update(len(plain).to_bytes(8, "big"))
        digest.update(plain)
    return int.from_bytes(digest.digest(), "big") >> 1
