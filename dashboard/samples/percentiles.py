"""The percentile curve: which Bayesian ε holds for which share of users."""

from __future__ import annotations

import math
from typing import Any

import altair as alt
import streamlit as st

from fedlens.dashboard.summary.privacy import delta_text, epsilon_text
from fedlens.dashboard.widgets.tables import Frame, frame
from fedlens.store import RoundRecord

CURVE_HEIGHT = 300
SOUND = "BDP sound, for most users"
CORRECTED = "BDP corrected, for most users (estimate)"
COLUMNS = ["left out", "epsilon", "bound", "said"]
ROUNDING = 1e-9
CURVE_COLOURS = ("#2f9e78", "#d97a2b")


def curve_frame(last: RoundRecord, users: int) -> Frame:
    """One row a share of users and bound; shares that leave out less than one user are no use.

    Args:
        last: the run's latest round.
        users: N, enrolled users.
    """
    rows: list[dict[str, Any]] = [
        {
            "left out": round(1 - share, 9),
            "epsilon": epsilon,
            "bound": name,
            "said": epsilon_text(epsilon),
        }
        for name, curve in ((SOUND, last.percentiles), (CORRECTED, last.percentiles_corrected))
        for share, epsilon in sorted((float(s), e) for s, e in curve.items())
        if (1 - share) * users >= 1 - ROUNDING and math.isfinite(epsilon)
    ]
    return frame(rows, COLUMNS)


def percentile_chart(rows: Frame) -> alt.Chart:
    """ε against the share of users that it leaves out."""
    drawn: alt.Chart = (
        alt.Chart(rows)
        .mark_line(point=alt.OverlayMarkDef(size=28), strokeWidth=2)
        .encode(
            x=alt.X(
                "left out:Q", title="Share of users left out", axis=alt.Axis(format="~%")
            ).scale(type="log", reverse=True, nice=False, padding=8),
            y=alt.Y("epsilon:Q", title="ε for all others"),
            color=alt.Color(
                "bound:N", scale=alt.Scale(domain=[SOUND, CORRECTED], range=list(CURVE_COLOURS))
            )
            .title(None)
            .legend(orient="bottom", labelLimit=400, symbolType="stroke", columns=1),
            tooltip=[
                alt.Tooltip("bound:N", title="Bound"),
                alt.Tooltip("left out:Q", title="Share of users left out", format="~%"),
                alt.Tooltip("said:N", title="ε"),
            ],
        )
        .properties(height=CURVE_HEIGHT)
    )
    return drawn


def render_percentiles(last: RoundRecord, users: int) -> None:
    """Put the curve on the page with what it means, if the round has one."""
    rows = curve_frame(last, users)
    if rows.empty:
        return
    st.markdown("**For most users (Bayesian DP)**")
    st.altair_chart(
        percentile_chart(rows),
        alt="Line chart of epsilon against the share of users that it leaves out",
    )
    everybody = last.percentiles.get("1", math.inf)
    dp = f" For every single person, at the same δ: DP ε = {epsilon_text(everybody)}."
    flat = " Here no share of users is protected better than all." if _flat(rows) else ""
    st.caption(
        f"At δ = {delta_text(last.delta_bdp)}: all people drawn like those enrolled, but for the "
        "share left out, are protected with the ε of a curve, by Markov's inequality from that "
        "figure. A share of less than one of "
        f"{users:,} users would say nothing and is not shown.{dp}{flat}"
    )


def _flat(rows: Frame) -> bool:
    """Whether Bayesian accounting gains nothing: updates met the clip, or too few were seen."""
    return float(rows["epsilon"].max()) == float(rows["epsilon"].min())
