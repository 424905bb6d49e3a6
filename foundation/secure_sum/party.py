"""One party of a secure sum: five steps, each taken once, in order, and never gone back on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from fedlens.foundation.secure_sum.adverts import Advert, agreement, view_of
from fedlens.foundation.secure_sum.errors import SecureSumError
from fedlens.foundation.secure_sum.field import SHARE_BYTES, split
from fedlens.foundation.secure_sum.identities import Identity, KeyRoster, signed_by
from fedlens.foundation.secure_sum.pairs import (
    mask_keys,
    new_secret,
    opened,
    pair_keys,
    public_of,
    sealed,
)
from fedlens.foundation.secure_sum.terms import SumTerms
from fedlens.foundation.secure_sum.words import Words, add_mask

_STEPS = ("advertised", "shared", "masked", "agreed", "revealed")


@dataclass(frozen=True)
class Reveal:
    """What a party gives up when the survivors are agreed: of each other party one secret's share.

    No party is in both: that would unmask what it sent alone.
    """

    seeds: dict[int, int]
    """Of the survivors' seeds of own masks, by party."""
    keys: dict[int, int]
    """Of the other members' secret keys of masks for pairs."""


@dataclass
class SumParty:
    """The state of one party; `kept` and `restored` carry it from one step to the next."""

    terms: SumTerms
    index: int
    identity: Identity
    channel: bytes
    mask: bytes
    seed: bytes
    step: str = ""
    adverts: dict[int, Advert] = field(default_factory=dict)
    own_shares: bytes = b""
    sealed: dict[int, bytes] = field(default_factory=dict)
    survivors: tuple[int, ...] = ()
    asked: bytes = b""

    @classmethod
    def new(cls, terms: SumTerms, index: int, identity: Identity) -> SumParty:
        """Draw a party's secrets of this one sum.

        Raises:
            SecureSumError: its number is none of the parties'.
        """
        if not 1 <= index <= terms.parties:
            raise SecureSumError(f"party {index} of {terms.parties}: no such number")
        return cls(terms, index, identity, new_secret(), new_secret(), new_secret())

    def advertise(self) -> Advert:
        """Step 1: the public halves of this sum's keys, signed."""
        self._step_on("advertised")
        return Advert.signed(self.terms, self.identity, self._own_advert())

    def _own_advert(self) -> Advert:
        """What this party tells of itself, number and long-term key too, without a signature.

        A party takes part under nothing else: were its keys signed by another's long-term key, it
        could be given that one's number beside its own, and its values would be summed twice.
        """
        return Advert(
            self.index,
            public_of(self.channel),
            public_of(self.mask),
            hashlib.sha256(self.seed).digest(),
            self.identity.public,
        )

    def share(self, adverts: Iterable[Advert], roster: KeyRoster | None) -> dict[int, bytes]:
        """Step 2: shares of both secrets for every other party, sealed for it alone.

        Args:
            adverts: of all parties that take part, this one's among them.
            roster: the long-term keys that this party's operator knows; None to take the server's
                word, which protects from a server that only looks on.

        Raises:
            SecureSumError: too few parties, one without a valid signature, one that is not on the
                roster, one that is there twice, or this party's own keys exchanged.
        """
        self._step_on("shared")
        found = list(adverts)
        self.adverts = {advert.index: advert for advert in found}
        self._check_adverts(found, roster)
        points = sorted(self.adverts)
        secrets = [int.from_bytes(secret, "big") for secret in (self.mask, self.seed)]
        keys, seeds = (split(secret, self.terms.threshold, points) for secret in secrets)
        contents = {p: _share_bytes(keys[p]) + _share_bytes(seeds[p]) for p in points}
        self.own_shares = contents.pop(self.index)
        channel, view = self._channel_keys(contents), view_of(self.adverts.values())
        return {
            other: sealed(channel[other], content, self.index, view)
            for other, content in contents.items()
        }

    def _check_adverts(self, adverts: list[Advert], roster: KeyRoster | None) -> None:
        if len(self.adverts) != len(adverts) or len({a.identity for a in adverts}) != len(adverts):
            raise SecureSumError("a party is there twice: nothing was shared")
        if len(adverts) < self.terms.least:
            raise SecureSumError(f"{len(adverts)} parties: at least {self.terms.least} are needed")
        own = self.adverts.get(self.index)
        if own is None or replace(own, signature=b"") != self._own_advert():
            raise SecureSumError("this party's own keys are missing or were exchanged")
        for advert in adverts:
            if roster is not None and not roster.knows(advert.identity):
                raise SecureSumError(
                    f"the long-term key of party {advert.index} is not on this node's roster: add "
                    "it if its operator gave it to you, and else do not take part"
                )
            if fault := advert.fault(self.terms):
                raise SecureSumError(f"party {advert.index}: {fault}")

    def masked(
        self, values: Words, sealed_shares: Mapping[int, bytes], asked: bytes = b""
    ) -> Words:
        """Step 3: the values with a mask of its own and one for every other member.

        Args:
            values: uint64 [size], modulo 2^k.
            sealed_shares: what other parties sealed for this one; its senders and this party are
                the members, whose masks for pairs are in the sum.
            asked: hash of what the values were asked for by; parties agree on it, and masks cancel
                between those alone that were asked for the same.

        Returns:
            uint64 [size], of which k bits count: without the masks' keys uniformly distributed.

        Raises:
            SecureSumError: too few members, one that was not advertised, or another size.
        """
        self._step_on("masked")
        if values.shape != (self.terms.size,) or values.dtype != np.uint64:
            raise SecureSumError("the values have another size or dtype than was agreed")
        members = {*sealed_shares, self.index}
        if not members <= set(self.adverts) or self.index in sealed_shares:
            raise SecureSumError("shares came from a party that was not advertised")
        if len(members) < self.terms.least:
            raise SecureSumError(f"{len(members)} members: at least {self.terms.least} are needed")
        self.sealed, self.asked = dict(sealed_shares), asked
        total = values.copy()
        add_mask(total, self.seed)
        others = {other: self.adverts[other].mask for other in self.sealed}
        keys = mask_keys(self.mask, self.index, others, self.terms.digest, asked)
        for other, key in keys.items():
            add_mask(total, key, subtract=self.index > other)
        return total

    def agree(self, survivors: Iterable[int]) -> bytes:
        """Step 4: a signature of the survivors, whose masked values are in the sum. Given once.

        Raises:
            SecureSumError: this party is not among them, too few are, or one is no member.
        """
        self._step_on("agreed")
        found = tuple(sorted(survivors))
        if len(set(found)) != len(found) or not set(found) <= {*self.sealed, self.index}:
            raise SecureSumError("the survivors are not members, or one is there twice")
        if self.index not in found:
            raise SecureSumError("this party is not among the survivors, so it has no part in them")
        if len(found) < self.terms.least:
            raise SecureSumError(f"{len(found)} survivors: at least {self.terms.least} are needed")
        self.survivors = found
        return self.identity.sign(self._statement())

    def reveal(self, signatures: Mapping[int, bytes]) -> Reveal:
        """Step 5: shares of the survivors' own masks and of the others' keys; the last step.

        Args:
            signatures: of the survivors' agreement, by party.

        Raises:
            SecureSumError: fewer than the threshold are of the same survivors and valid.
        """
        self._step_on("revealed")
        statement, valid = self._statement(), 0
        for other, signature in signatures.items():
            if other in self.survivors:
                valid += signed_by(self.adverts[other].identity, signature, statement)
            if valid >= self.terms.threshold:
                break
        else:
            raise SecureSumError(
                f"{valid} parties agreed to these survivors: {self.terms.threshold} are needed"
            )
        shares = self._opened_shares()
        seeds = {p: both[1] for p, both in shares.items() if p in self.survivors}
        keys = {p: both[0] for p, both in shares.items() if p not in self.survivors}
        return Reveal(seeds, keys)

    def _opened_shares(self) -> dict[int, tuple[int, int]]:
        """Shares of key and seed by party; one that was sealed wrongly is left out."""
        contents: dict[int, bytes | None] = {self.index: self.own_shares}
        channel, view = self._channel_keys(self.sealed), view_of(self.adverts.values())
        for other, content in self.sealed.items():
            contents[other] = opened(channel[other], content, other, view)
        return {
            party: (_share_of(content[:SHARE_BYTES]), _share_of(content[SHARE_BYTES:]))
            for party, content in contents.items()
            if content is not None and len(content) == 2 * SHARE_BYTES
        }

    def _channel_keys(self, others: Iterable[int]) -> dict[int, bytes]:
        publics = {other: self.adverts[other].channel for other in others}
        return pair_keys(self.channel, self.index, publics, self.terms.digest, b"share")

    def _statement(self) -> bytes:
        members, view = {*self.sealed, self.index}, view_of(self.adverts.values())
        return agreement(self.terms, view, self.asked, members, self.survivors)

    def _step_on(self, step: str) -> None:
        done = -1 if not self.step else _STEPS.index(self.step)
        if _STEPS.index(step) != done + 1:
            raise SecureSumError("a step of a secure sum was asked for twice or out of its order")
        self.step = step

    # From one message to the next

    def kept(self) -> dict[str, Any]:
        """The state but for the long-term key: numbers, texts, bytes and lists of them; secret."""
        terms = {f"terms.{name}": value for name, value in asdict(self.terms).items()}
        return {
            **terms,
            "index": self.index,
            "channel": self.channel,
            "mask": self.mask,
            "seed": self.seed,
            "step": self.step,
            "adverts": [advert.to_bytes() for advert in self.adverts.values()],
            "own_shares": self.own_shares,
            "senders": list(self.sealed),
            "sealed": list(self.sealed.values()),
            "survivors": list(self.survivors),
            "asked": self.asked,
        }

    @classmethod
    def restored(cls, kept: Mapping[str, Any], identity: Identity) -> SumParty:
        """What `kept` gave, with the long-term key that it began with."""
        prefix = "terms."
        terms = {k.removeprefix(prefix): v for k, v in kept.items() if k.startswith(prefix)}
        adverts = [Advert.from_bytes(content) for content in kept["adverts"]]
        return cls(
            terms=SumTerms(**terms),
            index=kept["index"],
            identity=identity,
            channel=kept["channel"],
            mask=kept["mask"],
            seed=kept["seed"],
            step=kept["step"],
            adverts={advert.index: advert for advert in adverts},
            own_shares=kept["own_shares"],
            sealed=dict(zip(kept["senders"], kept["sealed"], strict=True)),
            survivors=tuple(kept["survivors"]),
            asked=kept["asked"],
        )


def _share_bytes(share: int) -> bytes:
    return share.to_bytes(SHARE_BYTES, "big")


def _share_of(content: bytes) -> int:
    return int.from_bytes(content, "big")
