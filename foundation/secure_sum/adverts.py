"""A party's keys for one sum, signed by its long-term key."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from fedlens.foundation.secure_sum.errors import SecureSumError
from fedlens.foundation.secure_sum.identities import Identity, signed_by
from fedlens.foundation.secure_sum.pairs import KEY_BYTES
from fedlens.foundation.secure_sum.terms import SumTerms

_HEAD = struct.Struct(f">I{KEY_BYTES}s{KEY_BYTES}s{KEY_BYTES}sH")
_LONGEST = 1024


@dataclass(frozen=True)
class Advert:
    """What a party tells all others."""

    index: int
    """The party's number, 1 to n."""
    channel: bytes
    """X25519 public key that shares for the party are sealed with."""
    mask: bytes
    """X25519 public key of its masks for pairs."""
    commitment: bytes
    """SHA-256 of the seed of its own mask: a seed that is put together wrongly shows."""
    identity: str
    """Its long-term public key."""
    signature: bytes = b""

    @classmethod
    def signed(cls, terms: SumTerms, identity: Identity, advert: Advert) -> Advert:
        """The same, signed."""
        signature = identity.sign(advert.statement(terms))
        return cls(**{**advert.__dict__, "signature": signature})

    def statement(self, terms: SumTerms) -> bytes:
        """What its signature is of."""
        return b"keys\0" + terms.digest + self._body()

    def _body(self) -> bytes:
        name = self.identity.encode("ascii")
        head = _HEAD.pack(self.index, self.channel, self.mask, self.commitment, len(name))
        return head + name

    def to_bytes(self) -> bytes:
        """As it travels."""
        return self._body() + self.signature

    @classmethod
    def from_bytes(cls, content: bytes) -> Advert:
        """What `to_bytes` made.

        Raises:
            SecureSumError: it is no advert.
        """
        try:
            index, channel, mask, commitment, length = _HEAD.unpack_from(content)
            name = content[_HEAD.size : _HEAD.size + length].decode("ascii")
        except (struct.error, ValueError):
            raise SecureSumError("a party's keys cannot be read") from None
        if len(content) > _LONGEST or len(name) != length:
            raise SecureSumError("a party's keys have another length than they must")
        return cls(index, channel, mask, commitment, name, content[_HEAD.size + length :])

    def fault(self, terms: SumTerms) -> str:
        """Why no other party can use it; empty where they can."""
        if not 1 <= self.index <= terms.parties:
            return "its number is not one of the parties'"
        if not signed_by(self.identity, self.signature, self.statement(terms)):
            return "its keys are not signed by its long-term key, or are of another sum"
        return ""


def view_of(adverts: Iterable[Advert]) -> bytes:
    """SHA-256 of the parties' keys as one party sees them."""
    digest = hashlib.sha256()
    for advert in sorted(adverts, key=lambda a: a.index):
        content = advert.to_bytes()
        digest.update(len(content).to_bytes(4, "big") + content)
    return digest.digest()


def agreement(
    terms: SumTerms, view: bytes, asked: bytes, members: Iterable[int], survivors: Iterable[int]
) -> bytes:
    """What parties sign before they give up anything.

    Args:
        terms: the sum's.
        view: `view_of` the parties' keys.
        asked: SHA-256 of what each party was asked to compute: a server that asks parties for
            different things, so that all but one have nothing to add, gets no agreement.
        members: whose masks for pairs are in the sum.
        survivors: whose masked values are.
    """
    asked = hashlib.sha256(asked).digest()
    digest = hashlib.sha256(b"survivors\0" + terms.digest + view + asked)
    for numbers in (members, survivors):
        ordered = sorted(numbers)
        digest.update(struct.pack(f">{len(ordered) + 1}I", len(ordered), *ordered))
    return b"survivors\0" + digest.digest()
