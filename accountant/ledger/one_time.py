"""One-time signatures, for norms that become known only after their round's entry is on disk.

Where nodes add the noise, the noised histogram is inside a sum that must not be opened before the
entry is durable, so the entry cannot commit to the histogram. It commits to the public key of a
signature that can be made once; the histogram is signed when it is known, and the secret is gone
then. Those who have the files afterwards can change neither. (Who runs the server draws that
secret, as it draws the salt of a commitment, and writes the whole file.)

Winternitz's scheme over SHA-256 with 4 bits a chain (Merkle, "A Certified Digital Signature",
CRYPTO 1989): 64 chains for the digest and 3 for its checksum, each of up to 15 steps.
"""

from __future__ import annotations

import hashlib
import secrets

_SIZE, _CHAINS, _CHECKS, _TOP = 32, 64, 3, 15
SIGNATURE_BYTES = _SIZE * (_CHAINS + _CHECKS)


class OneTimeKey:
    """Signs one message; `public` tells nothing of what it will sign."""

    def __init__(self) -> None:
        """Draw a secret of the operating system's entropy."""
        starts = [secrets.token_bytes(_SIZE) for _ in range(_CHAINS + _CHECKS)]
        self._starts: list[bytes] | None = starts
        ends = [_walked(start, i, 0, _TOP) for i, start in enumerate(starts)]
        self.public = hashlib.sha256(b"".join(ends)).hexdigest()
        """64 hexadecimal digits, for the ledger's entry."""

    def sign(self, message: bytes) -> bytes:
        """The signature of ``message``; the secret is forgotten.

        Raises:
            RuntimeError: it signed before: two signatures of one key let others forge a third.
        """
        if self._starts is None:
            raise RuntimeError("a one-time key signs once")
        starts, self._starts = self._starts, None
        walks = zip(starts, _steps(message), strict=True)
        return b"".join(_walked(s, i, 0, n) for i, (s, n) in enumerate(walks))


def signer_of(message: bytes, signature: bytes) -> str:
    """The public key of which ``signature`` signs ``message``; another text for any other."""
    if len(signature) != SIGNATURE_BYTES:
        return ""
    ends = [
        _walked(signature[i * _SIZE : (i + 1) * _SIZE], i, done, _TOP)
        for i, done in enumerate(_steps(message))
    ]
    return hashlib.sha256(b"".join(ends)).hexdigest()


def _steps(message: bytes) -> list[int]:
    """How far each chain is walked: the digest's digits, and those of what they lack to the top."""
    digest = hashlib.sha256(message).digest()
    digits = [digit for byte in digest for digit in (byte >> 4, byte & 15)]
    lacking = sum(_TOP - digit for digit in digits)
    return [*digits, *((lacking >> shift) & 15 for shift in (8, 4, 0))]


def _walked(value: bytes, chain: int, start: int, stop: int) -> bytes:
    for step in range(start, stop):
        value = hashlib.sha256(bytes((chain, step)) + value).digest()
    return value
