"""Texts from outside and pictures, as Markdown and HTML that show them and obey nothing in them."""

from __future__ import annotations

import re
from base64 import b64decode
from html import escape
from struct import error, unpack_from

_SIGNS = frozenset(r"\`*_{}[]()#+-.!|<>~$:&")
# Addresses become links after escapes are taken out, so something unseen must stand in them.
_ADDRESS = re.compile(r"(?<=:)(?=//)|(?<=www)(?=\.)", re.IGNORECASE)
_UNSEEN = "\u2060"  # joins words: it has no width, and no line breaks there
_UNDERLINE = re.compile(r"^=", re.MULTILINE)
_INDENT = re.compile(r"^[ \t]+", re.MULTILINE)
_SPACE = "\u00a0"
# Signs that no one sees and that turn or cut what stands after them, our own words too.
_TURNING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2028\u2029\u2066-\u2069]")


def visible(text: object) -> str:
    """A text in which signs that turn or cut what follows stand as their numbers (`U+202E`)."""
    return _TURNING.sub(lambda found: f"U+{ord(found[0]):04X}", str(text).replace("\r\n", "\n"))


def plain(text: object) -> str:
    """A text as Markdown that shows it letter by letter, whatever signs are in it.

    No link, picture, heading, icon or colour comes of it.
    """
    still = _INDENT.sub(lambda found: _SPACE * len(found[0]), visible(text))
    broken = _ADDRESS.sub(_UNSEEN, still)
    escaped = "".join(f"\\{sign}" if sign in _SIGNS else sign for sign in broken)
    return _UNDERLINE.sub(r"\\=", escaped)


def count_words(count: int, what: str) -> str:
    """So many of a thing, in words: ``1 node``, ``2 nodes``."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


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


WANTED = 64
"""Pixels of a sample beside others."""
_HEADER = 32
"""Letters that hold a PNG's signature and size: 24 bytes."""


def text(value: object) -> str:
    """A text for HTML: whatever it holds is shown, never obeyed."""
    return escape(visible(value), quote=True)


def tag(words: object, kind: str = "") -> str:
    """A small label, coloured by ``found``, ``good``, ``bad`` or ``on``."""
    return f'<span class="tag {text(kind)}">{text(words)}</span>'


def picture(base64: str, alt: str, wanted: int = WANTED) -> str:
    """An image in the page itself, from the base64 text of a PNG.

    Its larger side is about ``wanted`` pixels, of which each of the image's own is a whole number.
    """
    source = f'src="data:image/png;base64,{text(base64)}"'
    return f'<img class="px" alt="{text(alt)}"{_sized(base64, wanted)} {source}>'


def _sized(base64: str, wanted: int) -> str:
    """Width and height; nothing for what is no PNG, which no browser shows."""
    try:
        width, height = size_of(b64decode(base64[:_HEADER], validate=True))
        factor = whole_factor(width, height, wanted)
    except (ValueError, error, ZeroDivisionError):
        return ""
    return f' width="{factor * width}" height="{factor * height}"'


def card(inner: str, kind: str = "") -> str:
    """A framed card.

    Args:
        inner: HTML in which every text from outside went through `text`.
        kind: ``found``, ``clear``, ``refused`` or nothing, which colours its edge.
    """
    return f'<section class="card {text(kind)}">{inner}</section>'
