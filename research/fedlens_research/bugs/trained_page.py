"""The part of the page that really trained runs fill: methods side by side, and samples."""

from __future__ import annotations

import os
from pathlib import Path

from fedlens.foundation.tables import percent
from fedlens_research.bugs import page_texts
from fedlens_research.bugs.results import BugResults
from fedlens_research.bugs.trained import PROBE_DELTA, PROBE_EPSILON, SHARE, LookedAt
from fedlens_research.framework.pages import markdown_table, picture

SHEETS = "bugs-sheets.png"


def trained_lines(results: BugResults, page: Path, images: Path) -> list[str]:
    """Lines of the page; none where no run was trained."""
    if not results.looks:
        return []
    head = ["looked for", "users with it", "how", "share said (%)", "95% interval", "ε", "note"]
    rows = [_row(one) for one in results.looks]
    epsilon = max(one.epsilon for one in results.looks if one.how != "probe")
    text = page_texts.SIDE_BY_SIDE.format(
        epsilon=epsilon, probe_epsilon=PROBE_EPSILON, probe_delta=PROBE_DELTA
    )
    lines = [*text.splitlines(), "", *markdown_table(head, rows), ""]
    sheets = images / SHEETS
    if sheets.is_file():
        where = os.path.relpath(sheets, page.parent)
        title = page_texts.SHEETS.format(share=SHARE).replace("\n", " ")
        lines += [picture(title, where), "", f"*{title}.*", ""]
    return lines


def _row(one: LookedAt) -> list[str]:
    interval = "–"
    if one.low is not None and one.high is not None:
        interval = f"{percent(one.low)} to {percent(one.high)}"
    return [
        f"`{one.fault}`",
        percent(one.share, 0) + "%",
        one.how,
        percent(one.said),
        interval,
        f"{one.epsilon:.2f}",
        one.note,
    ]
