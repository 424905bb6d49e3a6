"""DICOM pictures (with the extra ``dicom``): what a radiologist's screen would show, in 8 bits.

Every step depends on the one file alone: its rescaling, its own window (or, without one, its own
least and greatest value), and which end is white.
"""

from __future__ import annotations

import io
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
from PIL import Image

from fedlens.data.formats.folders import files_below
from fedlens.data.formats.records import (
    Found,
    SourceColumns,
    SourceError,
    SourceFormat,
    SourceRecord,
    UnusableRecord,
    reason,
)
from fedlens.data.formats.unpacking import BLOCK, FREE_BYTES, LARGEST_RATIO
from fedlens.data.labelled.pictures import (
    MOST_BYTES,
    MOST_PIXELS,
    OversizedPictureError,
    UnreadablePictureError,
    check_plain_file,
)
from fedlens.data.spec import DatasetSpec

SUFFIXES = (".dcm", ".dicom")
MOST_UNPACKED = 4 * MOST_BYTES
"""Bytes of a deflated file: 64 million pixels of 16 bits or of three colours, and their tags."""
MOST_TEXT = 64
"""Characters of a value beyond which it is no label."""


def is_dicom(head: bytes) -> bool:
    """Whether a file that begins so (132 bytes) is DICOM."""
    return head[128:132] == b"DICM"


