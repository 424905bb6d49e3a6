"""A device's budget in nats: what releases with one key have told at most, counted on its disk.

Beside the key lies a file ``KEY.told``: the budget and, for each filter, the clean codes of what
was released, for the bound of :mod:`fedlens.privatizers.certificate` needs them. It is as secret as
the key. An entry is on the disk before its release exists; a crash between the two counts a release
too many. Records that were released before, byte for byte, cost nothing; near ones little; what no
longer fits the budget is refused. A refusal tells that many unlike records went before.

Each filter has a field of its own with independent noise, so costs add up over filters. The count
is of records that nobody else chose
(:func:`fedlens.privatizers.certificate.nats_beside_known`). A count that was deleted is missed by
the mark in its lock's file, ``KEY.told.lock``; an older copy that is put back, both files deleted,
and a key that is used elsewhere without them are not noticed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from torch import Tensor

from fedlens.foundation.errors import WrongUse
from fedlens.foundation.files import flush_folder, write_durably
from fedlens.privatizers.certificate import Releases
from fedlens.privatizers.noise_field import NoiseField

MOST_RECORDS = 1000
"""Distinct records of a filter that are counted: the bound of more takes seconds each."""
ENDING = ".told"
MARK = b"counted\n"


@dataclass
class ReleaseBudget:
    """The count of one key, as one filter adds to it.

    Attributes:
        path: of the file.
        noise: the filter's field.
        radius: r, that none of the filter's codes is longer than.
        limit: a budget to set, in nats; None for the one in the file.
    """

    path: Path
    noise: NoiseField
    radius: float
    limit: float | None = None

    def take(self, records: Tensor, codes: Tensor, *, whole: bool) -> list[bool]:
        """Count records [n, ...] with clean codes [n, k]; whether each may be released.

        Args:
            records: as the filter takes them.
            codes: without noise.
            whole: count none where one does not fit.

        Raises:
            WrongUse: the file cannot be used; or ``whole``, and one does not fit.
        """
        with self._locked() as told:
            fits = [
                told.admit(self, _digest(self.noise.key, record), code.double().numpy())
                for record, code in zip(records, codes, strict=True)
            ]
            if whole and not all(fits):
                raise WrongUse(
                    f"{fits.count(False)} of {len(fits)} records do not fit the budget of "
                    f"{told.limit:g} nats ({told.told_before:.1f} told before) or the "
                    f"{MOST_RECORDS:,} that are counted of a filter; nothing was released. "
                    f"Release fewer, or set --budget anew ({self.path})"
                )
            write_durably(self.path, told.to_bytes(), private=True)
            return fits

    def spent(self) -> tuple[float, float]:
        """Nats that were told at most, and the budget."""
        with self._locked() as told:
            return told.spent, told.limit

    @contextmanager
    def _locked(self) -> Iterator[_Told]:
        try:
            with _lock_of(self.path).open("ab") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                if has_counted(self.path) and not self.path.exists():
                    raise WrongUse(
                        f"{self.path}: is gone, and it had counted what was released with its key; "
                        "put its newest copy back, or take a new key with another name"
                    )
                try:
                    yield _Told.read(self)
                finally:  # also of a count that cannot be read, or where the caller fails
                    if self.path.exists():
                        _mark(file, self.path)
        except OSError as error:
            raise WrongUse(f"{self.path}: cannot be used: {error.strerror}") from None


@dataclass
class _Told:
    """What the file says."""

    limit: float
    filters: dict[str, dict[str, Any]]
    told_before: float = 0.0
    _counts: dict[str, Releases] = field(default_factory=dict)

    @classmethod
    def read(cls, budget: ReleaseBudget) -> _Told:
        path, own = budget.path, _digest(budget.noise.key, None)
        try:
            known = json.loads(path.read_bytes()) if path.exists() else {"filters": {}}
            limit = known["limit"] if budget.limit is None else budget.limit
            for name, one in known["filters"].items():
                _check_count(one, budget.noise.size if name == own else None)
            told = cls(_checked_nats(limit), known["filters"])
            told.told_before = told.spent
        except (
            ArithmeticError,
            AttributeError,
            LookupError,
            RecursionError,
            TypeError,
            ValueError,
        ):
            raise WrongUse(
                f"{path}: says not what was released with its key; put a copy of it back, or take "
                "a new key"
            ) from None
        return told

    @property
    def spent(self) -> float:
        return math.fsum(one["nats"] for one in self.filters.values())

    def admit(self, budget: ReleaseBudget, record: str, code: np.ndarray[Any, Any]) -> bool:
        own = self.filters.setdefault(
            _digest(budget.noise.key, None), {"nats": 0.0, "records": [], "codes": []}
        )
        if record in own["records"]:
            return True
        count = self._count(budget, own)
        near = budget.noise.correlations_with(code, np.reshape(own["codes"], (-1, len(code))))
        cost = count.cost(code, near)
        if len(own["records"]) >= MOST_RECORDS or self.spent + cost > self.limit:
            return False
        count.add(code, near)
        own["nats"] += cost
        own["records"].append(record)
        own["codes"].append(code.tolist())
        return True

    def _count(self, budget: ReleaseBudget, own: dict[str, Any]) -> Releases:
        name = _digest(budget.noise.key, None)
        if name not in self._counts:
            codes = np.reshape(own["codes"], (-1, budget.noise.size)).astype(np.float64)
            self._counts[name] = Releases.after(
                budget.radius, codes, budget.noise.correlations(codes), own["nats"]
            )
        return self._counts[name]

    def to_bytes(self) -> bytes:
        return json.dumps({"limit": self.limit, "filters": self.filters}).encode()


def has_counted(path: Path) -> bool:
    """Whether a count lies at ``path``, or did once."""
    lock = _lock_of(path)
    return path.exists() or (lock.exists() and lock.stat().st_size > 0)


def _lock_of(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


def _mark(lock: IO[bytes], path: Path) -> None:
    """Say in the lock's file that there is a count, which is on the disk by now."""
    if not os.fstat(lock.fileno()).st_size:
        lock.write(MARK)
        lock.flush()
        os.fsync(lock.fileno())
        flush_folder(path.parent)


def _checked_nats(value: Any) -> float:
    if not 0 <= float(value) < math.inf:  # with what is not a number nothing would ever be refused
        raise ValueError(value)
    return float(value)


def _check_count(one: dict[str, Any], size: int | None) -> None:
    """Refuse what is no count of a filter, of codes of ``size`` numbers where that is known."""
    one["nats"], records = _checked_nats(one["nats"]), one["records"]
    codes = np.asarray(one["codes"], dtype=np.float64)
    sound = isinstance(records, list) and len(codes) == len(records)
    sound = sound and all(isinstance(each, str) for each in records)
    if records:
        sound = sound and codes.ndim == 2 and size in (None, codes.shape[1])
    if not sound or not np.isfinite(codes).all():
        raise ValueError(codes.shape)


def _digest(key: bytes, record: Tensor | None) -> str:
    """Of a record, or of the filter, keyed: to who lacks the key it tells nothing."""
    found = hashlib.blake2b(key=key, person=b"told", digest_size=16)
    if record is not None:
        found.update(repr(tuple(record.shape)).encode() + (record + 0.0).numpy().tobytes())
    return found.hexdigest()


def checked_limit(nats: float | None) -> float | None:
    """A budget as it was given.

    Raises:
        WrongUse: it is not above 0 and finite.
    """
    if nats is not None and not 0 < nats < math.inf:
        raise WrongUse(f"--budget {nats:g}: give nats above 0; a record costs its capacity, say 6")
    return nats
