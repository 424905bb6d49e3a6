"""The data card of a run on its page, as `fedlens card` or the run itself kept it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import streamlit as st

from fedlens.dashboard.faults import panel
from fedlens.diagnosis.cards.page import card_body
from fedlens.store import RunRecord

FILE = "card.json"
DAMAGED = (
    "The run's data card cannot be read; `fedlens card` with the run's folder makes it anew from "
    "what was released."
)


def render_card(run: RunRecord) -> None:
    """Histograms with their error bars, what changed and what was expected; nothing without one."""
    place = panel.place_of(run.run_id)
    path = None if place is None else place.path / FILE
    if path is None or not path.exists():
        return
    st.markdown("#### Data card")
    try:
        st.html(card_body(_read(path), as_images=True))
    except (OSError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        st.warning(DAMAGED)


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
