"""Team: accounts with their roles, and the log of what people did."""

from __future__ import annotations

import streamlit as st

from fedlens.dashboard.access.account import plain, require
from fedlens.dashboard.access.session import home, plain_errors
from fedlens.dashboard.widgets.display import frame
from fedlens.dashboard.widgets.pages import DashboardPage
from fedlens.store import PERMISSIONS, ROLES, Member, Role, StoreError

MEANINGS = {
    "look": "sees runs and samples",
    "annotate": "labels",
    "review": "decides and exports",
    "manage": "makes projects, asks probes",
    "approve": "says what may be spent unasked, approves the rest",
    "administer": "keeps accounts",
}


def _add(visitor: Member) -> None:
    with st.form("new-account", clear_on_submit=True):
        name, role, password = st.columns(3)
        given = name.text_input("Name", max_chars=60)
        chosen = role.selectbox("Role", ROLES, index=1)
        secret = password.text_input("Password (10 characters or more)", type="password")
        outside = st.checkbox("No password: signs in through our identity provider, by this name")
        if not st.form_submit_button("Add account", type="primary"):
            return
    try:
        require("administer")
        home().add_account(given.strip(), chosen, None if outside else secret, actor=visitor.name)
    except StoreError as error:
        st.error(f"The account was not added: {plain(error)}")
    else:
        st.rerun()


def _accounts(visitor: Member) -> None:
    for one in home().accounts():
        name, role, state = st.columns([3, 2, 2], vertical_alignment="center")
        name.markdown(plain(one.name) + (" (disabled)" if one.disabled else ""))
        chosen = role.selectbox(
            f"Role of {one.name}",
            ROLES,
            index=ROLES.index(one.role),
            # Named by what is in force: what an open page shows of earlier is never written back.
            key=f"role-{one.user_id}-{one.role}",
            label_visibility="collapsed",
            disabled=one.user_id == visitor.user_id,
        )
        if chosen != one.role:
            _change(one.name, chosen)
        words = "Enable" if one.disabled else "Disable"
        own = one.user_id == visitor.user_id
        if state.button(words, key=f"{words.lower()}-{one.user_id}", disabled=own):
            actor = require("administer")
            home().set_disabled(one.name, not one.disabled, actor=actor.name)
            st.rerun()


def _change(name: str, role: Role) -> None:
    home().set_role(name, role, actor=require("administer").name)
    st.rerun()


def render() -> None:
    """Show the page."""
    st.title("Team")
    with plain_errors():
        visitor = require("administer")
        _accounts(visitor)
        st.markdown("#### New account")
        _add(visitor)
        with st.expander("What roles may do"):
            for role in ROLES:
                allowed = [words for key, words in MEANINGS.items() if key in PERMISSIONS[role]]
                st.markdown(f"**{role}** {', '.join(allowed)}")
        st.markdown("#### Log")
        entries = home().log_entries()
        rows = [
            {"Day": str(one.day), "Who": one.actor, "What": one.action, "Subject": one.subject}
            for one in entries
        ]
        st.dataframe(frame(rows), hide_index=True, alt="What people did, the last first")


PAGE = DashboardPage("Team", ":material/group:", "team", 90, render, "administer")
