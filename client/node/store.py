"""A node's prepared store: arrays on the disk with an index by user, read where they are drawn.

Nothing of it is held in memory that grows with the number of records or users: arrays are mapped,
and the system reads the pages that a request touches.

| file | what it holds |
|---|---|
| ``store.json`` | layout's version, numbers, digests of the files; written last |
| ``federation.toml`` | the contract that it was prepared under |
| ``images.npy`` | uint8 [records, channels, side, side], in the order of the source |
| ``labels.npy`` | int64 [records] |
| ``index.npy`` | int64 [records]: records in the order of their users |
| ``offsets.npy`` | int64 [users + 1]: user i has ``index[offsets[i]:offsets[i + 1]]`` |
| ``ids.npy`` | int64 [users]: hashes of users' names under the node's secret, ascending |
| ``people.npy`` | int64 [users]: hashes of names under the owners' secret, where there is one |
| ``sensitive.npy`` | int64 [records], where the contract has a sensitive attribute |
| ``declared_NAME.npy`` | text [users], a public attribute that the contract declares |
| ``left-out.csv`` | what was left out, and why; for the owner |
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedlens.accountant.ledger.terms import fedlens_home
from fedlens.client.contract import CONTRACT, FederationContract, read_contract
from fedlens.client.users.protocol import ArrayUsers, DataOrigin, NodeDataError
from fedlens.foundation.files import write_durably

STORE, LEFT_OUT, LOOKS = "store.json", "left-out.csv", "looks.png"
LAYOUT = 1
DECLARED, PEOPLE = "declared_", "people"
VERIFIED = "verified-stores"
"""Folder of the node's own that says which stores were read whole, and when they were written."""
ARRAYS = ("images", "labels", "index", "offsets", "ids")


class NodeStoreFacts(BaseModel):
    """``store.json``: what a store says of itself."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    layout: int
    contract: str
    """SHA-256 of the contract that it was prepared under; see `FederationContract.digest`."""
    records: Annotated[int, Field(ge=0)]
    users: Annotated[int, Field(ge=0)]
    files: dict[str, str]
    """SHA-256 (hex) of each array's file, by the array's name."""


@dataclass(frozen=True, eq=False)
class NodeStore:
    """An opened store."""

    path: Path
    facts: NodeStoreFacts
    contract: FederationContract
    arrays: dict[str, NDArray[Any]]

    def users(self, partition: int) -> ArrayUsers:
        """Its users, as a node with this position among the nodes hosts them."""
        arrays, sensitive = self.arrays, self.contract.sensitive
        return ArrayUsers(
            images=arrays["images"],
            labels=arrays["labels"],
            indices=arrays["index"],
            offsets=arrays["offsets"],
            shape=self.contract.shape,
            classes=len(self.contract.classes),
            partition=partition,
            sensitive=arrays.get("sensitive"),
            sensitive_attribute="" if sensitive is None else sensitive.attribute,
            sensitive_classes=0 if sensitive is None else len(sensitive.values),
            ids=arrays["ids"],
            people=arrays.get(PEOPLE),
            origin=DataOrigin(True, self.contract.name, self.facts.contract),
            declared={
                name: arrays[DECLARED + name]
                for name in self.contract.declared
                if DECLARED + name in arrays
            },
        )


def is_store(path: Path) -> bool:
    """Whether a path is a prepared store's folder."""
    return (path / STORE).is_file()


def open_store(path: Path) -> NodeStore:
    """The store in a folder; its arrays' shapes are looked at, not their contents.

    Raises:
        NodeDataError: there is none, or it is of another layout, incomplete or damaged.
    """
    facts = _facts(path)
    if facts.layout != LAYOUT:
        raise NodeDataError(f"{path}: is of layout {facts.layout}, not {LAYOUT}: prepare it anew")
    contract = read_contract(path / CONTRACT)
    if contract.digest() != facts.contract:
        raise NodeDataError(
            f"{path}/{CONTRACT}: is not the contract that the data were prepared under; prepare "
            "them anew under the new one"
        )
    arrays = {name: _mapped(path, name) for name in facts.files}
    wanted = _shapes(facts, contract, arrays)
    for name, (shape, kind) in wanted.items():
        found = arrays.get(name)
        if found is None or found.shape != shape or found.dtype.kind != kind:
            raise NodeDataError(f"{path}/{name}.npy: is missing or of another form; prepare anew")
    return NodeStore(path, facts, contract, arrays)


