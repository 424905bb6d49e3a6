"""How large a sample is, and by how much it is enlarged: each of its pixels by a whole number."""

from __future__ import annotations

from struct import unpack_from


def size_of(png: bytes) -> tuple[int, int]:
    """Width and height by a PNG's header, of which 24 bytes are enough.

    Raises:
        struct.error: there are fewer.
    """
    width, height = unpack_from(">II", png, 16)
    return width, height


def whole_factor(width: int, height: int, wanted: int) -> int:
    """By how much to enlarge an image so that its larger side is about ``wanted`` pixels.

    A whole number, and at least 1: any other would leave pixels out, or draw some wider than
    others.
    """
    return max(1, round(wanted / max(width, height)))
