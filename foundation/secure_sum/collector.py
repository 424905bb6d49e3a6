"""The server's side of a secure sum: it relays, adds up, and opens the total of the survivors."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, islice

import numpy as np

from fedlens.foundation.secure_sum.adverts import Advert, agreement, view_of
from fedlens.foundation.secure_sum.errors import SecureSumError
from fedlens.foundation.secure_sum.field import combined, weights_at_zero
from fedlens.foundation.secure_sum.identities import signed_by
from fedlens.foundation.secure_sum.pairs import KEY_BYTES, mask_keys, public_of, usable
from fedlens.foundation.secure_sum.party import Reveal
from fedlens.foundation.secure_sum.terms import SumTerms
from fedlens.foundation.secure_sum.words import Words, add_mask, unpacked

_TRIES = 200
"""Sets of shares that are tried before a secret is given up for lost."""


class SumCollector:
    """Gathers one sum. What a party sends that cannot be used is left out; too few end it."""

    def __init__(self, terms: SumTerms, asked: bytes = b"") -> None:
        """Begin with no party.

        Args:
            terms: the sum's.
            asked: hash of what every party is asked to compute.
        """
        self._terms, self._asked = terms, asked
        self._sealed: dict[int, dict[int, bytes]] = {}
        self._signatures: dict[int, bytes] = {}
        self._reveals: dict[int, Reveal] = {}
        self._survivors: set[int] = set()
        self._weights: dict[tuple[int, ...], dict[int, int]] = {}
        self._statement = b""
        self._total = np.zeros(terms.size, dtype=np.uint64)
        self.adverts: dict[int, Advert] = {}
        """The usable ones, by party."""

    # Step by step

    def take_advert(self, index: int, advert: Advert) -> str:
        """A party's keys; returns why they are left out, or nothing."""
        if advert.index != index:
            return "it speaks for another party"
        if any(advert.identity == other.identity for other in self.adverts.values()):
            return "another party has its long-term key"
        if fault := advert.fault(self._terms):
            return fault
        if not (usable(advert.channel) and usable(advert.mask)):
            return "its keys cannot be used"
        self.adverts[index] = advert
        return ""

    def take_shares(self, index: int, shares: Mapping[int, bytes]) -> str:
        """A party's sealed shares, one for every other party that advertised."""
        if index not in self.adverts or set(shares) != set(self.adverts) - {index}:
            return "its shares are not for the other parties"
        self._sealed[index] = dict(shares)
        return ""

    @property
    def members(self) -> tuple[int, ...]:
        """Parties whose shares are there: whom to ask for their masked values."""
        return tuple(sorted(self._sealed))

    def shares_for(self, index: int) -> dict[int, bytes]:
        """What the other members sealed for one of them."""
        return {other: s[index] for other, s in self._sealed.items() if other != index}

    def take_masked(self, index: int, content: bytes) -> str:
        """A member's masked values; they are added up and not kept."""
        try:
            words = unpacked(content, self._terms.size, self._terms.bits)
        except SecureSumError as error:
            return str(error)
        if index not in self._sealed or index in self._survivors or self._statement:
            return "it is no member, sent its values before, or comes too late"
        self._total += words
        self._survivors.add(index)
        return ""

    @property
    def survivors(self) -> tuple[int, ...]:
        """Parties whose masked values are in the sum."""
        return tuple(sorted(self._survivors))

    def take_signature(self, index: int, signature: bytes) -> str:
        """A survivor's signature of the agreement."""
        if not self._statement:
            view = view_of(self.adverts.values())
            self._statement = agreement(
                self._terms, view, self._asked, self.members, self.survivors
            )
        if index not in self._survivors:
            return "it is no survivor"
        if not signed_by(self.adverts[index].identity, signature, self._statement):
            return "it did not sign these survivors"
        self._signatures[index] = signature
        return ""

    @property
    def signatures(self) -> dict[int, bytes]:
        """Valid signatures of the agreement, by party."""
        return dict(self._signatures)

    def take_reveal(self, index: int, reveal: Reveal) -> str:
        """A survivor's shares."""
        if index not in self._survivors:
            return "it is no survivor"
        self._reveals[index] = reveal
        return ""

    def require(self, found: int, what: str) -> None:
        """End the sum where too few came.

        Raises:
            SecureSumError: naming how many are needed.
        """
        if found < self._terms.least:
            raise SecureSumError(f"{found} parties {what}: {self._terms.least} are needed")

    # The sum

    def opened(self) -> Words:
        """The sum of the survivors' values modulo 2^64, uint64 [size], of which k bits count.

        Raises:
            SecureSumError: too few valid shares of a secret that is needed.
        """
        self.require(len(self._survivors), "sent their values")
        total = self._total.copy()
        for party in self.survivors:
            add_mask(total, self._seed_of(party), subtract=True)
        for party in sorted(set(self._sealed) - self._survivors):
            self._take_pairs_out(total, party, self._mask_key_of(party))
        return total

    def _seed_of(self, party: int) -> bytes:
        shares = {holder: r.seeds[party] for holder, r in self._reveals.items() if party in r.seeds}
        committed = self.adverts[party].commitment
        return self._recovered(party, shares, lambda s: hashlib.sha256(s).digest() == committed)

    def _mask_key_of(self, party: int) -> bytes:
        shares = {holder: r.keys[party] for holder, r in self._reveals.items() if party in r.keys}
        public = self.adverts[party].mask
        return self._recovered(party, shares, lambda secret: public_of(secret) == public)

    def _recovered(
        self, party: int, shares: Mapping[int, int], right: Callable[[bytes], bool]
    ) -> bytes:
        for holders in _holders(sorted(shares), self._terms.threshold):
            secret = combined(shares, self._weights_of(holders))
            if secret >> (8 * KEY_BYTES) == 0:
                found = secret.to_bytes(KEY_BYTES, "big")
                if right(found):
                    return found
        raise SecureSumError(
            f"party {party}: too few right shares of its secret ({len(shares)} are there, "
            f"{self._terms.threshold} are needed)"
        )

    def _weights_of(self, holders: tuple[int, ...]) -> dict[int, int]:
        if holders not in self._weights:
            self._weights[holders] = weights_at_zero(holders)
        return self._weights[holders]

    def _take_pairs_out(self, total: Words, gone: int, secret: bytes) -> None:
        """Take the masks out that survivors put in for pairs with a party that is gone."""
        others = {party: self.adverts[party].mask for party in self.survivors}
        keys = mask_keys(secret, gone, others, self._terms.digest, self._asked)
        for party, key in keys.items():
            add_mask(total, key, subtract=party < gone)


def _holders(found: Sequence[int], threshold: int) -> Iterator[tuple[int, ...]]:
    """Sets of holders to put a secret together from: first all neighbours, then any."""
    if len(found) < threshold:
        return
    for start in range(len(found) if len(found) > threshold else 1):
        turned = [*found[start:], *found[:start]]
        yield tuple(turned[:threshold])
    yield from islice(combinations(found, threshold), _TRIES)
