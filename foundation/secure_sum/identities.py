"""Nodes' long-term keys: who signed a round's keys, and whom a node's operator knows.

Keys are OpenSSH's, as ``ssh-keygen`` makes them: Ed25519, or the NIST curves that SuperNodes
authenticate with, so a node can use the key that it has. Private keys may be PEM too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from fedlens.foundation.secure_sum.errors import SecureSumError

_SIGNED = b"fedlens secure sum 1\0"
"""Before all that is signed: a long-term key's signature fits nothing else."""
_HASH = hashes.SHA384()
PublicKey = ed25519.Ed25519PublicKey | ec.EllipticCurvePublicKey
PrivateKey = ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey


@dataclass(frozen=True)
class Identity:
    """A private key and what others know it by."""

    private: PrivateKey
    public: str
    """OpenSSH's text, ``TYPE BASE64``."""

    @classmethod
    def of(cls, private: PrivateKey) -> Identity:
        """The identity of a private key."""
        form = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        return cls(private, private.public_key().public_bytes(*form).decode("ascii"))

    @classmethod
    def new(cls) -> Identity:
        """A fresh Ed25519 key: of a node that no other one knows."""
        return cls.of(ed25519.Ed25519PrivateKey.generate())

    @classmethod
    def load(cls, path: Path) -> Identity:
        """A private key from its file, without a passphrase.

        Raises:
            SecureSumError: the file cannot be read, or holds another kind of key.
        """
        try:
            content = path.read_bytes()
            openssh = b"OPENSSH PRIVATE KEY" in content
            load = serialization.load_ssh_private_key if openssh else _load_pem
            key = load(content, None)
        except (OSError, ValueError, TypeError, UnsupportedAlgorithm):
            raise SecureSumError(
                f"identity={path}: no private key that can be read (give one without a passphrase, "
                "of `ssh-keygen -t ed25519` or -t ecdsa)"
            ) from None
        if not isinstance(key, PrivateKey):
            raise SecureSumError(f"identity={path}: give an Ed25519 or ECDSA key")
        return cls.of(key)

    @property
    def secret(self) -> bytes:
        """The private key as PEM: only a key that was drawn for one sum is kept so."""
        return self.private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )

    @classmethod
    def from_secret(cls, content: bytes) -> Identity:
        """What `secret` gave."""
        key = _load_pem(content, None)
        if not isinstance(key, PrivateKey):
            raise SecureSumError("a kept identity is no signing key")
        return cls.of(key)

    def sign(self, statement: bytes) -> bytes:
        """A signature that `signed_by` accepts."""
        if isinstance(self.private, ed25519.Ed25519PrivateKey):
            return self.private.sign(_SIGNED + statement)
        return self.private.sign(_SIGNED + statement, ec.ECDSA(_HASH))


def _load_pem(content: bytes, password: bytes | None) -> object:
    return serialization.load_pem_private_key(content, password)


def signed_by(public: str, signature: bytes, statement: bytes) -> bool:
    """Whether the owner of a public key (OpenSSH's text) signed ``statement``; never raises."""
    key = _public(public)
    try:
        if isinstance(key, ed25519.Ed25519PublicKey):
            key.verify(signature, _SIGNED + statement)
        elif isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(signature, _SIGNED + statement, ec.ECDSA(_HASH))
        else:
            return False
    except (InvalidSignature, ValueError):
        return False
    return True


@lru_cache(maxsize=4096)
def _public(text: str) -> PublicKey | None:
    try:
        key = serialization.load_ssh_public_key(text.encode("ascii"))
    except Exception:  # a peer's text: cryptography raises several kinds for what is no key
        return None
    return key if isinstance(key, PublicKey) else None


@dataclass(frozen=True)
class KeyRoster:
    """The public keys of the nodes that a node's operator knows, whatever a server says."""

    keys: frozenset[str]

    @classmethod
    def parse(cls, lines: Iterable[str]) -> KeyRoster:
        """One OpenSSH public key a line; comments after a key and lines with ``#`` do not count.

        Raises:
            SecureSumError: naming the first line that is no such key.
        """
        keys = set()
        for number, line in enumerate(lines, start=1):
            if not (text := line.strip()) or text.startswith("#"):
                continue
            key = " ".join(text.split()[:2])
            if _public(key) is None:
                raise SecureSumError(f"line {number}: no public key of type Ed25519 or ECDSA")
            keys.add(key)
        return cls(frozenset(keys))

    @classmethod
    def load(cls, path: Path) -> KeyRoster:
        """The roster in a file.

        Raises:
            SecureSumError: the file cannot be read, or a line of it is no key.
        """
        try:
            return cls.parse(path.read_text(encoding="utf-8").splitlines())
        except (OSError, UnicodeDecodeError):
            raise SecureSumError(f"roster={path}: cannot be read") from None
        except SecureSumError as error:
            raise SecureSumError(f"roster={path}: {error}") from None

    def knows(self, key: str) -> bool:
        """Whether a key is on it."""
        return key in self.keys
