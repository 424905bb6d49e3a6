"""Folders of pictures: a sub-folder a class, below it pictures or a folder for each user."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from fedlens.data.formats.records import (
    TEST,
    TRAIN,
    Found,
    SourceColumns,
    SourceError,
    SourceFormat,
    SourceRecord,
    UnusableRecord,
)
from fedlens.data.labelled.pictures import SUFFIXES
from fedlens.data.spec import DatasetSpec

MOST_SORTED = 65_536
"""Names in one folder beyond which they are read as they lie: no list of them is kept."""
DEEPEST = 8


def files_below(folder: Path, suffixes: tuple[str, ...], depth: int = DEEPEST) -> Iterator[Path]:
    """Files with these suffixes in a folder and its folders, by name; none is followed out.

    Hidden names are left out, and so are links to folders, which may lead anywhere or in a circle.

    Raises:
        SourceError: a folder cannot be listed, or folders lie deeper than ``depth``.
    """
    for entry in _entries(folder):
        path = Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            if not depth:
                raise SourceError(f"{path}: folders lie over {DEEPEST} deep; name one further down")
            yield from files_below(path, suffixes, depth - 1)
        elif path.suffix.lower() in suffixes:
            yield path


def folder_records(path: Path, columns: SourceColumns) -> Iterator[Found]:
    """``root/CLASS/*`` or ``root/CLASS/USER/*``, each below ``train`` and ``test`` or not.

    Values: ``label`` (the class folder's name), ``user`` (the folder below it, where there is one)
    and ``file``.

    Raises:
        SourceError: there are no sub-folders, or no picture in them.
    """
    parts = {name: path / name for name in (TRAIN, TEST) if (path / name).is_dir()}
    roots = parts if len(parts) == 2 else {"": path}
    found = False
    for part, root in roots.items():
        for entry in _entries(root):
            if not entry.is_dir():
                continue
            for file in files_below(Path(entry.path), SUFFIXES):
                found = True
                yield _record(path, root, file, part)
    if not found:
        raise SourceError(
            f"{path}: has no pictures in sub-folders; put each class's pictures into a folder with "
            "its name, or add manifest.csv with a column for the file and one for the label"
        )


def picture_records(path: Path, columns: SourceColumns) -> Iterator[Found]:
    """Pictures without labels: ``root/*`` or ``root/USER/**``, below ``train`` and ``test`` or not.

    Values: ``user`` (the top folder's name, where there is one) and ``file``.

    Raises:
        SourceError: there is no picture.
    """
    parts = {name: path / name for name in (TRAIN, TEST) if (path / name).is_dir()}
    found = False
    for part, root in (parts if len(parts) == 2 else {"": path}).items():
        for file in files_below(root, SUFFIXES):
            found = True
            yield _record(path, root, file, part, labelled=False)
    if not found:
        raise SourceError(f"{path}: has no pictures; name the folder that they lie in")


def _record(top: Path, root: Path, file: Path, part: str, *, labelled: bool = True) -> Found:
    if file.is_symlink() and not file.resolve().is_relative_to(top.resolve()):
        return UnusableRecord(str(file.relative_to(top)), "a link that leads out of the folder")
    between, values = list(file.relative_to(root).parts[:-1]), {"file": str(file.relative_to(top))}
    if labelled:
        values["label"], *between = between
    if between:
        values["user"] = between[0]
    return SourceRecord(values["file"], file, values, part)


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    """What lies in a folder, by name where there is not too much of it; hidden names left out."""
    try:
        with os.scandir(folder) as entries:
            first: list[os.DirEntry[str]] = []
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                first.append(entry)
                if len(first) > MOST_SORTED:
                    yield from first
                    first = []
                    yield from (one for one in entries if not one.name.startswith("."))
            yield from sorted(first, key=lambda entry: entry.name)
    except OSError as error:
        raise SourceError(
            f"{folder}: cannot be listed ({error.strerror}); fix its rights"
        ) from None


def _fits(path: Path) -> bool:
    return path.is_dir() and any(entry.is_dir() for entry in _entries(path))


def _has_pictures(path: Path) -> bool:
    return path.is_dir() and next(files_below(path, SUFFIXES), None) is not None


PICTURES = DatasetSpec(
    "Pictures without labels, a folder a user",
    format=SourceFormat(_has_pictures, picture_records, labels=(), labelled=False),
)
TREE = DatasetSpec("Class folders, resized", format=SourceFormat(_fits, folder_records))
