"""A node's own users in the store or ``.npz`` file that its operator names, read as drawn.

What is opened is the file's table: each record's user and label. Images stay on the disk: their
checksum is compared when the file, or a store for the first time, is opened, and from then on they
are read record by record, so that neither memory nor time of a request depends on how many there
are.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context
from numpy.typing import NDArray

from fedlens.client.node.slices import in_slice, wanted_slice
from fedlens.client.node.store import is_store, open_store, require_unchanged, store_stamp
from fedlens.client.users.protocol import ArrayUsers, LocalUsers, NodeDataError
from fedlens.data.mapped_arrays import map_array, packed_problem

DECLARED, ENROLLED = "declared_", "enrolled_"
REQUIRED = frozenset({"images", "labels", "users", "classes"})


def open_node_users(context: Context) -> LocalUsers:
    """The users in the prepared store, or the ``.npz`` file, that the node's operator names.

    It is named in the node's own configuration (``--node-config 'data="/abs/store"
    partition-id=0'``), never by the server. A store is a folder of ``fedlens node prepare``. A file
    holds ``images`` uint8 [n, c, h, w], ``labels``
    int64 [n], ``users`` int64 [n] (each record's user) and ``classes``; where users without records
    are enrolled, ``enrolled`` int64 [m], the numbers of all users, without whom no other counts;
    for slices ``enrolled_NAME`` text [m], each enrolled user's value of a public attribute, or
    ``declared_NAME`` text [n], of which a user without records has none;
    for a privatizer also ``sensitive`` int64 [n], ``sensitive_attribute`` (its name),
    ``sensitive_classes``, and ``hides`` bool [n] where some users do not mind (all of a user's
    records alike). The same object as before for as long as the file is not written to.

    Raises:
        NodeDataError: no file is named, or it cannot be read, lacks an array, or has one of
            another shape or type; a store is half written, or a file of it was changed since.
    """
    named = context.node_config.get("data")
    if not named:
        raise NodeDataError("no data is named: start it with --node-config 'data=\"/abs/file\"'")
    path = Path(str(named))
    try:
        status = path.stat()
    except OSError:
        raise NodeDataError(
            f"{path} cannot be read as a prepared store or a NumPy .npz file"
        ) from None
    stamp = f"{status.st_mtime_ns} {status.st_size} {status.st_ino}"
    if path.is_dir():
        stamp = store_stamp(path)
    partition = int(context.node_config.get("partition-id", 0))
    declared = str(context.node_config.get("declared", ""))
    wanted = wanted_slice(context.run_config)
    return _users_in_slice(path, stamp, partition, declared, wanted)


@lru_cache(maxsize=1)
def _users_in_slice(
    path: Path, stamp: str, partition: int, declared: str, wanted: str
) -> ArrayUsers:
    """The users of a slice, with what the node's operator declares of all its users."""
    users = _opened_users(path, stamp, partition)
    if not wanted:
        return users
    said = dict(_pair(word) for word in declared.split())
    whole = {name: np.full(len(users), value) for name, value in said.items()}
    return in_slice(replace(users, declared={**users.declared, **whole}), wanted)


def _pair(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not (name and equals and value):
        raise NodeDataError(f"declared={word!r} of the node's configuration: write NAME=VALUE")
    return name, value


@lru_cache(maxsize=1)
def _opened_users(path: Path, stamp: str, partition: int) -> ArrayUsers:
    """The users in a file; ``stamp`` tells whether it was written to since it was read."""
    if is_store(path):
        store = open_store(path)
        require_unchanged(store, stamp)
        return store.users(partition)
    found, images = _read_users(path)
    owners = found["users"].astype(np.int64)
    ids = np.unique(found.get("enrolled", owners)).astype(np.int64)
    places = np.searchsorted(ids, owners).clip(max=max(0, len(ids) - 1))
    known = np.flatnonzero(ids[places] == owners) if len(ids) else places[:0]
    order = known[np.argsort(places[known], kind="stable")]
    counts = np.bincount(places[known], minlength=len(ids))
    sensitive, sensitive_attribute, sensitive_classes = _read_sensitive(path, found)
    channels, height, width = (int(side) for side in images.shape[1:])
    return ArrayUsers(
        images=images,
        labels=found["labels"].astype(np.int64),
        indices=order.astype(np.int64),
        offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        shape=(channels, height, width),
        classes=int(found["classes"].item()),
        partition=partition,
        sensitive=sensitive,
        sensitive_attribute=sensitive_attribute,
        sensitive_classes=sensitive_classes,
        hides=_read_choices(path, found, known, places[known], len(ids)),
        ids=ids,
        declared=_read_declared(path, found, known, places[known], ids),
    )


def _read_users(path: Path) -> tuple[dict[str, NDArray[Any]], NDArray[np.uint8]]:
    """The arrays of a node's file but its images, and those as they lie on the disk."""
    if problem := packed_problem(path):
        raise NodeDataError(f"{path}: {problem}")
    try:
        with np.load(path, allow_pickle=False) as arrays:
            names = set(arrays.files)
            found = {name: arrays[name] for name in names - {"images"}}
        images = map_array(path, "images") if "images" in names else None
    except Exception:  # NumPy, zipfile and zlib raise many kinds on damaged files
        raise NodeDataError(f"{path} cannot be read as a NumPy .npz file") from None
    if missing := REQUIRED - names:
        raise NodeDataError(f"{path} lacks the arrays {sorted(missing)}")
    if strange := sorted(name for name, one in found.items() if not isinstance(one, np.ndarray)):
        raise NodeDataError(f"{path}: {strange[0]} is no array")
    if images is None or images.ndim != 4 or images.dtype != np.uint8:
        raise NodeDataError(f"{path}: images must be uint8 of shape [n, channels, height, width]")
    _check_columns(path, found, len(images))
    return found, images


def _check_columns(path: Path, found: dict[str, NDArray[Any]], count: int) -> None:
    columns = [found["labels"], found["users"]]
    whole = all(column.ndim == 1 and column.dtype.kind in "iu" for column in columns)
    if not whole or any(len(c) != count for c in columns) or not _is_number(found["classes"]):
        raise NodeDataError(
            f"{path}: labels and users must be one integer for each image, classes one integer"
        )
    enrolled = found.get("enrolled", columns[1])
    if enrolled.ndim != 1 or enrolled.dtype.kind not in "iu":
        raise NodeDataError(f"{path}: enrolled must be one integer for each user")


def _is_number(array: NDArray[Any]) -> bool:
    return array.size == 1 and array.dtype.kind in "iu"


def _read_sensitive(
    path: Path, found: dict[str, NDArray[Any]]
) -> tuple[NDArray[np.int64] | None, str, int]:
    """Each record's sensitive value, the attribute's name and classes, where the file has them."""
    if "sensitive" not in found:
        return None, "", 0
    sensitive = found["sensitive"]
    name, classes = found.get("sensitive_attribute"), found.get("sensitive_classes")
    named = name is not None and name.size == 1 and classes is not None and _is_number(classes)
    if not named or sensitive.dtype.kind not in "iu" or sensitive.shape != found["labels"].shape:
        raise NodeDataError(
            f"{path}: sensitive must be one integer an image, beside sensitive_attribute and "
            "sensitive_classes"
        )
    stated = found["sensitive_attribute"].item(), int(found["sensitive_classes"].item())
    return sensitive.astype(np.int64), str(stated[0]), stated[1]


def _read_choices(
    path: Path,
    found: dict[str, NDArray[Any]],
    records: NDArray[np.int64],
    owners: NDArray[np.int64],
    users: int,
) -> NDArray[np.bool_] | None:
    """Whether each user hides the attribute, in the users' order, where the file says so."""
    if "hides" not in found:
        return None
    hides = found["hides"]
    if hides.dtype != np.bool_ or hides.shape != found["users"].shape:
        raise NodeDataError(f"{path}: hides must be one bool for each image")
    # a user hides if any of their records says so: one user's bits must never fail the node
    chosen: NDArray[np.bool_] = np.zeros(users, dtype=np.bool_)
    np.logical_or.at(chosen, owners, hides[records])
    return chosen


def _read_declared(
    path: Path,
    found: dict[str, NDArray[Any]],
    records: NDArray[np.int64],
    owners: NDArray[np.int64],
    ids: NDArray[np.int64],
) -> dict[str, NDArray[np.str_]]:
    """Each user's value of every ``enrolled_NAME`` or ``declared_NAME`` array, in the users' order.

    With ``enrolled_NAME``, one for each of ``enrolled``, who is on a slice does not depend on who
    holds records. With ``declared_NAME``, one for each record, a user has that of the record that
    comes first, and none without records.
    """
    values = {}
    for name in sorted(found):
        beside = "enrolled" if name.startswith(ENROLLED) else "users"
        if not name.startswith((DECLARED, ENROLLED)):
            continue
        column = found[name]
        if column.dtype.kind not in "Uiu" or column.shape != found.get(beside, column[:0]).shape:
            each = "image" if beside == "users" else "number in 'enrolled'"
            raise NodeDataError(f"{path}: {name} must be one text or integer for each {each}")
        column = column.astype(np.str_)
        own = np.full(len(ids), "", dtype=column.dtype)
        if beside == "enrolled":
            own[np.searchsorted(ids, found[beside].astype(np.int64)[::-1])] = column[::-1]
        else:
            own[owners[::-1]] = column[records[::-1]]  # the first of a user is written last
        values[name.removeprefix(DECLARED).removeprefix(ENROLLED)] = own
    return values
