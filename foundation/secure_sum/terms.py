"""What all parties of one secure sum agree on; every key and signature of it is bound to them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cached_property

from fedlens.foundation.secure_sum.errors import SecureSumError

SESSION_BYTES = 16
MOST_PARTIES = 4096


@dataclass(frozen=True)
class SumTerms:
    """One sum.

    With ``threshold`` t of n parties, of whom c may collude with the server, 2t > n + c: two sets
    of t parties have an honest one in common, and an honest party agrees to one list of survivors
    only. So no server gets both secrets of a party.
    """

    session: bytes
    """16 bytes that the server drew for this sum alone."""
    round: int
    parties: int
    """n: declared, whether they answer or not."""
    threshold: int
    """t: shares that give a secret back."""
    least: int
    """Parties that a sum must be of; fewer survivors open nothing."""
    colluding: int
    """c: parties that may do as the server wishes."""
    size: int
    """Numbers that are summed."""
    bits: int
    """k: sums are modulo 2^k."""
    summed: bytes
    """SHA-256 of what the numbers are: their layout, mechanism and noise."""

    def __post_init__(self) -> None:
        """Check.

        Raises:
            SecureSumError: they would not protect what they are to protect.
        """
        n, t, c = self.parties, self.threshold, self.colluding
        sound = len(self.session) == SESSION_BYTES and len(self.summed) == 32
        sound = sound and 2 <= n <= MOST_PARTIES and self.size > 0 and self.round >= 0
        if not (sound and self.bits in range(8, 65, 8)):
            raise SecureSumError("the terms of a secure sum have a value out of its range")
        if not (0 <= c < self.least <= n and 1 <= t <= self.least):
            raise SecureSumError(
                f"{n} parties, at least {self.least}, threshold {t}, {c} colluding: colluding must "
                "be fewer than the survivors, and the threshold at most as many"
            )
        if 2 * t <= n + c:
            raise SecureSumError(
                f"threshold {t} of {n} parties with {c} colluding: give more than {(n + c) / 2:g}"
            )

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of all of them, 32 bytes."""
        fields = {**asdict(self), "session": self.session.hex(), "summed": self.summed.hex()}
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode("ascii")).digest()
