"""HDF5: TensorFlow Federated's layout, a group a user, or data sets with a row a record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedlens.data.formats.archives import SINGULAR
from fedlens.data.formats.pixel_rows import pixel_factor
from fedlens.data.formats.records import (
    Found,
    SourceColumns,
    SourceError,
    SourceFormat,
    SourceRecord,
    few_of,
    known_part,
    naming,
    reason,
)
from fedlens.data.isolated.process import IsolatedError, read_isolated
from fedlens.data.labelled.tables import EXTRA
from fedlens.data.spec import DatasetSpec

SUFFIXES = (".h5", ".hdf5", ".hdf")


def hdf5_records(path: Path, columns: SourceColumns) -> Iterator[Found]:
    """Records of an HDF5 file, or of all of a folder; read with h5py, in a child process.

    ``examples/USER/pixels`` with ``examples/USER/label`` (as TensorFlow Federated has FEMNIST,
    CIFAR-100 and CelebA), or ``images`` (``x``, or the only data set of pictures) with data sets of
    as many rows. Pixels are bytes, whole numbers to 255 or shares of white to 1. A file with
    ``train`` or ``test`` in its name is that part.

    Raises:
        SourceError: h5py is missing, a file is damaged, or no data set has pictures.
    """
    files = [path] if path.is_file() else _files(path)
    if not files:
        raise SourceError(f"{path}: has no files {', '.join(SUFFIXES)}; add some")
    for file in files:
        try:
            yield from _file(file, columns.image)
        except (IsolatedError, OSError) as error:
            if "h5py" in str(error):
                raise SourceError(f"{file}: to read HDF5 takes h5py: {EXTRA}") from None
            raise SourceError(
                f"{file}: no readable HDF5 file ({reason(error)}); fetch it again"
            ) from None


def _file(file: Path, image: str) -> Iterator[Found]:
    pieces = read_isolated("fedlens.data.isolated.hdf5:read_records", file, image)
    head = next(pieces)[0]
    if head["image"] is None:
        raise SourceError(
            f"{file}: which data set has the pictures, [n, h, w] or [n, h, w, 3]? "
            f"{naming('image', 'NAME')}; there are {few_of(head['names'])}"
        )
    scale = next(pieces)[0]
    factor = pixel_factor(scale["least"], scale["most"], scale["whole"])
    if factor is None:
        raise SourceError(
            f"{file}: {head['image']} has numbers from {scale['least']:g} to {scale['most']:g}; "
            "give whole numbers from 0 (black) to 255 (white), or shares of white from 0 to 1"
        )
    part, row = known_part(file.stem), 0
    for said, content in pieces:
        for values, pixels in _rows(said, content, factor):
            who = f" of {said['user'][:80]}" if said["user"] else ""
            yield SourceRecord(f"{file.name} row {row}{who}", pixels, values, part)
            row += 1


def _rows(
    said: dict[str, Any], content: bytes, factor: float
) -> Iterator[tuple[dict[str, str], NDArray[np.uint8]]]:
    numbers = np.frombuffer(content, said["kind"]).reshape(said["shape"])
    pixels = numbers if said["kind"] == "u1" and factor == 1 else np.rint(factor * numbers)
    if pixels.ndim == 4 and pixels.shape[1] in (1, 3) and pixels.shape[3] not in (1, 3):
        pixels = np.moveaxis(pixels, 1, 3)
    known = {"user": said["user"]} if said["user"] else {}
    for at, one in enumerate(pixels.astype(np.uint8)):
        values = {SINGULAR.get(name, name): column[at] for name, column in said["values"].items()}
        yield {**values, **known}, one


def _files(folder: Path) -> list[Path]:
    return sorted(one for one in folder.iterdir() if one.suffix.lower() in SUFFIXES)


def _fits(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES if path.is_file() else bool(_files(path))


HDF5 = DatasetSpec(
    "HDF5 file",
    format=SourceFormat(
        _fits,
        hdf5_records,
        labels=("label", "character", "digit", "fine_label"),
        users=("user", "user_id", "client_id", "writer_id", "patient_id"),
    ),
)
