"""Privatizers: what filters leave of utility and sensitive attribute, under fresh attacks."""

from __future__ import annotations

from functools import partial

import streamlit as st

from fedlens.dashboard.access.account import put_closed
from fedlens.dashboard.access.session import pick, plain_errors, store
from fedlens.dashboard.widgets.display import put_table
from fedlens.dashboard.widgets.pages import DashboardPage
from fedlens.store import StoredPrivatizerCurve
from fedlens_research.pages import curve_tables

CURVE_PARAMETER = "curve"
START_HINT = "fedlens privatizer curve --method alpha --quick --out runs/alpha"


def _empty() -> None:
    st.info("**No curves yet.** Make one in a terminal, and open the dashboard on its store.")
    st.code(START_HINT, language="bash")


def _charts(curve: StoredPrivatizerCurve) -> None:
    left, right = st.columns(2, gap="large")
    with left:
        st.markdown("#### Which attackers still read the sensitive attribute")
        st.altair_chart(
            curve_tables.sensitive_chart(curve),
            alt="Line chart of each attacker's balanced accuracy against the utility",
        )
    with right:
        st.markdown("#### What is left of it, at least")
        st.altair_chart(
            curve_tables.leak_chart(curve),
            alt="Line chart of each attacker's lower bound on the leak against the utility",
        )


def _tables(curve: StoredPrivatizerCurve) -> None:
    st.markdown("#### Points")
    put_table(
        curve_tables.point_table(curve),
        "Table of the curve's points with utility and strongest attacker",
    )
    if curve.controls:
        st.caption(curve_tables.CONTROLS_CAPTION)
    st.caption(curve_tables.ATTACKS_CAPTION)
    put_closed("Every attacker", "look", partial(_attackers, curve))
    st.markdown("#### Certified, apart from all attacks")
    said = "Table of what is certified of each filter"
    put_table(curve_tables.certified_table(curve), said)
    st.caption(curve_tables.CERTIFIED_CAPTION)
    _fairness(curve)


def _attackers(curve: StoredPrivatizerCurve) -> None:
    put_table(curve_tables.attack_table(curve), "Table of every attacker at every point")


def _fairness(curve: StoredPrivatizerCurve) -> None:
    st.markdown("#### Fairness of the service's answers")
    rows = curve_tables.fairness_table(curve)
    if rows.empty:
        st.caption("Undefined here: some group has no record of some truth, or none is asked for.")
        return
    put_table(rows, "Table of differences between groups at each point")
    st.caption("Differences of shares between groups; 0 is equal treatment.")


def render() -> None:
    """Show the page."""
    st.title("Privatizers")
    with plain_errors():
        curves = store().privatizer_curves()
        if not curves:
            _empty()
            return
        by_id = {str(curve.curve_id): curve for curve in curves}
        curve = pick("Curve", by_id, curve_tables.title, CURVE_PARAMETER)
        st.warning(f"**{curve.label[0].upper()}{curve.label[1:]}.**", icon=":material/science:")
        if curve.quick:
            st.caption("A quick curve: few steps and small networks, which costs quality.")
        if curve.seeds < 3:
            st.caption(f"{curve.seeds} seed(s): a deviation over so few means little.")
        _charts(curve)
        _tables(curve)
        st.caption(
            "Records before and after a filter are in the folder of the report alone: they are "
            "real where the data are, and this store has no place for them."
        )


PAGE = DashboardPage("Privatizers", ":material/filter_alt:", "privatizers", 50, render)
