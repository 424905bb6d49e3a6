"""What every reader gives: records one at a time, none kept, and what could not be one.

A reader never holds more than one record, or one block of a file, in memory. Pictures come as they
lie in the source; `fedlens.data.formats.decoding` makes pixels of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedlens.data.dataset import DatasetError

Picture = Path | bytes | NDArray[np.uint8]
"""A file, a file's bytes, or pixels uint8 [h, w] or [h, w, 3]."""
TRAIN, VALIDATION, TEST = "train", "validation", "test"
LONGEST_REASON = 200
OVERSIZED = "a picture of over 64 million pixels or 64 MiB"


class SourceError(DatasetError):
    """A source that cannot be read on from here; the message names the place and the fix."""


class OutsideError(SourceError):
    """A path that leads out of its folder; what lies there is never opened."""


@dataclass(frozen=True, eq=False)
class SourceRecord:
    """One record as it lies in its source.

    Attributes:
        where: file and line or row, for people.
        picture: not decoded yet.
        values: texts by the name of their column.
        part: ``train``, ``test``, another name, or empty where the source has no parts.
    """

    where: str
    picture: Picture
    values: Mapping[str, str]
    part: str = ""


@dataclass(frozen=True)
class UnusableRecord:
    """What stands where a record should, and why it is none.

    Attributes:
        where: file and line or row.
        why: in words that fit many, so that they can be counted.
    """

    where: str
    why: str


Found = SourceRecord | UnusableRecord


def naming(what: str, kind: str = "COLUMN") -> str:
    """How a person names a column: to a command by its flag, in a data set's name behind its path.

    Args:
        what: the column's part: ``label``, ``user`` or ``image``.
        kind: what is named, in capitals.
    """
    return f"name it with --{what} (behind a path: ,{what}={kind})"


@dataclass(frozen=True)
class SourceColumns:
    """Columns that a reader itself must know, by name; empty: the usual ones.

    Attributes:
        image: of the picture, or of its file.
    """

    image: str = ""


@dataclass(frozen=True)
class SourceFormat:
    """One layout that records may lie in.

    Attributes:
        fits: whether a path looks like one; reads names, at most a head.
        records: its records, in the order in which they lie.
        labels: columns that may be the class, the first that is there.
        users: columns that may be the user.
        classes: names of its classes in the order of their numbers, where the layout fixes them.
        found: where a name that is no path lies on the disk, fetched if need be.
        labelled: whether its records may have labels.
    """

    fits: Callable[[Path], bool]
    records: Callable[[Path, SourceColumns], Iterator[Found]]
    labels: tuple[str, ...] = ("label",)
    users: tuple[str, ...] = ("user",)
    classes: tuple[str, ...] = ()
    found: Callable[[str], Path] | None = None
    labelled: bool = True


def reason(error: BaseException) -> str:
    """What an error says, as a part of one line: libraries quote whole files."""
    return str(error).partition("\n")[0][:LONGEST_REASON] or type(error).__name__


def part_of(name: str) -> str:
    """The part that a file or folder of this name is of: ``train``, ``test``, or its own name."""
    for known in (TRAIN, TEST):
        if name == known or name.startswith((f"{known}-", f"{known}_", f"{known}.")):
            return known
    return name


def inside(root: Path, name: str, where: str) -> Path:
    """``root / name``, if that lies in ``root``, links followed.

    Raises:
        OutsideError: it leads out.
    """
    path = root / name
    try:
        safe = path.resolve().is_relative_to(root.resolve()) and "\0" not in name
    except (OSError, ValueError, RuntimeError):
        safe = False
    if not safe:
        raise OutsideError(f"{where} leads out of {root}; only files below it are read")
    return path
