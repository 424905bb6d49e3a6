"""Names of values as numbers, and records dealt into three parts by whom they belong to."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedlens.data.formats.records import TEST, VALIDATION
from fedlens.privatizers.private_data import PrivateData, PrivateDataError, Split

MOST_VALUES = {"utility": 1000, "sensitive": 100}
"""More values are a measurement rather than an attribute; they would size the networks."""
TEST_PART, TEST_SHARE, TRAIN_SHARE = 2, 0.2, 0.4
"""The part for scoring; its share of the owners, about, and that for filters; attackers have the
rest."""
FEW_OWNERS = 200
"""Owners below which parts are counted out exactly."""
SHOWN = 5


@dataclass(frozen=True, eq=False)
class OwnRecords:
    """Records as they were read, not yet dealt.

    Attributes:
        name: the source's full name.
        path: where they lie, named in errors.
        records: float32 [n, ...].
        utility: text of each record, or None where the record is its own utility.
        sensitive: text of each record; [n * T], step by step, where ``steps`` is above 0.
        owners: text of each record, or None.
        limits: least and greatest value of a record's entry.
        unit: what a record's entries are multiplied with to be what was read.
        steps: of a series; 0 of other records.
        keys: what decides each record's part: its owner, else a digest of the record, by which
            records that are the same are never in two parts.
        notes: what was left out or changed, a line each, for people.
    """

    name: str
    path: Path
    records: Tensor
    utility: list[str] | None
    sensitive: list[str]
    owners: list[str] | None
    keys: list[bytes]
    limits: tuple[float, float] = (-1.0, 1.0)
    unit: float = 1.0
    steps: int = 0
    notes: list[str] = field(default_factory=list)


def owner_number(name: str) -> int:
    """A number of 63 bits for whom a record belongs to, by the name alone.

    Numbered in the order of their names, one owner less would give others another number.
    """
    plain = unicodedata.normalize("NFC", name).strip()
    return int.from_bytes(hashlib.sha256(plain.encode()).digest()[:8], "big") >> 1


def numbered(
    path: Path, column: Sequence[str], what: str
) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """The values of an attribute, in order (of numbers by size), and each record's number.

    Raises:
        PrivateDataError: there are more than an attribute can have.
    """
    names = sorted(set(column), key=value_order)
    if len(names) > MOST_VALUES[what]:
        raise PrivateDataError(
            f"{path}: {what} has {len(names)} values, such as {', '.join(names[:3])}; put them in "
            f"at most {MOST_VALUES[what]} groups"
        )
    places = {name: place for place, name in enumerate(names)}
    return tuple(names), np.array([places[value] for value in column], np.int64)


def parts_of(keys: Sequence[bytes], seed: int, *, owned: bool = False) -> NDArray[np.int64]:
    """Which part each record is in: 0 for filters, 1 for attackers, 2 for scoring; int64 [n].

    A hash of the record's key (its owner, or the record itself) keyed by ``seed`` decides, so that
    records with one key are in one part, and adding or removing records never moves another. But
    fewer than `FEW_OWNERS` owners are counted out by the order of their hashes, or chance would
    leave a part next to nobody.

    Args:
        keys: of the records.
        seed: of the hash.
        owned: whether keys are owners.
    """
    known = _shares(set(keys), seed, owned=owned)
    shares = np.array([known[one] for one in keys])
    return np.where(
        shares < TEST_SHARE, TEST_PART, np.where(shares < TEST_SHARE + TRAIN_SHARE, 0, 1)
    )


def _shares(keys: Set[bytes], seed: int, *, owned: bool) -> dict[bytes, float]:
    """Where each key stands, in [0, 1)."""
    secret = f"fedlens parts {seed}".encode()
    known = {one: _share(one, secret) for one in keys}
    if not owned or len(known) >= FEW_OWNERS:
        return known
    ranked = sorted(known, key=known.__getitem__)
    return {one: (place + 0.5) / len(ranked) for place, one in enumerate(ranked)}


def published_parts(parts: list[str], seed: int) -> NDArray[np.int64]:
    """For filters (0), attackers (1) or scoring (2), by the parts of who published them.

    Without a validation part attackers have half of the training records.
    """
    names = np.array(parts)
    found = np.select([names == TEST, names == VALIDATION], [TEST_PART, 1], 0)
    if VALIDATION not in parts:
        rows = np.random.default_rng(seed).permutation(np.flatnonzero(names != TEST))
        found[rows[len(rows) // 2 :]] = 1
    return found.astype(np.int64)


def deal(own: OwnRecords, seed: int, parts: NDArray[np.int64] | None = None, by: str = "") -> Split:
    """The records in three parts: those given, else by owner (by the record, without owners).

    Each part's records stand in an order by chance, whatever the order of the files: the first
    hundred stand for all, where fewer are asked for.

    Args:
        own: the records.
        seed: of how they are dealt.
        parts: of each record, where something else decides; see `parts_of`.
        by: what that is, in words.

    Raises:
        PrivateDataError: an attribute has one value, or a part lacks records or a value.
    """
    names, sensitive = numbered(own.path, own.sensitive, "sensitive")
    if len(names) < 2:
        raise PrivateDataError(
            f"{own.path}: sensitive has one value only, {names[0]!r}, so there is nothing to hide; "
            "choose another column"
        )
    used, utility = _utility(own)
    owners = None if own.owners is None else np.unique(own.owners, return_inverse=True)[1]
    parts = parts_of(own.keys, seed, owned=own.owners is not None) if parts is None else parts
    shape = (len(own.records), own.steps) if own.steps else (len(own.records),)
    sensitive = sensitive.reshape(shape)
    _check_parts(own, names, sensitive, parts, seed)
    whole = PrivateData(
        name=own.name,
        records=own.records,
        utility=torch.from_numpy(utility.reshape(shape) if used else np.zeros(shape, np.int64)),
        sensitive=torch.from_numpy(sensitive),
        side=None,
        owners=None if owners is None else torch.from_numpy(owners.astype(np.int64)),
        utility_classes=max(1, len(used)),
        sensitive_classes=len(names),
        low=own.limits[0],
        high=own.limits[1],
        utility_names=used,
        sensitive_names=names,
        unit=own.unit,
    )
    order = np.random.default_rng(seed).permutation(len(parts))
    rows = (torch.from_numpy(order[parts[order] == part]) for part in range(3))
    train, attack, test = map(whole.take, rows)
    by = by or ("record" if own.owners is None else "owner")
    sizes = f"{len(train)} records for filters, {len(attack)} for attackers, {len(test)} to score"
    return Split(train, attack, test, notes=(*own.notes, f"dealt by {by}: {sizes}"))


def keys_of(owners: Sequence[str] | None, records: Tensor) -> list[bytes]:
    """The keys of records, float32 [n, ...]; see `OwnRecords`."""
    if owners is not None:
        return [owner.encode() for owner in owners]
    return [hashlib.sha256(record.numpy().tobytes()).digest() for record in records]


def left_out(notes: list[str], names: Sequence[str], why: str, count: int | None = None) -> None:
    """Add a note that ``count`` (by default all these) are left out; the first few by name."""
    total = len(names) if count is None else count
    if total:
        few = ", ".join(names[:SHOWN]) + (", ..." if total > SHOWN else "")
        notes.append(f"{total} left out, {why}" + (f": {few}" if names else ""))


def _utility(own: OwnRecords) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    if own.utility is None:
        return (), np.zeros(len(own.records), np.int64)
    names, found = numbered(own.path, own.utility, "utility")
    if len(names) < 2:
        raise PrivateDataError(
            f"{own.path}: utility has one value only, {names[0]!r}, so there is nothing to know; "
            "choose another column"
        )
    return names, found


def _check_parts(
    own: OwnRecords,
    names: tuple[str, ...],
    sensitive: NDArray[np.int64],
    parts: NDArray[np.int64],
    seed: int,
) -> None:
    """Each part has records, and those that are learned from have every sensitive value."""
    held = "records" if own.owners is None else "owners"
    for part, what in enumerate(("filters", "attackers", "scoring")):
        found = np.unique(sensitive[parts == part])
        if not len(found):
            raise PrivateDataError(
                f"{own.path}: too few {held} for three parts, none is for {what}; give more "
                f"{held} (seed {seed})"
            )
        if part < 2 and len(found) < len(names):
            lacking = next(name for place, name in enumerate(names) if place not in found)
            count = sum(value == lacking for value in own.sensitive)
            raise PrivateDataError(
                f"{own.path}: sensitive value {lacking!r} occurs {count} times, and none of them "
                f"is in the part for {what} (seed {seed}); give more {held} with it, or merge it "
                "with another value"
            )


def _share(key: bytes, secret: bytes) -> float:
    digest = hashlib.blake2b(key, digest_size=8, key=secret[:64]).digest()
    return int.from_bytes(digest, "big") / 2**64


def value_order(value: str) -> tuple[int, float, str]:
    """A key that sorts values: numbers by size, then texts."""
    try:
        number = float(value)
    except ValueError:
        return 1, 0.0, value
    return (0, number, value) if number == number else (1, 0.0, value)
