"""Pictures that others made, read with care, cut to a square and brought to one size."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from fedlens.models.shapes import SIDES
from fedlens.privatizers.private_data import PrivateDataError

FORMATS = (
    "PNG", "JPEG", "PPM", "BMP", "DIB", "GIF", "TIFF", "WEBP", "JPEG2000", "AVIF", "TGA",
    "PCX", "SGI",
)  # fmt: skip
"""What Pillow reads by itself. Of several pictures in a file the first counts. Formats that start
other programs (EPS) or are none of pixels are never opened."""
SUFFIXES = (
    ".png", ".jpg", ".jpeg", ".ppm", ".pgm", ".pnm", ".bmp", ".dib", ".gif", ".tif", ".tiff",
    ".webp", ".jp2", ".avif", ".tga", ".pcx", ".sgi",
)  # fmt: skip
GREY_MODES = ("1", "L", "LA")
COLOUR_MODES = ("P", "PA", "RGB", "RGBA", "CMYK", "YCbCr")
USUAL_SIDE = 32
MOST_PIXELS = 2**26
"""Of one picture. A small file can claim any size, and would be unpacked to it."""
MOST_BYTES = 2**26


class UnreadablePictureError(PrivateDataError):
    """A picture that is missing, damaged or of an unknown kind; it can be left out."""


class OversizedPictureError(PrivateDataError):
    """A picture too large to be unpacked; it is refused, not left out."""


def looked_at(path: Path) -> tuple[str, tuple[int, int]]:
    """Kind of pixels and size of a picture, of which only the head is read.

    Raises:
        UnreadablePictureError: it is missing, no picture, or has pixels of more than 8 bits.
        OversizedPictureError: it has more than 64 million pixels or bytes.
    """
    with _careful(path), path.open("rb") as file:
        picture = _opened(file, str(path))
        return picture.mode, picture.size


def read_square(path: Path, side: int, channels: int) -> NDArray[np.uint8]:
    """A picture turned upright, its middle square scaled: uint8 [channels, side, side].

    Raises:
        UnreadablePictureError: as above, or it is damaged.
        OversizedPictureError: as above; it is not unpacked.
    """
    with _careful(path), path.open("rb") as file:
        return squared(ImageOps.exif_transpose(_opened(file, str(path))), side, channels)


def read_square_of(content: bytes, name: str, side: int, channels: int) -> NDArray[np.uint8]:
    """The same of a picture's bytes, which errors call ``name``."""
    with _plainly(name):
        _check_bytes(len(content), name)
        picture = ImageOps.exif_transpose(_opened(io.BytesIO(content), name))
        return squared(picture, side, channels)


def looked_at_bytes(content: bytes, name: str) -> tuple[str, tuple[int, int]]:
    """As `looked_at`, of a picture's bytes."""
    with _plainly(name):
        _check_bytes(len(content), name)
        picture = _opened(io.BytesIO(content), name)
        return picture.mode, picture.size


def check_plain_file(path: Path) -> None:
    """Refuse what is no plain file, or too large a one.

    Raises:
        UnreadablePictureError: it is missing or no plain file.
        OversizedPictureError: it is over 64 MiB.
    """
    if path.exists() and not path.is_file():  # reading a pipe would wait for ever
        raise UnreadablePictureError(f"{path}: no readable picture (no plain file)")
    _check_bytes(path.stat().st_size, str(path))


def _check_bytes(count: int, name: str) -> None:
    if count > MOST_BYTES:
        raise OversizedPictureError(f"{name}: is over 64 MiB; scale it down or remove it")


@contextmanager
def _careful(path: Path) -> Iterator[None]:
    with _plainly(str(path)):
        check_plain_file(path)
        yield


@contextmanager
def _plainly(name: str) -> Iterator[None]:
    """Whatever a decoder raises of a damaged picture is one of our two errors."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a decoder's, which may quote the picture
            yield
    except PrivateDataError:
        raise
    except Image.DecompressionBombError as error:
        raise OversizedPictureError(f"{name}: {error}; scale it down or remove it") from error
    except Exception as error:  # decoders of twelve formats raise what they like
        raise UnreadablePictureError(f"{name}: no readable picture ({error})") from error


@lru_cache(maxsize=1)
def _formats() -> tuple[str, ...]:
    """Those of `FORMATS` that this machine's Pillow was built with."""
    Image.init()  # else only the commonest are known until one of them fails
    return tuple(name for name in FORMATS if name in Image.OPEN)


def _opened(file: IO[bytes], name: str) -> Image.Image:
    picture = Image.open(file, formats=_formats())
    if picture.width * picture.height > MOST_PIXELS:
        raise OversizedPictureError(
            f"{name}: is {picture.width} x {picture.height} pixels, over 64 million; scale it "
            "down or remove it"
        )
    if picture.mode not in GREY_MODES + COLOUR_MODES:
        raise UnreadablePictureError(f"{name}: has pixels of kind {picture.mode}, not 8 bits")
    return picture


def squared(picture: Image.Image, side: int, channels: int) -> NDArray[np.uint8]:
    """The picture's middle square, scaled, uint8 [channels, side, side]."""
    plain = picture.convert("L" if channels == 1 else "RGB")
    if plain.size != (side, side):
        edge = min(plain.size)
        left, top = (plain.width - edge) // 2, (plain.height - edge) // 2
        box = (left, top, left + edge, top + edge)
        smaller = edge > side
        way = Image.Resampling.BOX if smaller else Image.Resampling.BILINEAR
        plain = plain.resize((side, side), way, box=box)
    pixels = np.asarray(plain, np.uint8)
    return pixels[None] if channels == 1 else np.moveaxis(pixels, 2, 0)


def usual_side(sizes: set[tuple[int, int]]) -> int:
    """The side where none is asked for: the pictures' own, if one that is allowed, else 32."""
    width, height = next(iter(sizes)) if len(sizes) == 1 else (0, 0)
    return width if width == height and width in SIDES else USUAL_SIDE


def resizing_note(sizes: set[tuple[int, int]], side: int) -> list[str]:
    """What is said once where pictures are not as large as the filter's."""
    if sizes == {(side, side)}:
        return []
    widths, heights = zip(*sorted(sizes), strict=True)
    one = f"{min(widths)} x {min(heights)}"
    many = one if len(sizes) == 1 else f"{one} to {max(widths)} x {max(heights)} pixels"
    return [f"pictures of {many} are cut to their middle square and scaled to {side} x {side}"]


def check_side(source: str, side: int) -> int:
    """The side, if every method takes it.

    Raises:
        PrivateDataError: it is not a multiple of 4 from 16 to 64.
    """
    if side not in SIDES:
        raise PrivateDataError(
            f"{source}: side={side} must be a multiple of 4 from 16 to 64 pixels"
        )
    return side
