"""CelebA's layout: aligned faces, forty attributes of each, and who is shown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fedlens.data.formats.records import (
    TEST,
    TRAIN,
    VALIDATION,
    Found,
    SourceColumns,
    SourceError,
    SourceFormat,
    SourceRecord,
    UnusableRecord,
    reason,
)
from fedlens.data.spec import Augmentation, DatasetSpec

IMAGES, ATTRIBUTES = "img_align_celeba", "list_attr_celeba.txt"
PARTITION, PEOPLE = "list_eval_partition.txt", "identity_CelebA.txt"
PARTS = {"0": TRAIN, "1": VALIDATION, "2": TEST}


def celeba_records(path: Path, columns: SourceColumns) -> Iterator[Found]:
    """Records of a folder with ``img_align_celeba/``, ``list_attr_celeba.txt`` and further lists.

    The lists are read line by line beside each other, in the order of the pictures' names, as they
    are published. Values: each attribute as ``yes`` or ``no``, and ``user`` (the person) where
    ``identity_CelebA.txt`` is there.

    Raises:
        SourceError: a list is missing, damaged, or in another order.
    """
    parts = _named(path / PARTITION) if (path / PARTITION).is_file() else None
    people = _named(path / PEOPLE) if (path / PEOPLE).is_file() else None
    lines = _lines(path / ATTRIBUTES)
    next(lines, None)  # the count
    names = next(lines, (0, []))[1]
    if not names:
        raise SourceError(f"{path / ATTRIBUTES}: has no line of names; fetch it again")
    for number, words in lines:
        if not words:
            continue
        where = f"{ATTRIBUTES} line {number}"
        if len(words) != len(names) + 1 or set(words[1:]) - {"1", "-1"} or "/" in words[0]:
            yield UnusableRecord(where, "no line of a file and 1 or -1 for each name")
            continue
        file, *found = words
        values = dict(zip(names, ("yes" if one == "1" else "no" for one in found), strict=True))
        if people is not None:
            values["user"] = _next_of(path / PEOPLE, people, file)
        part = "" if parts is None else PARTS.get(_next_of(path / PARTITION, parts, file), "")
        yield SourceRecord(f"{where} ({file})", path / IMAGES / file, values, part)


def _next_of(path: Path, lines: Iterator[tuple[str, str]], file: str) -> str:
    for name, value in lines:
        if name == file:
            return value
        break
    raise SourceError(f"{path}: {file} is not where {ATTRIBUTES} has it; fetch both lists again")


def _named(path: Path) -> Iterator[tuple[str, str]]:
    for number, words in _lines(path):
        if len(words) != 2:
            raise SourceError(f"{path}: line {number} is no file and a number; fetch it again")
        yield words[0], words[1]


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                yield number, line[:65536].split()
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"{path}: cannot be read ({reason(error)}); CelebA has it") from None


def _fits(path: Path) -> bool:
    return path.is_dir() and (path / ATTRIBUTES).is_file()


CELEBA = DatasetSpec(
    "CelebA",
    augmentation=Augmentation("flips"),
    format=SourceFormat(_fits, celeba_records, labels=("Male",)),
    attribution="CelebA by Liu et al. (2015); for research",
    public=True,
    columns={"label": "Male", "sensitive": "Smiling", "side": "64"},
)
"""Bertran et al. 2019 (section 5.2) keep the gender and hide the smile, or the other way round."""
