"""Who looks at the page: the account of the visitor's session, asked of the store each time."""

from __future__ import annotations

import os

import streamlit as st

from dashboard.options import COOKIE_VARIABLE, USER_VARIABLE
from dashboard.session import store
from dashboard.visitors import Visitors
from server.store import Member, Permission, StoreError


def account() -> Member:
    """The visitor's account; without an open session the page ends here.

    A page that no gate stands before (one that its own user runs, as a test does) is the owner's.
    """
    cookie = os.environ.get(COOKIE_VARIABLE)
    if cookie is None:
        owner = store().owner_account(os.environ.get(USER_VARIABLE, "local"))
        found = None if owner.disabled else owner
    else:
        found = Visitors(store()).look_up(st.context.cookies.get(cookie, ""))
    if found is None:
        st.error("Your session has ended.", icon=":material/lock:")
        st.html('<a href="/login">Sign in again</a>')
        st.stop()
    return found


def require(permission: Permission) -> Member:
    """The visitor's account, if its role allows what a button is about to do.

    Raises:
        StoreError: it does not (any more).
    """
    visitor = account()
    if not visitor.may(permission):
        raise StoreError(f"the role {visitor.role!r} of {visitor.name!r} does not allow that")
    return visitor


def account_line(visitor: Member) -> None:
    """Who is signed in, and how to sign out."""
    left, right = st.columns([5, 1])
    left.caption(f"Signed in as {plain(visitor.name)} ({visitor.role}).")
    if COOKIE_VARIABLE in os.environ:
        right.html('<a href="/logout">Sign out</a>')


def plain(text: str) -> str:
    """A text as Markdown that shows it letter by letter, whatever signs are in it."""
    return "".join(f"\\{sign}" if sign in r"\`*_{}[]()#+-.!|<>~$:&" else sign for sign in text)
