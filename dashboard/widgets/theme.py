"""The dashboard's own look: one style sheet, and cards on a page."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from fedlens.dashboard.widgets.markup import card, picture, tag, text

__all__ = ["STYLE", "card", "picture", "put_card", "put_style", "tag", "text"]

STYLE = (Path(__file__).parent / "theme.css").read_text(encoding="utf-8")


def put_style() -> None:
    """Put the style sheet on the page; each run of a page needs it once."""
    st.html(f"<style>{STYLE}</style>")


def put_card(inner: str, kind: str = "") -> None:
    """Put a card on the page; see :func:`fedlens.dashboard.widgets.markup.card`."""
    st.html(card(inner, kind))
