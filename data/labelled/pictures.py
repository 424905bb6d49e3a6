"""Pictures that others made, read with care, cut to a square and brought to one size."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from fedlens.data.labelled.in_place_of import in_place_of
from fedlens.models.shapes import GOOD_SIDES, SIDES
from fedlens.privatizers.private_data import PrivateDataError

FORMATS = (
    "PNG", "JPEG", "PPM", "BMP", "DIB", "GIF", "TIFF", "WEBP", "JPEG2000", "AVIF", "TGA",
    "PCX", "SGI",
)  # fmt: skip
"""What Pillow reads by itself. Of several pictures in a file the first counts. Formats that start
other programs (EPS) or are none of pixels are never opened."""
SUFFIXES = (
    ".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".ppm", ".pgm", ".pnm", ".bmp", ".dib", ".gif",
    ".tif", ".tiff", ".webp", ".jp2", ".avif", ".tga", ".pcx", ".sgi",
)  # fmt: skip
DEEP_MODES = ("I", "I;16", "I;16B", "I;16L", "I;16N", "F")
"""Grey, of more than 8 bits."""
GREY_MODES = ("1", "L", "LA", *DEEP_MODES)
COLOUR_MODES = ("P", "PA", "RGB", "RGBA", "CMYK", "YCbCr", "La", "RGBa", "RGBX")
WHITES = (255, 1023, 4095, 16383, 65535)
"""Of 8, 10, 12, 14 and 16 bits."""
USUAL_SIDE = 32
LEAST_EDGE = 4
"""Pixels on a picture's shorter edge below which nothing can be seen on it."""
MOST_CUT = 1.5
"""Longer by shorter edge beyond which a third of a picture or more lies outside its middle."""
FLAT = 2
"""Difference of the brightest and the darkest pixel up to which a picture is blank."""
DAMAGED = "a picture that cannot be decoded"
TOO_LARGE = "a picture of over 64 million pixels or 64 MiB"
BLANK, CUT, ENLARGED = (
    "blank",
    "a third or more cut off, outside the middle square",
    "enlarged from less than half the size",
)
FRAMES, DEEP, SEEN_THROUGH = (
    "of several frames or pages the first is taken (--each-frame takes all)",
    "of more than 8 bits, scaled",
    "with transparent places, laid on white",
)
"""What is noticed of pictures that are taken in."""
MOST_PIXELS = 2**26
"""Of one picture. A small file can claim any size, and would be unpacked to it."""
MOST_BYTES = 2**26
MOST_FRAMES = 10_000
ORIENTATION = 0x0112
"""Of EXIF."""


Noticed = Callable[[str], object]


def unnoticed(what: str) -> None:
    """Where nobody asks what is noticed of a picture."""


UNKNOWN_KIND = "no picture of a known kind, whatever its name says"


class UnreadablePictureError(PrivateDataError):
    """A picture that is missing, damaged or of an unknown kind; it can be left out.

    Attributes:
        why: the reason in words that fit many pictures, so that they can be counted.
    """

    def __init__(self, message: str, why: str = DAMAGED) -> None:
        super().__init__(message)
        self.why = why


class OversizedPictureError(PrivateDataError):
    """A picture too large to be unpacked; it is refused, not left out."""

    why = TOO_LARGE


def looked_at(path: Path) -> tuple[str, tuple[int, int]]:
    """Kind of pixels and upright size of a picture, of which only the head is read.

    Raises:
        UnreadablePictureError: it is missing or no picture.
        OversizedPictureError: it has more than 64 million pixels or bytes.
    """
    with _careful(path), path.open("rb") as file:
        return _form(_opened(file, str(path)))


def read_square(
    path: Path,
    side: int,
    channels: int,
    noticed: Noticed = unnoticed,
    frame: int | None = None,
) -> NDArray[np.uint8]:
    """A picture turned upright, its middle square scaled: uint8 [channels, side, side].

    Args:
        path: its file.
        side: of the square, in pixels.
        channels: 1 for grey, 3 for colour.
        noticed: told what an owner should know of it, in words that fit many.
        frame: which of several frames or pages; None: the first, which is noticed.

    Raises:
        UnreadablePictureError: as above, or it is damaged.
        OversizedPictureError: as above; it is not unpacked.
    """
    with _careful(path), path.open("rb") as file:
        picture = _opened(file, str(path))
        return squared(_upright(picture, noticed, frame), side, channels, noticed)


def read_square_of(
    content: bytes,
    name: str,
    side: int,
    channels: int,
    noticed: Noticed = unnoticed,
    frame: int | None = None,
) -> NDArray[np.uint8]:
    """The same of a picture's bytes, which errors call ``name``."""
    with _plainly(name):
        check_bytes(len(content), name)
        picture = _opened(io.BytesIO(content), name)
        return squared(_upright(picture, noticed, frame), side, channels, noticed)


def looked_at_bytes(content: bytes, name: str) -> tuple[str, tuple[int, int]]:
    """As `looked_at`, of a picture's bytes."""
    with _plainly(name):
        check_bytes(len(content), name)
        return _form(_opened(io.BytesIO(content), name))


def frames_in(picture: Path | bytes, name: str) -> int:
    """How many frames or pages a picture has; 1 where it cannot be read."""
    try:
        with _plainly(name):
            if isinstance(picture, Path):
                check_plain_file(picture)
            content = picture if isinstance(picture, bytes) else picture.read_bytes()
            with io.BytesIO(content) as file:
                return min(int(getattr(_opened(file, name), "n_frames", 1)), MOST_FRAMES)
    except (UnreadablePictureError, OversizedPictureError):
        return 1


