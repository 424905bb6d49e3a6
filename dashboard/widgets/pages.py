"""The dashboard's pages: ours, and those of other packages that are installed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import streamlit as st

from fedlens.foundation.registry import PluginError, Registry
from fedlens.store import Member, Permission


@dataclass(frozen=True)
class DashboardPage:
    """One page, with its place in the navigation."""

    title: str
    icon: str
    """A Material symbol, such as ``":material/list:"``."""
    path: str
    """Of its address, such as ``"runs"``."""
    order: int
    """Pages stand in this order; the first one is at the root of the address."""
    render: Callable[[], None]
    """Puts the page's content on the screen, from the session's store."""
    needs: Permission = "look"
    """What a visitor's role must allow; others have no such page."""

    def in_navigation(self, *, default: bool = False) -> st.Page:
        """The page as Streamlit's navigation and links take it."""
        return st.Page(
            self.render, title=self.title, icon=self.icon, url_path=self.path, default=default
        )


PAGES: Registry[DashboardPage] = Registry(
    "dashboard page",
    "fedlens.dashboard_pages",
    {
        name: f"fedlens.dashboard.views.{name}:PAGE"
        for name in (
            "runs",
            "run",
            "diagnosis",
            "findings",
            "privacy",
            "samples",
            "compare",
            "annotate",
            "review",
            "results",
            "team",
        )
    },
)
"""All pages by name; a page of another package is an entry point of that group."""


def pages_for(visitor: Member) -> list[DashboardPage]:
    """The pages that a visitor's role opens, in their order; those that cannot be loaded are not.

    The first of them is at the root of the address.
    """
    found = []
    for name in PAGES:
        with suppress(PluginError):
            found.append(PAGES[name])
    return sorted((page for page in found if visitor.may(page.needs)), key=lambda page: page.order)


def put_link(
    page: str, label: str, *, icon: str | None = None, about: str | None = None, **parameters: str
) -> None:
    """Put a link to one of the pages on this one.

    Args:
        page: its name in `PAGES`.
        label: what the link says.
        icon: a Material symbol.
        about: shown under the pointer.
        parameters: of the address, such as which run.
    """
    where = PAGES[page].in_navigation()
    st.page_link(where, label=label, icon=icon, help=about, query_params=parameters or None)
