"""Pieces of HTML with all text escaped, for pages and for files."""

from __future__ import annotations

from html import escape


def text(value: object) -> str:
    """A text for HTML: whatever it holds is shown, never obeyed."""
    return escape(str(value), quote=True)


def tag(words: object, kind: str = "") -> str:
    """A small label, coloured by ``found``, ``good``, ``bad`` or ``on``."""
    return f'<span class="tag {text(kind)}">{text(words)}</span>'


def picture(base64: str, alt: str) -> str:
    """An image in the page itself, from the base64 text of a PNG."""
    return f'<img class="px" alt="{text(alt)}" src="data:image/png;base64,{text(base64)}">'


def card(inner: str, kind: str = "") -> str:
    """A framed card.

    Args:
        inner: HTML in which every text from outside went through `text`.
        kind: ``found``, ``clear``, ``refused`` or nothing, which colours its edge.
    """
    return f'<section class="card {text(kind)}">{inner}</section>'
