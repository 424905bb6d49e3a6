"""LEAF's layout (FEMNIST and others): JSON files of users with their records, user by user."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from fedlens.data.formats.records import (
    Found,
    SourceColumns,
    SourceError,
    SourceFormat,
    SourceRecord,
    UnusableRecord,
    part_of,
    reason,
)
from fedlens.data.spec import Augmentation, DatasetSpec

BLOCK = 2**20
MOST_TEXT = 2**26
"""Characters of one user's records: more are no user's, or no JSON."""
FEMNIST_CLASSES = tuple("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
SIDE = 28
MOST_TRIED = 16


def leaf_records(path: Path, columns: SourceColumns) -> Iterator[Found]:
    """Records of FEMNIST in LEAF's JSON: one file, or all of a folder and its ``train``, ``test``.

    A user's records are in memory at a time. Pixels are shares of white, 784 a record. Values:
    ``label`` (digit or letter by LEAF's order) and ``user``.

    Raises:
        SourceError: a file is no such JSON, or there is none.
    """
    files = [path] if path.is_file() else _files(path)
    if not files:
        raise SourceError(f"{path}: has no JSON files of LEAF; name the folder all_data or train")
    for file in files:
        part = part_of(file.parent.name) if file.parent != path else ""
        for user, records in _users(file):
            yield from _of_user(file, user, records, part)


def _files(folder: Path) -> list[Path]:
    places = [folder, *(folder / name for name in ("train", "test") if (folder / name).is_dir())]
    return [file for place in places for file in sorted(place.glob("*.json"))]


def _of_user(file: Path, user: str, records: Any, part: str) -> Iterator[Found]:
    where = f"{file.name} user {user[:80]}"
    try:
        pictures, labels = records["x"], records["y"]
        pairs = list(zip(pictures, labels, strict=True))
    except (KeyError, TypeError, ValueError):
        yield UnusableRecord(where, "no lists x and y of one length")
        return
    for row, (picture, label) in enumerate(pairs):
        try:
            values = {"label": FEMNIST_CLASSES[_number(label)], "user": user}
            yield SourceRecord(f"{where} record {row}", _pixels(picture), values, part)
        except (TypeError, ValueError, IndexError, OverflowError):
            yield UnusableRecord(f"{where} record {row}", "no 784 shares of white with a label")


def _number(label: Any) -> int:
    if type(label) is not int or label < 0:
        raise ValueError("no label")
    return label


def _pixels(picture: Any) -> NDArray[np.uint8]:
    shares = np.asarray(picture, np.float64).reshape(SIDE, SIDE)
    if not bool(np.isfinite(shares).all()) or shares.min() < 0 or shares.max() > 1:
        raise ValueError("no shares")
    return np.rint(255 * shares).astype(np.uint8)


def _users(file: Path) -> Iterator[tuple[str, Any]]:
    """Each user's name and value in the object ``user_data``; what stands before is passed over."""
    try:
        with file.open(encoding="utf-8") as stream:
            text = _JsonText(stream, file)
            text.expect("{")
            while text.value() != "user_data":
                text.expect(":")
                text.value()
                text.expect(",")
            text.expect(":")
            text.expect("{")
            while text.peek() != "}":
                user = text.value()
                text.expect(":")
                yield str(user), text.value()
                if text.peek() != "}":
                    text.expect(",")
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"{file}: cannot be read ({reason(error)})") from None


class _JsonText:
    """JSON values one after the other of a file that is never whole in memory."""

    def __init__(self, stream: IO[str], path: Path) -> None:
        self._stream, self._path = stream, path
        self._text, self._place, self._ended = "", 0, False
        self._decoder = json.JSONDecoder()

    def peek(self) -> str:
        """The next character that is no blank; empty at the end."""
        while True:
            while self._place < len(self._text) and self._text[self._place] in " \t\r\n":
                self._place += 1
            if self._place < len(self._text) or not self._more(BLOCK):
                return self._text[self._place : self._place + 1]

    def expect(self, sign: str) -> None:
        """Pass over a sign."""
        if self.peek() != sign:
            raise SourceError(f"{self._path}: is no JSON of LEAF; {sign!r} is missing")
        self._place += 1

    def value(self) -> Any:
        """The next value, as much being read as it takes."""
        self.peek()
        block = BLOCK
        while True:
            try:
                found, end = self._decoder.raw_decode(self._text, self._place)
                if end < len(self._text) or self._ended:  # a number may go on in the next block
                    self._place = end
                    return found
            except (ValueError, RecursionError) as error:
                if self._ended or isinstance(error, RecursionError):
                    raise SourceError(
                        f"{self._path}: is no JSON of LEAF ({reason(error)})"
                    ) from None
            self._more(block)
            block *= 2  # so that a long value is tried a few times only
            if len(self._text) - self._place > MOST_TEXT:
                raise SourceError(f"{self._path}: one user has over 64 MiB; split the file")

    def _more(self, size: int) -> bool:
        block = self._stream.read(size)
        self._text, self._place = self._text[self._place :] + block, 0
        self._ended = not block
        return bool(block)


def _fits(path: Path) -> bool:
    if path.is_file():
        named = path.name.lower().startswith("all_data")
        return path.suffix.lower() == ".json" and (named or _is_leaf(path))
    return any(_is_leaf(file) for file in _files(path)[:MOST_TRIED])


def _is_leaf(file: Path) -> bool:
    """Whether a file begins with one of the names that LEAF's do."""
    with file.open("rb") as stream:
        head = stream.read(256)
    return any(name in head for name in (b'"users"', b'"user_data"', b'"num_samples"'))


LEAF = DatasetSpec(
    "LEAF JSON (FEMNIST)", format=SourceFormat(_fits, leaf_records, classes=FEMNIST_CLASSES)
)
FEMNIST = DatasetSpec(
    "FEMNIST",
    augmentation=Augmentation("affine"),
    format=LEAF.format,
    attribution="FEMNIST by Caldas et al. (2018), from NIST data",
    public=True,
)
