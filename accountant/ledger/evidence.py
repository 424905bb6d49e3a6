"""The noised histograms of norms that a run has released, which its ledger commits to.

The ledger's entry carries SHA-256(salt ‖ histogram), which leaves no room for changing the
histogram later, and tells nothing of it where this file is not at hand (the salt has 256 random
bits). The histograms are releases, noised and charged, so this file gives away no more than the
run's figures do. Evidence that is missing or does not fit its entry is no error: that round is then
charged at the clipping norm, which is always valid.

Where the nodes add the noise, a histogram becomes known only after its entry, which then holds the
public key of a one-time signature instead (`fedlens.accountant.ledger.one_time`).
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedlens.accountant.bayesian.noised_norms import NoisedNorms
from fedlens.accountant.ledger.chain import LedgerEntry, canonical
from fedlens.accountant.ledger.one_time import OneTimeKey, signer_of
from fedlens.foundation.dates import set_file_date, today

_SALT_BYTES = 32


@dataclass(frozen=True)
class Sealed:
    """A histogram with the salt of its commitment."""

    histogram: NoisedNorms
    salt: bytes

    @property
    def digest(self) -> str:
        """SHA-256 of salt and canonical histogram, 64 hexadecimal digits."""
        return hashlib.sha256(self.salt + canonical(self.histogram.to_json())).hexdigest()

    def to_json(self) -> dict[str, object]:
        """The fields of its line."""
        return {"salt": self.salt.hex(), "histogram": self.histogram.to_json()}


@dataclass(frozen=True)
class SignedLater:
    """A histogram that was signed once its entry was on disk."""

    histogram: NoisedNorms
    signature: bytes

    @classmethod
    def by(cls, key: OneTimeKey, histogram: NoisedNorms) -> SignedLater:
        """The histogram, signed with the key whose public half the entry holds."""
        return cls(histogram, key.sign(canonical(histogram.to_json())))

    @property
    def digest(self) -> str:
        """The public key that signed it, 64 hexadecimal digits."""
        return signer_of(canonical(self.histogram.to_json()), self.signature)

    def to_json(self) -> dict[str, object]:
        """The fields of its line."""
        return {"signature": self.signature.hex(), "histogram": self.histogram.to_json()}


Evidence = Sealed | SignedLater


class EvidenceFile:
    """One JSON line a round: ledger index, salt or signature, histogram. Its owner's alone (0600).

    Lines that cannot be read are left out, and `problems` counts them.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._sealed: dict[int, list[Evidence]] = {}
        self._whole: int | None = None
        self._day, self._remembers = today(), True
        self.problems = 0
        """How many lines of the file could not be read."""
        if self._path.exists():
            self._load()

    @staticmethod
    def seal(histogram: NoisedNorms) -> Sealed:
        """Commit to a histogram with a fresh salt of the operating system's entropy."""
        return Sealed(histogram, secrets.token_bytes(_SALT_BYTES))

    def append(self, index: int, sealed: Evidence) -> None:
        """Keep the evidence of the ledger entry ``index``; it is on disk when this returns."""
        record = {"index": index, **sealed.to_json()}
        if self._whole is not None:
            os.truncate(self._path, self._whole)
            self._whole = None
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        descriptor = os.open(self._path, flags, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o600)
            file.write(canonical(record) + b"\n")
            file.flush()
            set_file_date(descriptor, self._day)
            os.fsync(descriptor)
        if self._remembers:
            self._sealed.setdefault(index, []).append(sealed)

    def forget(self) -> None:
        """Hold nothing in memory from now on: `matching` finds nothing; the file stays as it is."""
        self._sealed, self._remembers = {}, False

    def matching(self, entry: LedgerEntry) -> NoisedNorms | None:
        """The histogram that ``entry`` committed to, or None if it is not here."""
        for sealed in self._sealed.get(entry.index, ()):
            if sealed.digest == entry.evidence_digest:
                return sealed.histogram
        return None

    def _load(self) -> None:
        data = self._path.read_bytes()
        lines = data.split(b"\n")
        if lines.pop():  # a write that a crash interrupted
            self.problems += 1
            self._whole = data.rfind(b"\n") + 1  # cut by the next append: reading writes nothing
        for line in lines:
            try:
                record = json.loads(line)
                self._sealed.setdefault(int(record["index"]), []).append(_evidence(record))
            except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
                self.problems += 1


def _evidence(record: dict[str, Any]) -> Evidence:
    histogram = NoisedNorms.from_json(record["histogram"])
    if "signature" in record:
        return SignedLater(histogram, bytes.fromhex(record["signature"]))
    return Sealed(histogram, bytes.fromhex(record["salt"]))
