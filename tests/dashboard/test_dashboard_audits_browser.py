"""An alarm as a person sees it, in Debian's Chromium."""

from __future__ import annotations

import populated
import pytest
from serving import Served
from test_dashboard_audits import an_audit, the_alarm

from fedlens.dashboard.summary.audits import ALARM
from fedlens.store import Store

pytestmark = pytest.mark.browser


def _frame_of(page) -> str:
    return str(
        page.locator("[data-testid='stMain']").evaluate("e => getComputedStyle(e).boxShadow")
    )


def test_an_alarm_is_red_on_every_page_of_its_run_alone(
    signed_in_page, served: Served, store_at: tuple[str, Store]
) -> None:
    page = signed_in_page
    store = store_at[1]
    populated.whole_run(store, "good", count=20)
    populated.whole_run(store, "caught", count=20)
    project = populated.add_project(store, "caught")
    store.record_audit(an_audit("good"))
    store.record_audit(the_alarm("caught"))
    for place in ("run?run=caught", "samples?run=caught", f"annotate?project={project}"):
        page.goto(f"{served.address}/{place}")
        banner = page.get_by_role("alert").filter(has_text=ALARM)
        banner.wait_for()
        assert "199 of 200" in banner.inner_text()
        assert banner.bounding_box()["y"] < 500  # seen without scrolling
        assert "198, 40, 40" in _frame_of(page)

    page.goto(f"{served.address}/run?run=caught")
    page.locator("[data-testid='stBadge'], .stMarkdownBadge").filter(has_text=ALARM).wait_for()
    page.get_by_text("Audits", exact=True).wait_for()

    page.goto(f"{served.address}/run?run=good")
    page.get_by_text("142 of 200").wait_for()
    assert page.get_by_text(ALARM).count() == 0
    assert "198, 40, 40" not in _frame_of(page)
