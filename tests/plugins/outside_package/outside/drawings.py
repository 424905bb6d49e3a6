"""A data set that gives records one at a time: text files in which each character is a pixel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fedlens.data.formats.records import (
    Found,
    SourceColumns,
    SourceFormat,
    SourceRecord,
    UnusableRecord,
)
from fedlens.data.spec import DatasetSpec


def read_drawings(path: Path, columns: SourceColumns) -> Iterator[Found]:
    """Files ``PERSON.LABEL.INK.drawing``: ``#`` is ink, everything else paper."""
    for file in sorted(path.glob("*.drawing")):
        lines = file.read_text(encoding="utf-8").splitlines()
        if len({len(line) for line in lines}) != 1:
            yield UnusableRecord(file.name, "lines of several lengths")
            continue
        pixels = np.array([[255 * (sign == "#") for sign in line] for line in lines], np.uint8)
        user, label, ink = file.name.split(".")[:3]
        yield SourceRecord(file.name, pixels, {"user": user, "label": label, "ink": ink})


DRAWINGS = DatasetSpec(
    "Drawings",
    format=SourceFormat(
        lambda path: path.is_dir() and next(path.glob("*.drawing"), None) is not None,
        read_drawings,
    ),
)
