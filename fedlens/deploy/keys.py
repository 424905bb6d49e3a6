"""Who may take part: a node by its key, an operator by a token that the SuperLink knows hashed."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fedlens.foundation.errors import FedlensError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
CURVES = (ec.SECP256R1, ec.SECP384R1, ec.SECP521R1)


class UnusableKey(FedlensError, ValueError):
    """A key or token that cannot be used; the message names the file and the fix."""


class NodeKey(NamedTuple):
    """A node's key pair in OpenSSH's form, which is what Flower reads."""

    private: bytes
    public: bytes


def new_node_key(name: str) -> NodeKey:
    """A key on P-384: Flower 1.41 refuses others than NIST curves, Ed25519 among them."""
    key = ec.generate_private_key(ec.SECP384R1())
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH
    private = key.private_bytes(encoding, form, serialization.NoEncryption())
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    return NodeKey(private, public + f" {name}\n".encode())


def read_public_key(path: Path) -> bytes:
    """A node's public key as Flower stores it (PEM), from an OpenSSH ``.pub`` file.

    Raises:
        UnusableKey: it is none, or is not on a NIST curve.
    """
    try:
        key = serialization.load_ssh_public_key(path.read_bytes())
    except OSError as error:
        raise UnusableKey(f"{path}: {error.strerror}") from None
    except Exception:  # cryptography raises several kinds for what is no key
        raise UnusableKey(
            f"{path} holds no OpenSSH public key: put the node's .pub there"
        ) from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, CURVES):
        raise UnusableKey(
            f"{path} is no key on a NIST curve, which Flower needs: make one with "
            "`ssh-keygen -t ecdsa -b 384`"
        )
    return key.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def new_token() -> str:
    """An operator's token, 256 bits from the operating system."""
    return secrets.token_urlsafe(32)


def token_line(name: str, token: str) -> str:
    """What the SuperLink keeps of an operator: the name and the token's SHA-256."""
    if not NAME.fullmatch(name):
        raise UnusableKey(f"operator {name!r}: give a name of letters, digits, '.', '_' and '-'")
    return f"{name} {_hashed(token)}\n"


class Operators:
    """The operators that a file lists, read anew at each use: who is taken out is out at once."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def named_by(self, token: str) -> str | None:
        """The name of the operator whose token it is; None where it is none's."""
        hashed, found = _hashed(token), None
        for name, known in self._listed():
            if hmac.compare_digest(hashed, known):
                found = name
        return found

    def _listed(self) -> Iterator[tuple[str, str]]:
        try:
            lines = self._path.read_text(encoding="ascii").splitlines()
        except (OSError, UnicodeDecodeError):
            return
        for line in lines:
            words = line.split()
            if len(words) == 2 and not line.startswith("#"):
                yield words[0], words[1].lower()


def _hashed(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
