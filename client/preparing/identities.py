"""Users' names as numbers that tell nothing without a secret, and which users two nodes share.

**On the node** a user is a hash of their name under the node's own secret, so that the store holds
no name, and preparing the data anew, with more records, leaves everyone's number as it was.

**Between nodes** a person who is at two nodes could move a sum by twice the clip. To find such
people owners may agree on a second secret, which no server has. Under it each node writes its
users' *fingerprints*; two owners compare theirs. Who has the secret and a list of fingerprints can
test whether a name they think of is in it, and sees how many the nodes share; who has no secret
sees a number of users, and which fingerprints are in both lists.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedlens.data.formats.records import plain_name
from fedlens.foundation.errors import FedlensError

SECRET_BYTES = 32
FINGERPRINT_BYTES = 16
MAGIC = b"fedlens fingerprints 1\n"
ROWS = 65_536
_OWN, _SHARED = b"fedlens-node", b"fedlens-owners"


class IdentityError(FedlensError):
    """A secret or a list of fingerprints that cannot be used."""


def own_number(secret: bytes, name: str) -> int:
    """A user's number on the node, in [0, 2^63)."""
    digest = hashlib.blake2b(
        plain_name(name).encode(), digest_size=8, key=secret, person=_OWN
    ).digest()
    return int.from_bytes(digest, "big") >> 1


def fingerprint(secret: bytes, federation: str, name: str) -> bytes:
    """A user's fingerprint among the owners of one federation, 16 bytes."""
    digest = hashlib.blake2b(digest_size=FINGERPRINT_BYTES, key=secret, person=_SHARED)
    digest.update(federation.encode() + b"\0" + plain_name(name).encode())
    return digest.digest()


def person_numbers(prints: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Numbers in [0, 2^63) of fingerprints, uint8 [n, 16], equal where these are."""
    first = np.ascontiguousarray(prints[:, :8]).view(">u8").reshape(-1)
    return (first >> np.uint64(1)).astype(np.int64)


def kept_secret(path: Path) -> bytes:
    """The secret in a file of 64 hexadecimal digits, made where it is not there.

    Raises:
        IdentityError: it cannot be read or made, others may read it, or it holds something else.
    """
    if not path.exists():
        _make(path)
    return read_secret(path)


def read_secret(path: Path) -> bytes:
    """The secret in a file.

    Raises:
        IdentityError: it cannot be read, others may read it, or it holds something else.
    """
    try:
        if path.stat().st_mode & 0o077:
            raise IdentityError(f"{path}: others may read this secret; chmod 600 it")
        text = path.read_text(encoding="ascii").strip()
        secret = bytes.fromhex(text)
    except OSError as error:
        raise IdentityError(
            f"{path}: cannot be read ({error.strerror}); name the secret's file, which "
            "`fedlens node secret` makes"
        ) from None
    except ValueError:
        secret = b""
    if len(secret) != SECRET_BYTES:
        raise IdentityError(f"{path}: is no secret of {2 * SECRET_BYTES} hexadecimal digits")
    return secret


def _make(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(SECRET_BYTES) + "\n")
    except OSError as error:
        raise IdentityError(f"{path}: cannot be made ({error.strerror}); name another") from None


def write_fingerprints(path: Path, found: NDArray[np.void]) -> None:
    """Write a list, each once and in order, so that nothing tells of the order in the source."""
    rows = np.unique(found)
    with path.open("xb") as file:
        file.write(MAGIC)
        file.write(rows.tobytes())


def read_fingerprints(path: Path) -> NDArray[np.void]:
    """A list of fingerprints, on the disk, ascending.

    Raises:
        IdentityError: it is missing or no such list.
    """
    try:
        size = path.stat().st_size - len(MAGIC)
        with path.open("rb") as file:
            head = file.read(len(MAGIC))
    except OSError as error:
        raise IdentityError(
            f"{path}: cannot be read ({error.strerror}); name another owner's fingerprints.bin"
        ) from None
    if head != MAGIC or size % FINGERPRINT_BYTES:
        raise IdentityError(
            f"{path}: is no list of fingerprints; ask its owner for fingerprints.bin"
        )
    kind = np.dtype((np.void, FINGERPRINT_BYTES))
    if not size:
        return np.zeros(0, kind)
    rows = size // FINGERPRINT_BYTES
    return np.memmap(path, kind, "r", offset=len(MAGIC), shape=(rows,))


def shared_fingerprints(one: Path, other: Path) -> Iterator[bytes]:
    """Fingerprints that are in both lists, some at a time."""
    first, second = read_fingerprints(one), read_fingerprints(other)
    for start in range(0, len(first), ROWS):
        part = first[start : start + ROWS]
        places = np.searchsorted(second, part)
        inside = places < len(second)
        same = np.zeros(len(part), np.bool_)
        same[inside] = second[places[inside]] == part[inside]
        yield from (bytes(row) for row in part[same])


def is_listed(listed: NDArray[np.void], one: bytes) -> bool:
    """Whether a fingerprint is in a list."""
    wanted = np.frombuffer(one, listed.dtype)[0] if len(listed) else None
    if wanted is None:
        return False
    place = int(np.searchsorted(listed, wanted))
    return place < len(listed) and bytes(listed[place]) == one
