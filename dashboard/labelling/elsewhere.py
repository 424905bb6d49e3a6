"""Projects in other stores of the workspace, for a page whose own store has none."""

from __future__ import annotations

from itertools import chain, islice

import streamlit as st

from fedlens.dashboard.access.session import home, store
from fedlens.dashboard.access.workspace import all_stores
from fedlens.dashboard.widgets.markup import plain
from fedlens.dashboard.widgets.pages import put_link

MOST = 20


def render_elsewhere(page: str, none: str, otherwise: str) -> None:
    """Put links to this page for such projects, or what to do where there is none either.

    Args:
        page: its name in the navigation.
        none: that there is nothing here, in Markdown.
        otherwise: what would change that.
    """
    others = [one for one in all_stores(home()) if one.place != store().place]
    found = list(islice(chain.from_iterable(one.projects() for one in others), MOST))
    if not found:
        st.info(f"{none} {otherwise}")
        return
    st.info("**Choose a project.** Each belongs to a run.")
    for one in found:
        put_link(page, plain(one.name), project=str(one.project_id), run=one.run_id)
