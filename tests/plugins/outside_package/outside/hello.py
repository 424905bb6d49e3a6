"""A page of the dashboard."""

from __future__ import annotations

import streamlit as st

from fedlens.dashboard.widgets.pages import DashboardPage


def render() -> None:
    """Greets."""
    st.title("Hello from outside")


PAGE = DashboardPage("Hello", ":material/waving_hand:", "hello", 99, render)
