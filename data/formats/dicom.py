"""DICOM pictures (with the extra ``dicom``): what a radiologist's screen would show, in 8 bits.

Every step depends on the one file alone: its rescaling, its own window (or, without one, its own
least and greatest value), and which end is white.
"""

from __future__ import annotations

import io
import warnings
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedlens.data.formats.folders import files_below, laid_out_files, no_picture
from fedlens.data.formats.layouts import lay_out
from fedlens.data.formats.records import (
    HEAD,
    LINK_OUT,
    Found,
    SourceColumns,
    SourceError,
    SourceFormat,
    SourceRecord,
    UnusableRecord,
    reason,
    start_of,
)
from fedlens.data.formats.unpacking import BLOCK, FREE_BYTES, LARGEST_RATIO
from fedlens.data.labelled.pictures import (
    FRAMES,
    MOST_BYTES,
    MOST_FRAMES,
    MOST_PIXELS,
    Noticed,
    OversizedPictureError,
    UnreadablePictureError,
    check_plain_file,
    unnoticed,
)
from fedlens.data.labelled.pictures import SUFFIXES as PICTURES
from fedlens.data.spec import DatasetSpec

SUFFIXES = (".dcm", ".dicom")
MOST_UNPACKED = 4 * MOST_BYTES
"""Bytes of a deflated file: 64 million pixels of 16 bits or of three colours, and their tags."""
MOST_TEXT = 64
"""Characters of a value beyond which it is no label."""
SAMPLED = 256
"""Files that are looked at to tell what a folder holds."""
_GROUPS = (b"\x08\x00", b"\x02\x00")
"""What a file that has no preamble begins with, as old ones do."""
_LENGTHS = (b"\x00\x00", b"\x01\x00", b"\x05\x00", b"\x08\x00", b"\x16\x00", b"\x18\x00")
NOT_A_PICTURE = "DICOM without a picture"


def is_dicom(head: bytes) -> bool:
    """Whether a file that begins so (132 bytes) is DICOM, whatever its name."""
    return head[128:HEAD] == b"DICM"


def _is_old_dicom(head: bytes) -> bool:
    """Whether a file called .dcm that begins so is DICOM without its preamble."""
    return not is_dicom(head) and head[:2] in _GROUPS and head[2:4] in _LENGTHS


def dicom_frames(picture: Path | bytes) -> int:
    """How many frames a file has; 1 where it cannot be read."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dataset = _opened(picture, "", pixels=False)
            return min(int(getattr(dataset, "NumberOfFrames", 1) or 1), MOST_FRAMES)
    except (UnreadablePictureError, OversizedPictureError, ValueError, TypeError):
        return 1


def dicom_picture(
    picture: Path | bytes, where: str, noticed: Noticed = unnoticed, frame: int | None = None
) -> Image.Image:
    """A frame of a file, grey ("L") or colour ("RGB"); None: the first, and others are noticed.

    Raises:
        UnreadablePictureError: it has no picture, is packed in a way that needs more packages, or
            is damaged.
        OversizedPictureError: it has over 64 million pixels, or unpacks to far more than pictures
            do; it is not unpacked.
        SourceError: pydicom is not installed.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pydicom's quote what a file holds
        dataset = _opened(picture, where, pixels=True)
        try:
            frames = _check_form(dataset, where)
            if frames > 1 and frame is None:
                noticed(FRAMES)
            return _picture(dataset, frames, frame or 0)
        except (UnreadablePictureError, OversizedPictureError):
            raise
        except Exception as error:  # a damaged file makes pydicom raise what it likes
            raise UnreadablePictureError(
                f"{where}: no readable DICOM picture ({reason(error)}); export it uncompressed",
                _why_packed(dataset),
            ) from error


