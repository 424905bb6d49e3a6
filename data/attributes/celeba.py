"""The CelebA layout: aligned faces with forty attributes (Liu et al. 2015)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedlens.data.attributes.options import Options, parse_options
from fedlens.data.attributes.pictures import labelled_pictures, read_pictures
from fedlens.data.spec import PrivateSource
from fedlens.privatizers.private_data import PrivateData, PrivateDataError, Split

IMAGES, ATTRIBUTES, PARTITION = (
    "img_align_celeba",
    "list_attr_celeba.txt",
    "list_eval_partition.txt",
)
PEOPLE = "identity_CelebA.txt"
DEFAULTS = {"utility": "Male", "sensitive": "Smiling", "side": "64", "limit": "20000"}
"""Bertran et al. 2019 (section 5.2) keep the gender and hide the smile, or the other way round."""


def load_celeba(name: str, argument: str, data_dir: Path | None, seed: int) -> Split:
    """``celeba:PATH,utility=Male,sensitive=Smiling,side=64,limit=20000``.

    PATH has ``img_align_celeba/000001.jpg``..., ``list_attr_celeba.txt`` (a count, the names, then
    1 or -1 each) and ``list_eval_partition.txt``. The published parts are kept: training pictures
    for filters, validation pictures for attackers, test pictures for scoring; the first ``limit``
    of each. Persons come from ``identity_CelebA.txt`` where it is there.

    Raises:
        PrivateDataError: on a missing file, picture or attribute, or an attribute with one value.
    """
    options = parse_options("celeba", argument, DEFAULTS)
    names, table, files = read_attributes(options.path / ATTRIBUTES)
    columns = {label: place for place, label in enumerate(names)}
    chosen = [columns[options.one_of(which, columns)] for which in ("utility", "sensitive")]
    parts = _named_numbers(options.path / PARTITION)
    people = _named_numbers(options.path / PEOPLE) if (options.path / PEOPLE).is_file() else {}
    rows = [
        [row for row, file in enumerate(files) if parts.get(file) == part][
            : options.number("limit", 1)
        ]
        for part in range(3)
    ]
    return Split(*(_part(name, options, one, files, table[:, chosen], people) for one in rows))


def _part(
    name: str,
    options: Options,
    rows: list[int],
    files: list[str],
    labels: NDArray[np.int64],
    people: dict[str, int],
) -> PrivateData:
    paths = [options.path / IMAGES / files[row] for row in rows]
    owners = np.array([people.get(files[row], -1) for row in rows], np.int64)
    return labelled_pictures(
        name,
        read_pictures(paths, options.number("side", 16)),
        labels[rows, 0],
        labels[rows, 1],
        (2, 2),
        owners if people else None,
    )


def read_attributes(path: Path) -> tuple[list[str], NDArray[np.int64], list[str]]:
    """Names [k], values 0 or 1 as int64 [n, k], and file names [n].

    Raises:
        PrivateDataError: when the file is missing or not laid out so.
    """
    lines = _lines(path)
    names = lines[1].split() if len(lines) > 1 else []
    rows = [line.split() for line in lines[2:] if line.strip()]
    if not names or not rows or any(len(row) != len(names) + 1 for row in rows):
        raise PrivateDataError(
            f"{path}: needs a count, a line of names, and lines of a file and one value a name; "
            "fetch it again"
        )
    values = np.array([[cell == "1" for cell in row[1:]] for row in rows], np.int64)
    return names, values, [row[0] for row in rows]


def _named_numbers(path: Path) -> dict[str, int]:
    try:
        return {file: int(number) for file, number in (line.split() for line in _lines(path))}
    except ValueError as error:
        raise PrivateDataError(f"{path}: needs lines of a file and a number ({error})") from error


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise PrivateDataError(f"{path}: cannot be read ({error}); CelebA has it") from error


CELEBA = PrivateSource(load_celeba)
