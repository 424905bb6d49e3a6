"""Pixels of a record's picture, whatever it comes as, in the size and colour that are asked for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedlens.data.formats.dicom import dicom_picture, is_dicom
from fedlens.data.formats.records import Picture
from fedlens.data.labelled.pictures import (
    GREY_MODES,
    UnreadablePictureError,
    check_plain_file,
    looked_at,
    looked_at_bytes,
    read_square,
    read_square_of,
    squared,
)


def pixels_of(picture: Picture, where: str, side: int, channels: int) -> NDArray[np.uint8]:
    """A picture's middle square, scaled: uint8 [channels, side, side].

    Depends on this picture alone.

    Raises:
        UnreadablePictureError: it is missing, damaged or of an unknown kind.
        OversizedPictureError: it has over 64 million pixels or bytes; it is not unpacked.
    """
    if isinstance(picture, np.ndarray):
        return squared(Image.fromarray(_plain(picture, where)), side, channels)
    if _may_be_dicom(picture):
        return squared(dicom_picture(picture, where), side, channels)
    if isinstance(picture, bytes):
        return read_square_of(picture, where, side, channels)
    return read_square(picture, side, channels)


def form_of(picture: Picture, where: str) -> tuple[bool, tuple[int, int]]:
    """Whether a picture is grey, and its (width, height); only its head is read.

    Raises:
        UnreadablePictureError, OversizedPictureError: as above.
    """
    if isinstance(picture, np.ndarray):
        plain = _plain(picture, where)
        return plain.ndim == 2, (plain.shape[1], plain.shape[0])
    if _may_be_dicom(picture):
        found = dicom_picture(picture, where)
        return found.mode == "L", found.size
    mode, size = (
        looked_at_bytes(picture, where) if isinstance(picture, bytes) else looked_at(picture)
    )
    return mode in GREY_MODES, size


def _plain(pixels: NDArray[np.uint8], where: str) -> NDArray[np.uint8]:
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    colour = pixels.ndim == 3 and pixels.shape[2] == 3
    if pixels.dtype != np.uint8 or not (pixels.ndim == 2 or colour) or 0 in pixels.shape:
        raise UnreadablePictureError(
            f"{where}: pixels of type {pixels.dtype} and shape {pixels.shape}, not bytes [h, w] or "
            "[h, w, 3]"
        )
    return np.ascontiguousarray(pixels)


def _may_be_dicom(picture: Path | bytes) -> bool:
    if isinstance(picture, bytes):
        return is_dicom(picture[:132])
    try:
        check_plain_file(picture)
        with picture.open("rb") as file:
            return is_dicom(file.read(132))
    except (OSError, ValueError):
        return False  # its decoder says what is wrong