def _why_packed(dataset: Any) -> str:
    """Why a picture cannot be had: how it is packed, if nothing here unpacks that."""
    syntax = getattr(getattr(dataset, "file_meta", None), "TransferSyntaxUID", None)
    if syntax is None or not syntax.is_transfer_syntax:
        return "a damaged DICOM picture"
    if syntax.is_compressed and not _is_unpacked_here(syntax):
        with_it = syntax not in _DEEP_JPEG
        fix = "pip install 'fedlens[packed-dicom]'" if with_it else "export it uncompressed"
        return f"DICOM packed as {syntax.name}: {fix}"
    return f"a damaged DICOM picture ({syntax.name})"


def _is_unpacked_here(syntax: Any) -> bool:
    from pydicom.pixels.decoders.base import get_decoder

    try:
        return get_decoder(syntax).is_available and syntax not in _DEEP_JPEG
    except NotImplementedError:
        return False


_DEEP_JPEG = ("1.2.840.10008.1.2.4.51",)
"""JPEG of 12 bits, which nothing reads that may be shipped with this package."""


def _check_form(dataset: Any, where: str) -> int:
    """The number of frames of a picture that can be unpacked."""
    if "Rows" not in dataset or not any(
        name in dataset for name in ("PixelData", "FloatPixelData", "DoubleFloatPixelData")
    ):
        raise UnreadablePictureError(f"{where}: has no picture", NOT_A_PICTURE)
    rows, columns = int(dataset.Rows), int(dataset.Columns)
    frames = int(getattr(dataset, "NumberOfFrames", 1) or 1)
    if rows * columns * frames > MOST_PIXELS:
        raise OversizedPictureError(
            f"{where}: is {columns} x {rows} pixels in {frames} frames, over 64 million; scale "
            "it down or remove it"
        )
    if int(getattr(dataset, "SamplesPerPixel", 1)) not in (1, 3):
        raise UnreadablePictureError(
            f"{where}: has channels beside red, green and blue; export it as a picture",
            "DICOM of channels beside red, green and blue",
        )
    return frames


def _picture(dataset: Any, frames: int, frame: int) -> Image.Image:
    """One frame as a screen shows it; pydicom gives colours as red, green and blue."""
    pixels = dataset.pixel_array
    one = pixels[frame] if frames > 1 else pixels
    if int(getattr(dataset, "SamplesPerPixel", 1)) == 3:
        return Image.fromarray(_eight_bits(one, int(dataset.BitsStored)))
    if dataset.PhotometricInterpretation == "PALETTE COLOR":
        return _of_palette(one, dataset)
    return _grey(one, dataset)


def dicom_records(path: Path, columns: SourceColumns) -> Iterator[Found]:
    """Every DICOM file below a folder, or one file; DICOM by its bytes, not by its ending.

    Values: all single texts and numbers of the file by their keyword (``PatientID``, ``Modality``,
    ``BodyPartExamined``, ...), ``label`` (the folder that names the class, as in class folders),
    ``folder`` (the name of the folder it lies in) and ``file``.
    """
    if path.is_file():
        yield _record(path, path.name, "", {})
        return
    layout = lay_out(path, columns)
    for found in laid_out_files(layout):
        if isinstance(found, UnusableRecord):
            yield found
            continue
        part, file, folders = found
        where = str(file.relative_to(path))
        if file.is_symlink() and not file.resolve().is_relative_to(path.resolve()):
            yield UnusableRecord(where, LINK_OUT)
        elif file.suffix.lower() in SUFFIXES or is_dicom_file(file):
            label = layout.values(folders).get("label")
            yield _record(file, where, part, {"label": label} if label else {})
        else:
            none = no_picture(file, where)
            lost = none.quiet and file.suffix.lower() in PICTURES
            yield UnusableRecord(where, "a picture, and no DICOM file") if lost else none


def is_dicom_file(file: Path) -> bool:
    """Whether a plain file is DICOM: by its bytes, with or without the usual preamble."""
    head = start_of(file)
    return is_dicom(head) or (file.suffix.lower() in SUFFIXES and _is_old_dicom(head))


