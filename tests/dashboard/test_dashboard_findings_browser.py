"""From a diagnosis to a report, as an engineer does it in Debian's Chromium."""

from __future__ import annotations

from pathlib import Path

import diagnosed
import populated
import pytest
from serving import Served

from fedlens.store import SampleFilter, Store

pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.browser
TILE = 60  # 56 pixels and a gap of 4


def test_a_fault_is_kept_samples_are_chosen_tagged_and_added_and_the_report_is_safe(
    signed_in_page, served: Served, store_at: tuple[str, Store], tmp_path: Path
) -> None:
    page, store = signed_in_page, store_at[1]
    populated.whole_run(store, "run-1", count=60)
    diagnosed.keep(diagnosed.folder_of(tmp_path), diagnosed.said(findings=[diagnosed.TURNED]))
    page.goto(f"{served.address}/diagnosis?run=run-1")
    page.get_by_role("button", name="Keep as a finding").click()
    page.get_by_role("link", name="Finding 1: open").wait_for()

    page.goto(f"{served.address}/samples?run=run-1")
    canvas = page.locator("canvas[data-drawn='60']")
    canvas.wait_for()
    box = canvas.bounding_box()
    page.mouse.click(box["x"] + TILE + 20, box["y"] + 20)  # the second opens
    page.locator(".near[data-known]").wait_for()
    page.keyboard.down("Shift")
    page.mouse.click(box["x"] + 3 * TILE + 20, box["y"] + 20)  # up to the fourth
    page.keyboard.up("Shift")
    page.get_by_text("3 chosen").wait_for()
    page.keyboard.press("Shift+ArrowRight")  # and the fifth
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Space")  # and the seventh
    page.get_by_text("5 chosen").wait_for()
    page.get_by_role("combobox", name="Tag", exact=True).fill("turned")
    page.get_by_role("button", name="Add tag").click()
    page.get_by_text("given to 5 samples").wait_for()
    page.get_by_label("Evidence for a finding").select_option("1")
    page.get_by_text("5 samples added to finding 1").wait_for()
    page.get_by_role("button", name="Clear selection").click()
    page.locator(".gallery[data-chosen='0']").wait_for()
    rows = store.samples(SampleFilter(run_id="run-1", purpose="curated"))
    ids = [rows[place].sample_id for place in (1, 2, 3, 4, 6)]
    assert sorted(store.sample_marks(ids)[1]) == ids and store.tags("run-1") == {"turned": 5}

    page.goto(f"{served.address}/samples?run=run-1&tag=turned")
    page.locator("canvas[data-drawn='5']").wait_for()

    page.goto(f"{served.address}/findings?finding=1")
    page.get_by_text("5 synthetic samples").wait_for()
    with page.expect_download() as waited:
        page.get_by_role("button", name="Report to share").click()
    report = tmp_path / "report.html"
    waited.value.save_as(report)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(report.as_uri())
    sizes = page.eval_on_selector_all("img", "all => all.map(one => one.naturalWidth)")
    assert sizes == [28] * 5
    assert page.get_by_text("Could not have been seen").is_visible()
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
