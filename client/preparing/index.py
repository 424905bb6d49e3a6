"""Which records are whose: from an owner for each record to an index by user."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedlens.client.contract import FederationContract
from fedlens.client.node.store import DECLARED, PEOPLE
from fedlens.client.preparing.growing import GrowingArray
from fedlens.client.preparing.identities import (
    IdentityError,
    fingerprint,
    own_number,
    person_numbers,
)

ROWS = 65_536


def write_index(
    folder: Path, contract: FederationContract, secret: bytes, roster: Path | None
) -> tuple[int, int]:
    """Write ``index``, ``offsets``, ``ids`` and the declared attributes; give records and users.

    Takes about 40 bytes a record for as long as it works, of which nothing stays. Users are in the
    order of their numbers, which are hashes: it tells nothing. The roster says the declared
    attributes, and of users of whom it does not the first record. Who holds none is then in no
    slice, which shows in how many are: say it in the roster.
    """
    owners: NDArray[np.int64] = np.load(folder / "owners.part", mmap_mode="r")
    ids = np.unique(owners)
    if roster is not None:
        enrolled = np.unique(_enrolled(folder, roster, secret))
        if contract.least_confidence and not np.isin(ids, enrolled).all():
            raise IdentityError(
                f"--roster {roster}: lacks users whose records the label model is sure of; name "
                "all users there, or who is enrolled would tell what their records show"
            )
        ids = np.union1d(ids, enrolled)
    places = np.searchsorted(ids, owners)
    order = np.argsort(places, kind="stable").astype("<i8")
    counts = np.bincount(places, minlength=len(ids))
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype("<i8")
    for name, array in (("index", order), ("offsets", offsets), ("ids", ids.astype("<i8"))):
        np.save(folder / f"{name}.npy", array)
    told = _declared_in(roster, contract, secret, ids)
    for name, values in contract.declared.items():
        _write_declared(folder, name, values, order, offsets, told.get(name))
    (folder / "owners.part").unlink()
    return len(owners), len(ids)


def _enrolled(folder: Path, roster: Path, secret: bytes) -> NDArray[np.int64]:
    """Numbers of the users who are named in a file, a line each."""
    part = folder / "roster.part"
    with GrowingArray(part, "<i8") as numbers:
        for name in _names(roster):
            numbers.append(own_number(secret, name))
    found: NDArray[np.int64] = np.load(part)
    part.unlink()
    return found


def _declared_in(
    roster: Path | None, contract: FederationContract, secret: bytes, ids: NDArray[np.int64]
) -> dict[str, NDArray[np.int16]]:
    """By attribute: the place of each user's value in the contract, as the roster says it, or -1.

    Raises:
        IdentityError: it names an attribute or a value that is not agreed.
    """
    told: dict[str, NDArray[np.int16]] = {}
    for line, words in () if roster is None else _lines(roster):
        for word in words.split():
            name, _, value = word.partition("=")
            if value not in contract.declared.get(name, ()):
                raise IdentityError(f"--roster {roster}: {word!r} is not agreed in [declared]")
            codes = told.setdefault(name, np.full(len(ids), -1, np.int16))
            place = np.searchsorted(ids, own_number(secret, line))
            codes[place] = contract.declared[name].index(value)
    return told


def _write_declared(
    folder: Path,
    name: str,
    values: tuple[str, ...],
    order: NDArray[Any],
    offsets: NDArray[Any],
    told: NDArray[np.int16] | None,
) -> None:
    part = folder / f"{DECLARED}{name}.part"
    codes: NDArray[np.int16] = np.load(part, mmap_mode="r")
    texts = np.array([*values, ""])  # the last: no value
    with GrowingArray(folder / f"{DECLARED}{name}.npy", texts.dtype.str) as column:
        for start in range(0, len(offsets) - 1, ROWS):
            firsts, ends = offsets[:-1][start : start + ROWS], offsets[1:][start : start + ROWS]
            own = np.full(len(firsts), len(values))
            held = firsts < ends
            own[held] = codes[order[firsts[held]]]
            if told is not None:
                said = told[start : start + ROWS]
                own = np.where(said < 0, own, said)
            column.append(texts[own])
    part.unlink()


def write_people(
    folder: Path, federation: str, secrets: tuple[bytes, bytes], roster: Path | None
) -> None:
    """Write each user's number under the owners' secret, by which nodes know a person as one.

    Comes after `write_index`, while ``prints.part`` has each record's fingerprint.

    Args:
        folder: of the store.
        federation: the contract's name.
        secrets: the node's own and the owners'.
        roster: names of enrolled users, those without records too.
    """
    ids, offsets = np.load(folder / "ids.npy"), np.load(folder / "offsets.npy")
    order = np.load(folder / "index.npy", mmap_mode="r")
    prints = np.load(folder / "prints.part", mmap_mode="r")
    people = np.zeros(len(ids), "<i8")
    held = np.flatnonzero(offsets[:-1] < offsets[1:])
    for start in range(0, len(held), ROWS):
        some = held[start : start + ROWS]
        people[some] = person_numbers(prints[order[offsets[some]]])
    if roster is not None:
        own, owners = secrets
        for name in _names(roster):
            found = np.frombuffer(fingerprint(owners, federation, name), np.uint8)
            people[np.searchsorted(ids, own_number(own, name))] = person_numbers(found[None])[0]
    np.save(folder / f"{PEOPLE}.npy", people)


def _names(roster: Path) -> Iterator[str]:
    return (name for name, _ in _lines(roster))


def _lines(roster: Path) -> Iterator[tuple[str, str]]:
    """A user a line, and behind a tab what is declared of that one: ``NAME=VALUE``, with blanks."""
    try:
        with roster.open(encoding="utf-8-sig") as lines:
            for line in lines:
                name, _, declared = line.strip().partition("\t")
                if name.strip():
                    yield name.strip(), declared
    except (OSError, UnicodeDecodeError) as error:
        raise IdentityError(f"--roster {roster}: cannot be read ({error})") from None