def _record(file: Path, where: str, part: str, known: dict[str, str]) -> Found:
    try:
        check_plain_file(file)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            values = _values(_opened(file, where, pixels=False))
    except SourceError:
        raise
    except OversizedPictureError as error:
        return UnusableRecord(where, str(error).removeprefix(f"{where}: "))
    except UnreadablePictureError as error:
        return UnusableRecord(where, error.why)
    except Exception as error:  # named, counted, left out
        return UnusableRecord(where, f"no readable DICOM file ({type(error).__name__})")
    return SourceRecord(
        where, file, {**values, **known, "folder": file.parent.name, "file": where}, part
    )


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
            old = _is_old_dicom(file.peek(HEAD)[:HEAD])
            dataset = dcmread(file, stop_before_pixels=not pixels, force=old)
            return _with_syntax(dataset) if old else dataset
    except (UnreadablePictureError, OversizedPictureError):
        raise
    except Exception as error:
        raise UnreadablePictureError(
            f"{where}: no readable DICOM file ({reason(error)})", "no readable DICOM file"
        ) from error


def _with_syntax(dataset: Any) -> Any:
    """A file without a head of its own, with how its values are written, as pydicom found it."""
    from pydicom.uid import ExplicitVRLittleEndian, ImplicitVRLittleEndian

    plain = ImplicitVRLittleEndian if dataset.original_encoding[0] else ExplicitVRLittleEndian
    if "TransferSyntaxUID" not in dataset.file_meta:
        dataset.file_meta.TransferSyntaxUID = plain
    return dataset


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


def _grey(stored: NDArray[Any], dataset: Any) -> Image.Image:
    """Grey by the file's rescaling and window; without one, from the least to the greatest value.

    Places without a picture (`PixelPaddingValue`) count for neither, and are black.
    """
    from pydicom.pixels.processing import apply_modality_lut, apply_voi_lut

    shown = ~_padding(stored, dataset)
    values = apply_voi_lut(apply_modality_lut(stored, dataset), dataset)
    values = np.asarray(values, np.float64)
    known = values[shown] if shown.any() else values
    low, high = float(known.min()), float(known.max())
    shares = np.clip((values - low) / (high - low), 0, 1) if high > low else np.zeros_like(values)
    if dataset.PhotometricInterpretation == "MONOCHROME1":
        shares = 1 - shares
    shares[~shown] = 0
    return Image.fromarray(np.rint(255 * shares).astype(np.uint8))


def _padding(stored: NDArray[Any], dataset: Any) -> NDArray[np.bool_]:
    """Where a file says that there is no picture, as outside the circle of a scanner."""
    first = dataset.get("PixelPaddingValue")
    if not isinstance(first, int):
        return np.zeros(stored.shape, np.bool_)
    last = dataset.get("PixelPaddingRangeLimit")
    last = last if isinstance(last, int) else first
    found = (stored >= min(first, last)) & (stored <= max(first, last))
    return np.asarray(found, np.bool_)


def _of_palette(stored: NDArray[Any], dataset: Any) -> Image.Image:
    from pydicom.pixels.processing import apply_color_lut

    colours = apply_color_lut(stored, dataset)
    return Image.fromarray(_eight_bits(colours[..., :3], 8 * colours.dtype.itemsize))


def _eight_bits(colours: NDArray[Any], bits: int) -> NDArray[np.uint8]:
    """Colours of so many bits in 8."""
    plain = np.ascontiguousarray(colours)
    if plain.dtype == np.uint8:
        return np.asarray(plain, np.uint8)
    whole = np.rint(plain.astype(np.float64) * (255 / (2**bits - 1)))
    return np.asarray(whole, np.uint8)


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
    """Whether a file is DICOM, or most pictures among a folder's first files are."""
    if path.is_file():
        return is_dicom_file(path)
    found = [one for one in islice(files_below(path), SAMPLED) if isinstance(one, Path)]
    scans = sum(is_dicom_file(one) for one in found)
    return scans > sum(one.suffix.lower() in PICTURES for one in found)


DICOM = DatasetSpec(
    "DICOM files",
    format=SourceFormat(
        _fits, dicom_records, labels=("label",), users=("PatientID",), in_folders=True
    ),
)
