"""Pixels for the browser: always lossless PNG, enlarged by whole factors without smoothing.

Streamlit re-encodes images as JPEG by default. A tool for finding pixel bugs must not add its own,
so pages show images through :func:`render_image` only.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence

import numpy as np
import streamlit as st
from numpy.typing import NDArray
from PIL import Image

from fedlens.store import decode_png

GAP_GREY = 255


def to_png(pixels: NDArray[np.uint8]) -> bytes:
    """PNG of uint8 pixels [height, width] or [height, width, 3]."""
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(buffer, format="PNG", compress_level=3)
    return buffer.getvalue()


def enlarge(pixels: NDArray[np.uint8], factor: int) -> NDArray[np.uint8]:
    """Each pixel of [height, width, ...] as a block of ``factor`` by ``factor`` equal ones."""
    return pixels.repeat(factor, axis=0).repeat(factor, axis=1)


def sheet(pngs: Sequence[bytes], columns: int, gap: int = 0) -> NDArray[np.uint8]:
    """Equally large stored PNGs side by side, row by row.

    Args:
        pngs: at least one, all of one size.
        columns: images in a row.
        gap: white pixels between neighbours.

    Returns:
        uint8 [height, width, 3], or [height, width] where all are grey.
    """
    tiles = np.stack([np.moveaxis(decode_png(png), 0, -1) for png in pngs])
    count, height, width, channels = tiles.shape
    rows = math.ceil(count / columns)
    cells = np.full((rows * columns, height + gap, width + gap, channels), GAP_GREY, np.uint8)
    cells[:count, :height, :width] = tiles
    grid = cells.reshape(rows, columns, height + gap, width + gap, channels).swapaxes(1, 2)
    plane = grid.reshape(rows * (height + gap), columns * (width + gap), channels)
    return plane[..., 0] if channels == 1 else plane


def base64_text(png: bytes) -> str:
    """The bytes in base64, for a component's data."""
    return base64.b64encode(png).decode("ascii")


def render_image(pixels: NDArray[np.uint8], *, alt: str, factor: int = 1) -> None:
    """Put an image on the page, pixel for pixel times ``factor``.

    Args:
        pixels: uint8 [height, width] or [height, width, 3].
        alt: what is seen, for those who do not see it.
        factor: whole enlargement.
    """
    large = enlarge(pixels, factor)
    st.image(to_png(large), width=large.shape[1], output_format="PNG", alt=alt)