def dicom_picture(picture: Path | bytes, where: str) -> Image.Image:
    """The only frame of a file, grey ("L") or colour ("RGB").

    Raises:
        UnreadablePictureError: it has several frames, is packed in a way that needs more packages,
            or is damaged.
        OversizedPictureError: it has over 64 million pixels, or unpacks to far more than pictures
            do; it is not unpacked.
        SourceError: pydicom is not installed.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pydicom's quote what a file holds
        return _picture(_opened(picture, where, pixels=True), where)


def _picture(dataset: Any, where: str) -> Image.Image:
    try:
        _check_form(dataset, where)
        colour = int(getattr(dataset, "SamplesPerPixel", 1)) == 3
        return _colour(dataset) if colour else _grey(dataset)
    except (UnreadablePictureError, OversizedPictureError):
        raise
    except Exception as error:  # a damaged file makes pydicom raise what it likes
        raise UnreadablePictureError(
            f"{where}: no readable DICOM picture ({reason(error)}); export it uncompressed"
        ) from error


def _check_form(dataset: Any, where: str) -> None:
    rows, columns = int(dataset.Rows), int(dataset.Columns)
    frames = int(getattr(dataset, "NumberOfFrames", 1) or 1)
    if rows * columns * frames > MOST_PIXELS:
        raise OversizedPictureError(
            f"{where}: is {columns} x {rows} pixels in {frames} frames, over 64 million; scale "
            "it down or remove it"
        )
    if frames != 1 or int(getattr(dataset, "SamplesPerPixel", 1)) not in (1, 3):
        raise UnreadablePictureError(f"{where}: several frames or channels; export one picture")


def dicom_records(path: Path, columns: SourceColumns) -> Iterator[Found]:
    """Every DICOM file below a folder, or one file.

    Values: all single texts and numbers of the file by their keyword (``PatientID``, ``Modality``,
    ``BodyPartExamined``, ...), ``folder`` (the name of the folder it lies in) and ``file``.
    """
    root = path if path.is_dir() else path.parent
    for file in files_below(path, SUFFIXES) if path.is_dir() else [path]:
        where = str(file.relative_to(root))
        try:
            check_plain_file(file)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                values = _values(_opened(file, where, pixels=False))
        except SourceError:
            raise
        except OversizedPictureError as error:
            yield UnusableRecord(where, str(error).removeprefix(f"{where}: "))
            continue
        except Exception as error:  # named, counted, left out
            yield UnusableRecord(where, f"no readable DICOM file ({type(error).__name__})")
            continue
        yield SourceRecord(where, file, {**values, "folder": file.parent.name, "file": where})


def _opened(picture: Path | bytes, where: str, *, pixels: bool) -> Any:
    try:
        from pydicom import dcmread
    except ImportError:
        raise SourceError(
            f"{where}: is DICOM, which needs pydicom: pip install 'fedlens[dicom]'"
        ) from None
    try:
        if isinstance(picture, Path):
            check_plain_file(picture)
        raw = io.BytesIO(picture) if isinstance(picture, bytes) else picture.open("rb", 0)
        with _BoundedFile(cast(io.RawIOBase, raw)) as file:
            file.where = where
            return dcmread(file, stop_before_pixels=not pixels)
    except (UnreadablePictureError, OversizedPictureError):
        raise
    except Exception as error:
        raise UnreadablePictureError(
            f"{where}: no readable DICOM file ({reason(error)})"
        ) from error


class _BoundedFile(io.BufferedReader):
    """A file whose deflated content is refused where it unpacks beyond all measure.

    pydicom reads what follows the tags of a deflated file to the file's end, at once, and unpacks
    that; it reads nothing else so.
    """

    where = ""

    def read(self, size: int | None = -1, /) -> bytes:
        """The next bytes.

        Raises:
            OversizedPictureError: all of the rest is asked for, and unpacks to more than
                `MOST_UNPACKED` or 400 times its size.
        """
        block = super().read(size)
        if size is None or size < 0:
            most = min(MOST_UNPACKED, max(FREE_BYTES, LARGEST_RATIO * len(block)))
            if _unpacks_beyond(block, most):
                raise OversizedPictureError(
                    f"{self.where}: is deflated and unpacks to over {most >> 20} MiB; scale it "
                    "down, export it uncompressed or remove it"
                )
        return block


def _unpacks_beyond(packed: bytes, most: int) -> bool:
    """Whether deflated bytes unpack to more than ``most``; 1 MiB of it is held at a time."""
    inflater, left = zlib.decompressobj(-zlib.MAX_WBITS), most
    while left >= 0 and packed and not inflater.eof:
        left -= len(inflater.decompress(packed, BLOCK))
        packed = inflater.unconsumed_tail
    return left < 0


def _grey(dataset: Any) -> Image.Image:
    from pydicom.pixels.processing import apply_modality_lut, apply_voi_lut

    values = apply_voi_lut(apply_modality_lut(dataset.pixel_array, dataset), dataset)
    values = np.asarray(values, np.float64)
    low, high = float(values.min()), float(values.max())
    shares = (values - low) / (high - low) if high > low else np.zeros_like(values)
    if dataset.PhotometricInterpretation == "MONOCHROME1":
        shares = 1 - shares
    return Image.fromarray(np.rint(255 * shares).astype(np.uint8))


def _colour(dataset: Any) -> Image.Image:
    from pydicom.pixels.processing import convert_color_space

    pixels, space = dataset.pixel_array, str(dataset.PhotometricInterpretation)
    if space != "RGB":
        pixels = convert_color_space(pixels, space, "RGB")
    if pixels.dtype != np.uint8:
        raise ValueError(f"colours of {pixels.dtype}")
    return Image.fromarray(np.ascontiguousarray(pixels))


def _values(dataset: Any) -> dict[str, str]:
    found = {}
    for element in dataset:
        if not element.keyword or element.VR in ("SQ", "OB", "OW", "UN", "OF", "OD"):
            continue
        text = str(element.value)
        if element.VM == 1 and 0 < len(text) <= MOST_TEXT:
            found[element.keyword] = text
    return found


def _fits(path: Path) -> bool:
    if path.is_file():
        with path.open("rb") as file:
            return is_dicom(file.read(132))
    return next(files_below(path, SUFFIXES), None) is not None


DICOM = DatasetSpec(
    "DICOM files",
    format=SourceFormat(_fits, dicom_records, labels=("folder",), users=("PatientID",)),
)
