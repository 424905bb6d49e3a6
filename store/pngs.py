"""Pixels to PNG and back, and the check that a PNG holds pixels and nothing else.

Only generated images come this way; the caps keep everything else out as far as form can.
"""

from __future__ import annotations

import hashlib
import io
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedlens.store.errors import StoreError

MAX_BYTES = 64 * 1024
MAX_SIDE = 256

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
# Text, EXIF and other chunks could carry anything at all into the store.
_CHUNKS = (b"IHDR", b"IDAT", b"IEND")


def encode(pixels: NDArray[np.uint8]) -> bytes:
    """PNG of uint8 pixels [channels, height, width] with 1 or 3 channels.

    Raises:
        StoreError: on another dtype or shape, or a side over 256 pixels.
    """
    _check_pixels(pixels)
    plane = pixels[0] if pixels.shape[0] == 1 else np.moveaxis(pixels, 0, -1)
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(plane)).save(buffer, format="PNG", compress_level=6)
    return buffer.getvalue()


def decode(png: bytes) -> NDArray[np.uint8]:
    """Pixels of a PNG, uint8 [channels, height, width].

    Raises:
        StoreError: unless ``png`` is one whole grey or RGB PNG of at most 64 KiB and 256 x 256
            pixels, with pixel chunks only and nothing after them.
    """
    if len(png) > MAX_BYTES:
        raise StoreError(f"png of {len(png)} bytes cannot be stored: at most {MAX_BYTES}")
    _check_chunks(png)
    plane = np.asarray(_open(png))
    return plane[None] if plane.ndim == 2 else np.ascontiguousarray(np.moveaxis(plane, -1, 0))


def pixel_digest(pixels: NDArray[np.uint8]) -> str:
    """SHA-256 of the pixels' bytes in [channels, height, width] order, hexadecimal."""
    return hashlib.sha256(np.ascontiguousarray(pixels).tobytes()).hexdigest()


def _open(png: bytes) -> Image.Image:
    try:
        image = Image.open(io.BytesIO(png), formats=["PNG"])
        _check_header(image)
        image.load()
    except StoreError:
        raise
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise StoreError(f"png cannot be stored: not a well-formed PNG ({error})") from error
    return image


def _check_header(image: Image.Image) -> None:
    """Look at mode and size before any pixel is unpacked."""
    if image.mode not in ("L", "RGB") or max(image.size) > MAX_SIDE:
        raise StoreError(
            f"png of mode {image.mode}, {image.width} x {image.height} pixels cannot be "
            f"stored: grey or RGB of 8 bits, at most {MAX_SIDE} x {MAX_SIDE}"
        )


def _check_chunks(png: bytes) -> None:
    place, name = len(_SIGNATURE), b""
    if not png.startswith(_SIGNATURE):
        raise StoreError("png cannot be stored: it does not begin with a PNG's signature")
    while name != b"IEND":
        if place + 12 > len(png):
            raise StoreError("png cannot be stored: it is cut short")
        length, name = struct.unpack_from(">I4s", png, place)
        if name not in _CHUNKS:
            raise StoreError(f"png cannot be stored: it has a chunk {name!r} besides its pixels")
        place += 12 + length
    if place != len(png):
        raise StoreError(f"png cannot be stored: {len(png) - place} bytes follow its end")


def _check_pixels(pixels: NDArray[Any]) -> None:
    shape = pixels.shape
    fits = pixels.ndim == 3 and shape[0] in (1, 3) and min(shape) > 0 and max(shape) <= MAX_SIDE
    if pixels.dtype != np.uint8 or not fits:
        raise StoreError(
            f"pixels of {pixels.dtype} {shape} cannot be stored: give uint8 [channels, height, "
            f"width] with 1 or 3 channels and at most {MAX_SIDE} x {MAX_SIDE} pixels"
        )