def changed_files(store: NodeStore) -> list[str]:
    """Which of a store's files are not what was prepared, by their digests; reads all of it."""
    found = []
    for name, digest in store.facts.files.items():
        file = store.path / f"{name}.npy"
        with file.open("rb") as content:
            if hashlib.file_digest(content, "sha256").hexdigest() != digest:
                found.append(f"{file}: was changed since it was prepared; prepare the data anew")
    return found


def store_stamp(path: Path) -> str:
    """Another text whenever one of a store's files was written to, replaced or removed."""
    files = sorted({*path.glob("*.npy"), path / STORE, path / CONTRACT})
    found = hashlib.sha256(str(path.absolute()).encode())
    for file in files:
        with suppress(OSError):
            one = file.stat()
            stamps = one.st_mtime_ns, one.st_ctime_ns, one.st_size, one.st_ino
            found.update(f"{file.name} {stamps}\n".encode())
    return found.hexdigest()


def require_unchanged(store: NodeStore, stamp: str) -> None:
    """Refuse a store whose files are not what was prepared.

    All of it is read once, and again after any of its files was touched: each message of a deployed
    node comes to a new process, so `mark_unchanged` keeps in ``$FEDLENS_HOME`` that it was read.

    Args:
        store: the opened store.
        stamp: its `store_stamp` from before it was opened.

    Raises:
        NodeDataError: a file was changed; the message names it.
    """
    with suppress(OSError):
        if _mark(store.path, fedlens_home()).read_text(encoding="ascii") == stamp:
            return
    if changed := changed_files(store):
        raise NodeDataError(changed[0])
    mark_unchanged(store.path, stamp, fedlens_home())


def mark_unchanged(path: Path, stamp: str, home: Path) -> None:
    """Keep in a node's own folder that a store was read whole as it was at ``stamp``."""
    mark = _mark(path, home)
    with suppress(OSError):  # where nothing can be kept, all is read again
        mark.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_durably(mark, stamp.encode(), private=True)


def _mark(path: Path, home: Path) -> Path:
    return home / VERIFIED / hashlib.sha256(str(path).encode()).hexdigest()


def _facts(path: Path) -> NodeStoreFacts:
    try:
        return NodeStoreFacts.model_validate(json.loads((path / STORE).read_text("utf-8")))
    except OSError:
        raise NodeDataError(
            f"{path}: has no {STORE}: it was not prepared to the end; `fedlens node prepare` it"
        ) from None
    except (ValueError, ValidationError, RecursionError):
        raise NodeDataError(f"{path}/{STORE}: is damaged; prepare the data anew") from None


def _mapped(path: Path, name: str) -> NDArray[Any]:
    if "/" in name or name.startswith("."):
        raise NodeDataError(f"{path}/{STORE}: names a file {name!r}; prepare the data anew")
    file = path / f"{name}.npy"
    try:
        mapped: NDArray[Any] = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError, SyntaxError):
        try:  # an empty array cannot be mapped
            mapped = np.load(file, allow_pickle=False)
        except (OSError, ValueError, EOFError, SyntaxError, MemoryError):
            raise NodeDataError(f"{file}: is missing or damaged; prepare the data anew") from None
    return mapped


def _shapes(
    facts: NodeStoreFacts, contract: FederationContract, arrays: dict[str, NDArray[Any]]
) -> dict[str, tuple[tuple[int, ...], str]]:
    """The shape and kind of numbers that each array must have."""
    records, users = (facts.records,), (facts.users,)
    wanted: dict[str, tuple[tuple[int, ...], str]] = {
        "images": ((*records, *contract.shape), "u"),
        "labels": (records, "i"),
        "index": (records, "i"),
        "offsets": ((facts.users + 1,), "i"),
        "ids": (users, "i"),
    }
    if contract.sensitive is not None:
        wanted["sensitive"] = (records, "i")
    if PEOPLE in arrays:
        wanted[PEOPLE] = (users, "i")
    return wanted | {name: (users, "U") for name in arrays if name.startswith(DECLARED)}