def check_plain_file(path: Path) -> None:
    """Refuse what is no plain file, or too large a one.

    Raises:
        UnreadablePictureError: it is missing, empty or no plain file.
        OversizedPictureError: it is over 64 MiB.
    """
    if not path.exists():
        why = "a link to nothing" if path.is_symlink() else "no such file"
        raise UnreadablePictureError(f"{path}: no readable picture ({why})", why)
    if not path.is_file():  # reading a pipe would wait for ever
        why = "no plain file"
        raise UnreadablePictureError(f"{path}: no readable picture ({why})", why)
    check_bytes(path.stat().st_size, str(path))


def check_bytes(count: int, name: str) -> None:
    """Refuse a picture by the size of its file.

    Raises:
        UnreadablePictureError: it is empty.
        OversizedPictureError: it is over 64 MiB.
    """
    if count > MOST_BYTES:
        raise OversizedPictureError(f"{name}: is over 64 MiB; scale it down or remove it")
    if not count:
        raise UnreadablePictureError(f"{name}: no readable picture (no bytes)", "an empty file")


@contextmanager
def _careful(path: Path) -> Iterator[None]:
    try:
        with _plainly(str(path)):
            check_plain_file(path)
            yield
    except UnreadablePictureError as error:
        if error.why != UNKNOWN_KIND:
            raise
        raise UnreadablePictureError(str(error), in_place_of(path) or error.why) from error


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
    except UnidentifiedImageError as error:
        raise UnreadablePictureError(
            f"{name}: no readable picture ({error})",
            UNKNOWN_KIND,
        ) from error
    except PermissionError as error:
        raise UnreadablePictureError(
            f"{name}: no readable picture ({error})", "a file that may not be read (its rights)"
        ) from error
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
        raise UnreadablePictureError(
            f"{name}: has pixels of kind {picture.mode}, neither grey nor colours of a screen",
            f"pixels of kind {picture.mode}, neither grey nor colours of a screen",
        )
    if min(picture.size) < LEAST_EDGE:
        raise UnreadablePictureError(
            f"{name}: is {picture.width} x {picture.height} pixels, on which nothing can be seen",
            f"a picture under {LEAST_EDGE} pixels wide or high",
        )
    return picture


def _form(picture: Image.Image) -> tuple[str, tuple[int, int]]:
    """Kind of pixels and size; a picture that its orientation lays on its side is turned."""
    width, height = picture.size
    turned = width != height and picture.getexif().get(ORIENTATION, 1) in (5, 6, 7, 8)
    return picture.mode, (height, width) if turned else (width, height)


def _upright(picture: Image.Image, noticed: Noticed, frame: int | None) -> Image.Image:
    """One frame, upright, in 8 bits without transparency."""
    if getattr(picture, "n_frames", 1) > 1 and frame is None:
        noticed(FRAMES)
    if frame:
        picture.seek(frame)
    return _opaque(_in_eight_bits(ImageOps.exif_transpose(picture), noticed), noticed)


def _in_eight_bits(picture: Image.Image, noticed: Noticed) -> Image.Image:
    if picture.mode not in DEEP_MODES:
        return picture
    noticed(DEEP)
    return Image.fromarray(scaled_to_bytes(np.asarray(picture)))


def scaled_to_bytes(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Whole numbers or fractions as 8 bits, by this picture alone.

    Whole numbers from 0: black is 0 and white the largest of 8, 10, 12, 14 or 16 bits, the fewest
    that hold all of them. Fractions from 0 to 1 are shares of white. All else: black is the least
    and white the greatest value.

    Raises:
        UnreadablePictureError: a value is no number.
    """
    if not bool(np.isfinite(values).all()):
        raise UnreadablePictureError("has values that are no numbers", "values that are no numbers")
    low, high = float(values.min()), float(values.max())
    if low >= 0 and values.dtype.kind in "iu" and high <= WHITES[-1]:
        low, high = 0.0, float(next(white for white in WHITES if high <= white))
    elif low >= 0 and high <= 1 and values.dtype.kind == "f":
        low, high = 0.0, 1.0
    shares = (values.astype(np.float64) - low) / ((high - low) or 1.0)
    return np.rint(255 * shares).astype(np.uint8)


def _opaque(picture: Image.Image, noticed: Noticed) -> Image.Image:
    """The picture laid on white, where it can be seen through."""
    if not (picture.mode in ("LA", "PA", "RGBA", "La", "RGBa") or "transparency" in picture.info):
        return picture
    seen = picture.convert("RGBA")
    if seen.getchannel("A").getextrema() == (255, 255):
        return picture if picture.mode != "PA" else seen.convert("RGB")
    noticed(SEEN_THROUGH)
    white = Image.new("RGBA", seen.size, "white")
    white.alpha_composite(seen)
    return white.convert("RGB")


def squared(
    picture: Image.Image, side: int, channels: int, noticed: Noticed = unnoticed
) -> NDArray[np.uint8]:
    """The picture's middle square, scaled, uint8 [channels, side, side]."""
    plain = picture.convert("L" if channels == 1 else "RGB")
    if plain.size != (side, side):
        edge = min(plain.size)
        left, top = (plain.width - edge) // 2, (plain.height - edge) // 2
        box = (left, top, left + edge, top + edge)
        smaller = edge > side
        way = Image.Resampling.BOX if smaller else Image.Resampling.BILINEAR
        if max(plain.size) >= MOST_CUT * edge:
            noticed(CUT)
        if 2 * edge < side:
            noticed(ENLARGED)
        plain = plain.resize((side, side), way, box=box)
    pixels = np.asarray(plain, np.uint8)
    if int(pixels.max()) - int(pixels.min()) <= FLAT:
        noticed(BLANK)
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
        PrivateDataError: it is none of `SIDES`.
    """
    if side not in SIDES:
        raise PrivateDataError(f"{source}: side={side} must be {GOOD_SIDES} pixels")
    return side
