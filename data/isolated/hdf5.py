"""What a child process reads of HDF5 files: data sets with a row a record, or a group a user.

Links into other files, data sets whose values lie in other files, and filters that are no part of
HDF5 are not followed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ["HDF5_PLUGIN_PRELOAD"] = "::"  # no code from outside is loaded as a filter

import h5py
import numpy as np

from fedlens.data.isolated.process import Piece

ROWS = 256
MOST_USERS = 5_000_000
EXAMPLES = "examples"
"""TensorFlow Federated's group: a group a user in it."""
PICTURES = ("pixels", "images", "image", "x", "X", "data", "img")


def read_records(path: Path, image: str) -> Iterator[Piece]:
    """Pieces of rows: the first has ``names`` and ``image`` (None where no data set has pictures).

    The second has ``least``, ``most`` and ``whole`` of all pixels. Then ``user`` (empty: no groups
    of users), ``shape`` and ``kind`` of the rows' pixels, which lie beside, and ``values``: texts
    by column.
    """
    with h5py.File(path, "r") as file:
        groups = dict(_groups(file))
        first = next(iter(groups.values()), None)
        sets = {} if first is None else dict(_sets(first))
        chosen = _chosen(sets, image)
        yield {"names": sorted(sets) or sorted(map(str, file)), "image": chosen}, b""
        if chosen is None:
            return
        yield _scale(groups, chosen), b""
        for user, group in groups.items():
            yield from _rows(user, dict(_sets(group)), chosen)


def _groups(file: Any) -> Iterator[tuple[str, Any]]:
    """By user, where there are groups of users; else the file itself."""
    if _is_within(file, EXAMPLES) and isinstance(file[EXAMPLES], h5py.Group):
        examples = file[EXAMPLES]
        for number, user in enumerate(examples):
            if number >= MOST_USERS:
                raise ValueError("it has too many users")
            if _is_within(examples, user) and isinstance(examples[user], h5py.Group):
                yield str(user), examples[user]
    else:
        yield "", file


def _is_within(group: Any, name: str) -> bool:
    link = group.get(name, getlink=True)
    return isinstance(link, h5py.HardLink)


def _sets(group: Any) -> Iterator[tuple[str, Any]]:
    """Data sets of a group whose values lie in this file."""
    for name in group:
        if not _is_within(group, name) or not isinstance(group[name], h5py.Dataset):
            continue
        if not group[name].is_virtual and not group[name].external and group[name].shape:
            yield str(name), group[name]


def _chosen(sets: dict[str, Any], asked: str) -> str | None:
    fit = [name for name, one in sets.items() if one.ndim in (3, 4) and one.dtype.kind in "iuf"]
    if asked:
        return asked if asked in fit else None
    usual = [name for name in PICTURES if name in fit]
    return next(iter([*usual, *(fit if len(fit) == 1 else [])]), None)


def _scale(groups: dict[str, Any], chosen: str) -> dict[str, Any]:
    least, most, whole = float("inf"), float("-inf"), True
    for group in groups.values():
        found = dict(_sets(group)).get(chosen)
        if found is None:
            continue
        for start in range(0, len(found), ROWS):
            some = np.asarray(found[start : start + ROWS], np.float64)
            if not bool(np.isfinite(some).all()):
                raise ValueError("some of its pixels are no numbers")
            least, most = min(least, float(some.min())), max(most, float(some.max()))
            whole = whole and bool((some == np.rint(some)).all())
    if not least <= most:
        raise ValueError("it has no pixels")
    return {"least": least, "most": most, "whole": whole}


def _rows(user: str, sets: dict[str, Any], chosen: str) -> Iterator[Piece]:
    if (pictures := sets.get(chosen)) is None:
        return
    count = len(pictures)
    columns = {
        name: one for name, one in sets.items()
        if name != chosen and one.shape in ((count,), (count, 1))
    }  # fmt: skip
    for start in range(0, count, ROWS):
        some = np.asarray(pictures[start : start + ROWS])
        kind = "u1" if some.dtype == np.uint8 else "<f4"
        values = {
            name: [_text(value) for value in np.ravel(one[start : start + ROWS])]
            for name, one in columns.items()
        }
        said = {"user": user, "shape": some.shape, "kind": kind, "values": values}
        yield said, np.ascontiguousarray(some, kind).tobytes()


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace").strip("\0 ")
    if isinstance(value, np.floating | float):
        return "" if np.isnan(value) else str(int(value) if float(value).is_integer() else value)
    return str(value)
