"""What every reader gives: records one at a time, none kept, and what could not be one.

A reader never holds more than one record, or one block of a file, in memory. Pictures come as they
lie in the source; `fedlens.data.formats.decoding` makes pixels of them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedlens.data.dataset import DatasetError
from fedlens.data.labelled.pictures import TOO_LARGE

TRAIN, VALIDATION, TEST = "train", "validation", "test"
LONGEST_REASON = 200
OVERSIZED = TOO_LARGE
LINK_OUT = "a link that leads out of the folder"
PATH_OUT = "a path that leads out of the folder"
_PARTS = {
    **dict.fromkeys(("train", "training", "trn"), TRAIN),
    **dict.fromkeys(("val", "valid", "validation", "validate", "dev", "devel"), VALIDATION),
    **dict.fromkeys(("test", "testing", "tst", "eval", "evaluation"), TEST),
}
"""Words that say which part a file, folder or record is of."""
_FILLERS = frozenset(
    (
        "set",
        "data",
        "dataset",
        "split",
        "images",
        "image",
        "imgs",
        "img",
        "pictures",
        "part",
        "files",
    )
)
_WORDS = re.compile(r"[\W_]+|(?<=[a-z])(?=\d)")
_NO_VALUE = frozenset(("", "nan", "null", "<na>", "n/a", "na", "nat"))
"""What other programs write where there is no value."""
_NO_ONE = _NO_VALUE | {"none", "unknown", "undefined", "missing", "?", "-", "--", "."}


@dataclass(frozen=True, eq=False)
class Frame:
    """One of several frames or pages of a picture.

    Attributes:
        picture: a file, or a file's bytes.
        number: from 0.
    """

    picture: Path | bytes
    number: int


Picture = Path | bytes | NDArray[np.uint8] | Frame
"""A file, a file's bytes, pixels uint8 [h, w] or [h, w, 3], or one frame of a file."""


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
        quiet: whether it is no fault: no record, or one that was not asked for.
        part: as in `SourceRecord`.
    """

    where: str
    why: str
    quiet: bool = False
    part: str = ""


Found = SourceRecord | UnusableRecord


def naming(what: str, kind: str = "COLUMN") -> str:
    """How a person names a column: to a command by its flag, in a data set's name behind its path.

    Args:
        what: the column's part: ``label``, ``user`` or ``image``.
        kind: what is named, in capitals.
    """
    other = f", of a filter's data with --{_OF_FILTERS[what]}" if what in _OF_FILTERS else ""
    return f"name it with --{what}{other} (behind a path: ,{what}={kind})"


_OF_FILTERS = {"label": "utility", "user": "owner"}
"""Flags that name a column where something is to be hidden."""


def _untold(what: str) -> None:
    """Where nobody asks what a reader takes for granted."""


@dataclass(frozen=True)
class SourceColumns:
    """What a reader itself must know; empty: as usual.

    Attributes:
        image: column of the picture, or of its file.
        label: column of the class, where one is named.
        is_class: whether a name is one of the agreed classes, where some are agreed.
        told: told what the reader took for granted, a line each.
    """

    image: str = ""
    label: str = ""
    is_class: Callable[[str], bool] | None = None
    told: Callable[[str], object] = _untold


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
        in_folders: whether its pictures may lie in several folders. Of a path that holds such
            folders no other format is thought, whatever lies beside them.
    """

    fits: Callable[[Path], bool]
    records: Callable[[Path, SourceColumns], Iterator[Found]]
    labels: tuple[str, ...] = ("label",)
    users: tuple[str, ...] = ("user",)
    classes: tuple[str, ...] = ()
    found: Callable[[str], Path] | None = None
    labelled: bool = True
    in_folders: bool = False


SHOWN = 20
_BETWEEN = re.compile(r"[\s_-]+")


@lru_cache(maxsize=4096)
def alike(name: str) -> str:
    """A column's name without what people write in different ways: capitals, blanks, ``-``."""
    return _BETWEEN.sub("", name.casefold())


def column_named(there: Iterable[str], usual: Iterable[str]) -> str:
    """The first of the usual names that is there, as it is written there; empty where none is."""
    names = {alike(name): name for name in reversed(list(there))}
    return next((names[alike(one)] for one in usual if alike(one) in names), "")


def few_of(names: Iterable[str]) -> str:
    """Names in a message, of which many may be there."""
    every = sorted(names)
    return (", ".join(every[:SHOWN]) or "none") + (", ..." if len(every) > SHOWN else "")


def reason(error: BaseException) -> str:
    """What an error says, as a part of one line: libraries quote whole files."""
    return str(error).partition("\n")[0][:LONGEST_REASON] or type(error).__name__


def plain_name(name: str) -> str:
    """A user's name as it is told from others: one form of each character, no blanks around it."""
    return unicodedata.normalize("NFC", name).strip()


def is_value(text: str) -> bool:
    """Whether a cell has a value, rather than what other programs write for none."""
    return text.strip().casefold() not in _NO_VALUE


def is_someone(text: str) -> bool:
    """Whether a cell names a user, rather than that none is known."""
    return text.strip().casefold() not in _NO_ONE


def part_of(name: str) -> str:
    """The part that a record is of whose part is called so; its own name where no word is known."""
    return known_part(name) or name


def known_part(name: str) -> str:
    """The part that a word of a name says: ``imagenet-train-000.tar``; empty for none."""
    return next((_PARTS[word] for word in reversed(_words(name)) if word in _PARTS), "")


def whole_part(name: str) -> str:
    """The part that a folder is, of which the whole name says so: ``Training_set``, ``val2017``."""
    words = [word for word in _words(name) if not word.isdecimal() and word not in _FILLERS]
    return _PARTS.get(words[0], "") if len(words) == 1 else ""


def is_filler(name: str) -> bool:
    """Whether a folder's name says no more than that files are in it: ``images``."""
    return all(word in _FILLERS for word in _words(name))


def _words(name: str) -> list[str]:
    return [word for word in _WORDS.split(name.casefold()) if word]


HEAD = 132
"""Bytes of a file's beginning by which formats are told: DICOM's mark ends there."""


def start_of(file: Path) -> bytes:
    """The first `HEAD` bytes of a plain file; none of anything else, or of what cannot be read."""
    try:
        if not file.is_file():
            return b""
        with file.open("rb") as stream:
            return stream.read(HEAD)
    except OSError:
        return b""


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
