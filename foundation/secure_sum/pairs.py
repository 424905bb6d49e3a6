"""Keys of pairs of parties: X25519, then HKDF-SHA256 bound to the sum's terms and the pair."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedlens.foundation.secure_sum.errors import SecureSumError

KEY_BYTES = 32


def new_secret() -> bytes:
    """32 bytes of the operating system's entropy."""
    return os.urandom(KEY_BYTES)


def public_of(secret: bytes) -> bytes:
    """The X25519 public key of a secret."""
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def pair_keys(
    secret: bytes, own: int, publics: Mapping[int, bytes], terms: bytes, use: bytes
) -> dict[int, bytes]:
    """The keys that one party shares with others for one use, 32 bytes each, by party.

    Both sides of a pair compute the same.

    Args:
        secret: this side's X25519 secret.
        own: this side's number.
        publics: the other sides' public keys by their numbers.
        terms: digest of the sum's terms.
        use: ``share``, or that of `mask_keys`.

    Raises:
        SecureSumError: a public key that cannot be used (of low order, for one).
    """
    private = X25519PrivateKey.from_private_bytes(secret)
    return {
        other: _derived(private, public, terms, use, sorted((own, other)))
        for other, public in publics.items()
    }


def mask_keys(
    secret: bytes, own: int, publics: Mapping[int, bytes], terms: bytes, asked: bytes
) -> dict[int, bytes]:
    """`pair_keys` of masks: they cancel between parties that were asked for the same only.

    A list of survivors is agreed by some of them, who do not know what the others were asked for.

    Args:
        secret: as there.
        own: as there.
        publics: as there.
        terms: as there.
        asked: hash of what this side was asked to compute.

    Raises:
        SecureSumError: as there.
    """
    return pair_keys(secret, own, publics, terms, b"mask" + hashlib.sha256(asked).digest())


def _derived(
    private: X25519PrivateKey, public: bytes, terms: bytes, use: bytes, pair: list[int]
) -> bytes:
    try:
        common = private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise SecureSumError("a party's key for pairs cannot be used") from None
    info = b"fedlens secure sum 1 " + use + b"".join(n.to_bytes(4, "big") for n in pair)
    return HKDF(hashes.SHA256(), KEY_BYTES, salt=terms, info=info).derive(common)


def usable(public: bytes) -> bool:
    """Whether a public key gives a pair a secret of its own."""
    try:
        pair_keys(new_secret(), 1, {2: public}, b"", b"test")
    except SecureSumError:
        return False
    return True


def sealed(key: bytes, content: bytes, sender: int, bound: bytes) -> bytes:
    """``content`` for the other side of a pair alone, which learns if it was changed.

    The nonce is the sender's number: a pair's key seals one content in each direction.
    """
    return ChaCha20Poly1305(key).encrypt(sender.to_bytes(12, "big"), content, bound)


def opened(key: bytes, content: bytes, sender: int, bound: bytes) -> bytes | None:
    """What `sealed` sealed; None where it was changed or is of another sum, pair or sender."""
    try:
        return ChaCha20Poly1305(key).decrypt(sender.to_bytes(12, "big"), content, bound)
    except (InvalidTag, ValueError):
        return None
