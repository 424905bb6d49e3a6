"""The dashboard's own look: one style sheet, and pieces of HTML with all text escaped."""

from __future__ import annotations

from html import escape
from pathlib import Path

import streamlit as st

_STYLE = (Path(__file__).parent / "theme.css").read_text(encoding="utf-8")


def put_style() -> None:
    """Put the style sheet on the page; each run of a page needs it once."""
    st.html(f"<style>{_STYLE}</style>")


def put_card(inner: str, kind: str = "") -> None:
    """A framed card.

    Args:
        inner: HTML in which every text from outside went through `text`.
        kind: ``found``, ``clear``, ``refused`` or nothing, which colours its edge.
    """
    st.html(f'<section class="card {text(kind)}">{inner}</section>')


def text(value: object) -> str:
    """A text for HTML: whatever it holds is shown, never obeyed."""
    return escape(str(value), quote=True)


def tag(words: object, kind: str = "") -> str:
    """A small label, coloured by ``found``, ``good``, ``bad`` or ``on``."""
    return f'<span class="tag {text(kind)}">{text(words)}</span>'


def picture(base64: str, alt: str) -> str:
    """An image in the page itself, from the base64 text of a PNG."""
    return f'<img class="px" alt="{text(alt)}" src="data:image/png;base64,{text(base64)}">'
