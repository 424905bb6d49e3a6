"""Pieces of HTML with all text escaped, for pages and for files."""

from __future__ import annotations

from base64 import b64decode
from html import escape
from struct import error

from fedlens.dashboard.samples.scaling import size_of, whole_factor
from fedlens.dashboard.widgets.plain_text import visible

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
