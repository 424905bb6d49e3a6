"""The script that Streamlit runs: page set-up and navigation.

`fedlens.dashboard.serve` starts it.
"""

from urllib.parse import quote

import streamlit as st

from fedlens.dashboard.access.account import account, render_account_line
from fedlens.dashboard.access.session import (
    RUN_PARAMETER,
    all_runs,
    home,
    look_at,
    name_page,
    nearby,
    plain_errors,
    remembered,
)
from fedlens.dashboard.widgets.display import put_style
from fedlens.dashboard.widgets.pages import PAGES, pages_for
from fedlens.foundation.registry import PluginError

LENS = (
    '<circle cx="13" cy="13" r="9" fill="none" stroke="#3f86c9" stroke-width="3"/>'
    '<path d="M20 20l8 8" stroke="#3f86c9" stroke-width="4" stroke-linecap="round"/>'
    '<circle cx="10" cy="12" r="1.8" fill="#d1711b"/><circle cx="15" cy="10" r="1.8" '
    'fill="#d1711b"/><circle cx="14" cy="16" r="1.8" fill="#d1711b"/>'
)
ICON = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">{LENS}</svg>'
LOGO = (
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 130 32">{LENS}<text x="38" y="23" '
    'font-family="sans-serif" font-size="22" font-weight="700" fill="#3f86c9">fedlens</text></svg>'
)


def main() -> None:
    """Show the page that the address names."""
    # An icon by name would be fetched from a font server; this one is in the page itself.
    st.set_page_config(
        page_title="fedlens", page_icon=f"data:image/svg+xml,{quote(ICON)}", layout="wide"
    )
    put_style()
    st.logo(LOGO, size="large")
    with plain_errors():
        look_at(None)
        visitor = account()
        look_at(_run_asked_for())
    _say_what_is_missing()
    pages = pages_for(visitor)
    shown = [page.in_navigation(default=page is pages[0]) for page in pages]
    chosen = st.navigation(shown, position="top")
    name_page(chosen.title)
    chosen.run()
    with plain_errors():
        st.divider()
        render_account_line(visitor)
        st.caption(
            "Every image here is **synthetic**: drawn from a generator that learned only from "
            "clipped, aggregated updates of users' devices. No user's data is in this store. "
            f"Store: `{nearby(home().place)}`"
        )


def _run_asked_for() -> str | None:
    """The run that the page is about, until a picker says another: its store is looked at.

    The address names it, or it was looked at before. A store of accounts alone gives way to that
    of the newest run.
    """
    asked = st.query_params.get(RUN_PARAMETER) or remembered(RUN_PARAMETER)
    if asked is None and not home().has_runs():
        asked = next((run.run_id for run in all_runs()), None)
    return asked


def _say_what_is_missing() -> None:
    """Of pages that cannot be loaded the screen says what to fix."""
    for name in PAGES:
        try:
            _ = PAGES[name]
        except PluginError as error:
            st.warning(str(error), icon=":material/extension_off:")


main()
