"""The file that a table's cell names: below the table's folder, however people write it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from urllib.parse import parse_qs, unquote, urlsplit

from fedlens.data.formats.layouts import is_junk
from fedlens.data.formats.records import (
    PATH_OUT,
    OutsideError,
    SourceError,
    UnusableRecord,
    inside,
    is_value,
)
from fedlens.data.labelled.pictures import SUFFIXES

ENDINGS = (*SUFFIXES, ".dcm", ".dicom")
MOST_FILES = 2_000_000
"""Names that are kept where a table names files without their folders."""
LONGEST = 4096
"""Letters of a file's name."""
_URL = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
_DRIVE = re.compile(r"[A-Za-z]:[\\/]|\\\\")
_LOCAL, _UPLOAD = "/data/local-files/", "/data/upload/"
"""How Label Studio names files: below its folder of local files, and those that were uploaded."""
GONE = "no such file"


class NamedFiles:
    """Finds files below a folder; none outside it is ever opened."""

    def __init__(self, root: Path, table: Path, seen: set[int] | None = None) -> None:
        """Look below ``root``.

        Args:
            root: the folder.
            table: that names them. Its folder comes first, and of several files of one name those
                in a folder that is called like the table.
            seen: takes note of the files that are named, for `count_unnamed`.
        """
        self._root, self._near = root, table.stem
        self._places = list(dict.fromkeys((table.parent, root)))
        self._seen = set() if seen is None else seen
        self._by_name: dict[str, list[Path]] | None = None

    def find(self, name: str, where: str) -> Path | UnusableRecord:
        r"""The file of a cell, or why there is none.

        A cell is a path below the folder, with ``/`` or ``\\``, with its ending or without; a bare
        name may also lie in a folder further down, if it does so once. Label Studio's own names
        are understood.

        Raises:
            SourceError: there are too many files to look among.
        """
        place = f"{where} ({name[:80]})"
        if why := _no_name(name):
            return UnusableRecord(where, why)
        if _DRIVE.match(name):
            return UnusableRecord(
                place, "a path of a Windows machine; name files by their way from the table"
            )
        if _URL.match(name):
            return UnusableRecord(place, "an address of another machine; fetch the files first")
        try:
            for one in _ways(name):
                if (found := self._direct(one, where)) is not None:
                    return found
        except OutsideError:
            return UnusableRecord(place, PATH_OUT)
        few = self._further_down(PurePosixPath(_ways(name)[-1]))
        if len(few) > 1:
            few = [one for one in few if self._near in one.parent.parts] or few
        if len(few) > 1:
            return UnusableRecord(place, "several files of this name; name folders too")
        return few[0] if few else UnusableRecord(place, GONE)

    def _direct(self, name: str, where: str) -> Path | None:
        found = (self._below(place, name, where) for place in self._places)
        return next((one for one in found if one is not None), None)

    def _below(self, place: Path, name: str, where: str) -> Path | None:
        path = inside(self._root, str(place.relative_to(self._root) / name), where)
        if _exists(path):
            return path
        if path.suffix.lower() in ENDINGS:
            return None
        with_ending = (path.with_name(path.name + ending) for ending in ENDINGS)
        upper = (path.with_name(path.name + ending.upper()) for ending in ENDINGS[:4])
        return next((one for one in (*with_ending, *upper) if _exists(one)), None)

    def _further_down(self, wanted: PurePosixPath) -> list[Path]:
        """Files further down whose way ends so."""
        if self._by_name is None:
            self._by_name = self._indexed()
        folders = [one.casefold() for one in wanted.parts[:-1]]
        return [
            one
            for one in self._by_name.get(wanted.name.casefold(), [])
            if [x.casefold() for x in one.parent.parts][len(one.parent.parts) - len(folders) :]
            == folders
        ]

    def note(self, file: Path) -> None:
        """Take note of a file that a row names."""
        if len(self._seen) < MOST_FILES:
            self._seen.add(hash(file))

    def _indexed(self) -> dict[str, list[Path]]:
        found: dict[str, list[Path]] = {}
        for number, path in enumerate(_pictures_below(self._root)):
            if number >= MOST_FILES:
                raise SourceError(
                    f"{self._root}: has over {MOST_FILES} files to look for names among; name each "
                    "with its folder"
                )
            for key in {path.name.casefold(), path.stem.casefold()}:
                found.setdefault(key, []).append(path)
        return found


def _no_name(cell: str) -> str:
    """Why a cell holds no file's name; empty where it may be one."""
    if not is_value(cell):
        return "no file is named"
    if cell.startswith("data:"):
        return "a picture written as text; write each to a file"
    return "a text that is no file's name" if len(cell) > LONGEST else ""


def count_unnamed(root: Path, seen: set[int]) -> int:
    """How many pictures below a folder are none of those; 0 where there are too many to say."""
    count = 0
    for number, file in enumerate(_pictures_below(root)):
        if number >= MOST_FILES:
            return 0
        count += hash(file) not in seen
    return count


def _pictures_below(root: Path) -> Iterator[Path]:
    """Files with a picture's ending, links left out: they may lead anywhere."""
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(one for one in folders if not is_junk(one))
        for name in sorted(names):
            path = Path(folder, name)
            if path.suffix.lower() in ENDINGS and not is_junk(name) and not path.is_symlink():
                yield path


def _ways(name: str) -> list[str]:
    """Paths that a cell may mean, in the order in which they are tried; a bare name last."""
    if name.startswith(_LOCAL):
        given = parse_qs(urlsplit(name).query).get("d", [""])[0]
        return [given.lstrip("/")]
    if name.startswith(_UPLOAD):
        plain = unquote(name)
        return [plain[1:], plain.removeprefix("/data/"), plain.rpartition("/")[2]]
    plain = name.removeprefix("./")
    return [plain] if "\\" not in plain else [plain, plain.replace("\\", "/")]


def _exists(path: Path) -> bool:
    try:
        return path.is_file() or path.is_symlink()  # of a link that leads nowhere its decoder says
    except OSError:
        return False
