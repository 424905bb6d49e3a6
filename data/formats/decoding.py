"""Pixels of a record's picture, whatever it comes as, in the size and colour that are asked for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedlens.data.formats.dicom import dicom_frames, dicom_picture, is_dicom, is_dicom_file
from fedlens.data.formats.records import HEAD, Frame, Picture
from fedlens.data.labelled.pictures import (
    GREY_MODES,
    Noticed,
    UnreadablePictureError,
    frames_in,
    looked_at,
    looked_at_bytes,
    read_square,
    read_square_of,
    squared,
    unnoticed,
)


def pixels_of(
    picture: Picture, where: str, side: int, channels: int, noticed: Noticed = unnoticed
) -> NDArray[np.uint8]:
    """A picture's middle square, scaled: uint8 [channels, side, side].

    Depends on this picture alone. ``noticed`` is told what an owner should know of it, in words
    that fit many.

    Raises:
        UnreadablePictureError: it is missing, damaged or of an unknown kind.
        OversizedPictureError: it has over 64 million pixels or bytes; it is not unpacked.
    """
    if isinstance(picture, np.ndarray):
        return squared(Image.fromarray(_plain(picture, where)), side, channels, noticed)
    file, frame = _frame(picture)
    if _may_be_dicom(file):
        return squared(dicom_picture(file, where, noticed, frame), side, channels, noticed)
    if isinstance(file, bytes):
        return read_square_of(file, where, side, channels, noticed, frame)
    return read_square(file, side, channels, noticed, frame)


def frames_of(picture: Picture, where: str) -> list[Picture]:
    """Each frame or page of a picture; the picture itself where there is one, or it is damaged."""
    if isinstance(picture, np.ndarray | Frame):
        return [picture]
    count = dicom_frames(picture) if _may_be_dicom(picture) else frames_in(picture, where)
    return [picture] if count < 2 else [Frame(picture, number) for number in range(count)]


def _frame(picture: Path | bytes | Frame) -> tuple[Path | bytes, int | None]:
    return (picture.picture, picture.number) if isinstance(picture, Frame) else (picture, None)


def form_of(picture: Picture, where: str) -> tuple[bool, tuple[int, int]]:
    """Whether a picture is grey, and its (width, height); only its head is read.

    Raises:
        UnreadablePictureError, OversizedPictureError: as above.
    """
    if isinstance(picture, np.ndarray):
        plain = _plain(picture, where)
        return plain.ndim == 2, (plain.shape[1], plain.shape[0])
    file, frame = _frame(picture)
    if _may_be_dicom(file):
        found = dicom_picture(file, where, unnoticed, frame)
        return found.mode == "L", found.size
    mode, size = looked_at_bytes(file, where) if isinstance(file, bytes) else looked_at(file)
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
    return is_dicom(picture[:HEAD]) if isinstance(picture, bytes) else is_dicom_file(picture)
