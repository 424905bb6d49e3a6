"""Who looks at the page: the account of the visitor's session, asked of the store each time."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial

import streamlit as st

from fedlens.dashboard.access.session import home, plain_errors, store
from fedlens.dashboard.access.visitors import Visitors
from fedlens.dashboard.widgets.markup import plain as plain
from fedlens.dashboard.widgets.options import COOKIE_VARIABLE, USER_VARIABLE
from fedlens.store import Member, Permission, Store, StoreError

WRONG_SECONDS = 0.5
"""That a wrong password takes."""
_TURN = threading.Lock()


def account() -> Member:
    """The visitor's account; without an open session the page ends here.

    A page that no gate stands before (one that its own user runs, as a test does) is the owner's.
    """
    found = _whose(home(), _cookie())
    if found is None:
        st.error("Your session has ended.", icon=":material/lock:")
        st.html('<a href="login">Sign in again</a>')
        st.stop()
    return known_in(store(), home(), found)


def known_in(source: Store, own: Store, member: Member) -> Member:
    """A member as another store of the workspace numbers them: the name is the same in all."""
    if source.place == own.place or not member.may("annotate"):
        return member
    return replace(member, user_id=_numbered(source.place, member.name, source))


@lru_cache(maxsize=1024)
def _numbered(_place: str, name: str, source: Store) -> int:
    return source.ensure_user(name)


def require(permission: Permission) -> Member:
    """The visitor's account, if its role allows what a button is about to do.

    Parts of a page that renew themselves ask it too: the page around them is not run again.

    Raises:
        StoreError: it does not (any more).
    """
    return _allowed(account(), permission)


def put_closed(label: str, permission: Permission, render: Callable[[], None]) -> None:
    """Put a closed box on the page, whose content is made once somebody opens it who may.

    A table that nobody looks at would take its time from the page around it.

    Args:
        label: what the box says.
        permission: of the page, which is not run again for the box.
        render: puts the content on the page.
    """

    def part() -> None:
        box = st.expander(label, on_change="rerun")
        if box.open:
            with box, plain_errors():
                require(permission)
                render()

    st.fragment(part)()


def require_later(permission: Permission) -> Callable[[], Member]:
    """`require` for what happens after the page was drawn, and outside of it: a download."""
    return partial(_still_allowed, home(), _cookie(), permission)


def _still_allowed(source: Store, cookie: str | None, permission: Permission) -> Member:
    visitor = _whose(source, cookie)
    if visitor is None:
        raise StoreError("the session has ended")
    return _allowed(visitor, permission)


def _cookie() -> str | None:
    """The visitor's cookie; None on a page that no gate stands before."""
    name = os.environ.get(COOKIE_VARIABLE)
    return None if name is None else st.context.cookies.get(name, "")


def _whose(source: Store, cookie: str | None) -> Member | None:
    if cookie is not None:
        return Visitors(source).look_up(cookie)
    owner = source.owner_account(os.environ.get(USER_VARIABLE, "local"))
    return None if owner.disabled else owner


def _allowed(visitor: Member, permission: Permission) -> Member:
    if not visitor.may(permission):
        raise StoreError(f"the role {visitor.role!r} of {visitor.name!r} does not allow that")
    return visitor


def render_account_line(visitor: Member) -> None:
    """Who is signed in, and how to sign out."""
    left, middle, right = st.columns([7, 1, 1], vertical_alignment="center")
    left.caption(f"Signed in as {plain(visitor.name)} ({visitor.role}).")
    if COOKIE_VARIABLE not in os.environ:
        return
    with middle.popover("Account"):
        _own_account(visitor)
    right.html('<p class="away"><a href="logout">Sign out</a></p>')


def _own_account(visitor: Member) -> None:
    """What people may do with their own account. Each ends all of its sessions, this one too."""
    if st.button("Sign out everywhere", key="sign_out_everywhere"):
        home().sign_out_everywhere(account().name, actor=visitor.name)
        st.rerun()
    with st.form("own-password", clear_on_submit=True):
        old = st.text_input("Current password", type="password")
        new = st.text_input("New password (10 characters or more)", type="password")
        if not st.form_submit_button("Change password"):
            return
    try:
        changed = change_password(account(), old, new)
    except StoreError as error:
        st.error(plain(error))
        return
    if changed:
        st.rerun()
    st.error("Wrong current password.")


def change_password(visitor: Member, old: str, new: str) -> bool:
    """Give the visitor another password, if the present one is right; else wait and log it.

    Raises:
        StoreError: the new one cannot be used.
    """
    with _TURN:  # guesses of all sessions wait for each other
        if home().check_password(visitor.name, old) is None:
            home().log_refusal("own account", visitor.name)
            time.sleep(WRONG_SECONDS)
            return False
    home().set_password(visitor.name, new, actor=visitor.name)
    return True
