"""The sample browser in Debian's Chromium: filters, orders, close-ups and marks at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import populated
import pytest
from browser_setup import axe_script
from serving import Served
from sqlalchemy import update

from fedlens.store import SampleFilter, SampleRecord, Store, StoredSample, decode_png
from fedlens.store.schema import BatchTable, RunTable

pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.browser
COUNT, TILE = 300, 60


@pytest.fixture
def shown(store_at: tuple[str, Store]) -> list[StoredSample]:
    """A faithful batch of 300 samples, the annotator's agreement rising from 0 to 1."""
    store = store_at[1]
    populated.whole_run(store, "run-1", count=20)
    drawn = populated.samples(COUNT, 5)
    agreed = [
        SampleRecord(**vars(one) | {"agreement": place / (COUNT - 1)})
        for place, one in enumerate(drawn)
    ]
    batch = store.batches("run-1")[-1]
    record = populated.BatchRecord(
        run_id="run-1", round=3, ledger_index=2, purpose="faithful", seed=99, count=COUNT,
        checkpoint_sha256=batch.checkpoint_sha256, private=True, provenance="SYNTHETIC",
        **populated.spent(3, private=True),
    )  # fmt: skip
    number = store.add_batch(record, agreed)
    return store.samples(SampleFilter(batch_id=number))


def counted(page: Any, words: str) -> None:
    page.locator(".tools .count[role=status]", has_text=words).wait_for()


def painted(page: Any, sample_id: int) -> np.ndarray:
    """The close-up's pixels, each block checked to be of one value."""
    canvas = page.locator(f".near canvas[data-painted='{sample_id}']")
    canvas.wait_for()
    width, height, values = canvas.evaluate(
        "c => [c.width, c.height, [...c.getContext('2d').getImageData(0, 0, c.width, c.height)"
        ".data].filter((_, i) => i % 4 === 0)]"
    )
    large = np.array(values, np.uint8).reshape(height, width)
    factor = width // 28
    small = large[::factor, ::factor]
    assert factor > 1 and np.array_equal(large, np.kron(small, np.ones((factor, factor), np.uint8)))
    return small


@pytest.mark.law("7: pixels survive storage and display")
def test_a_close_up_is_there_at_once_and_arrows_go_on(
    signed_in_page: Any, served: Served, shown: list[StoredSample]
) -> None:
    page, sent = signed_in_page, [0]
    page.on("websocket", lambda one: one.on("framesent", lambda _: sent.append(1)))
    page.goto(f"{served.address}/samples?run=run-1")
    counted(page, "300 samples")
    canvas = page.locator("canvas[data-drawn]")
    box = canvas.bounding_box()
    assert box["y"] < 300, "one row of controls above the first picture"
    assert page.locator("img").count() < 10
    page.get_by_text("Every image here is").wait_for()
    page.wait_for_timeout(300)
    before = len(sent)
    page.mouse.click(box["x"] + 2 * TILE + 20, box["y"] + 20)
    assert np.array_equal(painted(page, shown[2].sample_id), decode_png(shown[2].png)[0])
    page.locator(".near", has_text="no. 2 ·").wait_for()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    assert np.array_equal(painted(page, shown[5].sample_id), decode_png(shown[5].png)[0])
    page.keyboard.press("+")
    assert np.array_equal(painted(page, shown[5].sample_id), decode_png(shown[5].png)[0])
    page.locator(".near", has_text="BDP ε").wait_for()
    assert f"sample={shown[5].sample_id}" in page.url
    assert len(sent) == before > 1, "Streamlit was not asked"
    page.reload()
    painted(page, shown[5].sample_id)
    page.keyboard.press("Escape")
    page.locator(".near").wait_for(state="hidden")


def test_classes_are_called_by_their_names(
    signed_in_page: Any, served: Served, store_at: tuple[str, Store], shown: list[StoredSample]
) -> None:
    names = [f"number {number}" for number in range(10)]
    with store_at[1]._writing() as session:
        session.execute(update(RunTable).values(class_names=names))
    page = signed_in_page
    page.goto(f"{served.address}/samples?run=run-1")
    counted(page, "300 samples")
    page.get_by_role("checkbox", name="number 3 30", exact=True).check()
    counted(page, "30 of 300")
    page.goto(f"{served.address}/samples?run=run-1&sample={shown[3].sample_id}")
    page.locator(".near", has_text=f"Requested{names[shown[3].requested_class]}").wait_for()
    page.goto(f"{served.address}/run?run=run-1")
    page.get_by_text("Classes: 0 number 0, 1 number 1, ").wait_for()


def test_filters_and_orders_are_of_the_whole_batch_and_stand_in_the_address(
    signed_in_page: Any, served: Served, shown: list[StoredSample]
) -> None:
    page = signed_in_page
    page.goto(f"{served.address}/samples?run=run-1")
    counted(page, "300 samples")
    page.get_by_role("checkbox", name="3 30", exact=True).check()
    counted(page, "30 of 300")
    page.get_by_role("checkbox", name="4 30", exact=True).check()
    counted(page, "60 of 300")
    page.get_by_label("Least agreement").fill("49")
    page.get_by_label("Least agreement").press("ArrowRight")
    counted(page, "30 of 300")
    assert "class=3%2C4" in page.url and "agreement=0.5-1" in page.url
    page.go_back()  # both moves of the slider were one
    counted(page, "60 of 300")
    page.go_back()
    counted(page, "30 of 300")
    page.wait_for_selector("[data-testid='stApp'][data-test-script-state='notRunning']")
    page.wait_for_function("new URLSearchParams(location.search).get('class') === '3'")
    page.reload()
    counted(page, "30 of 300")
    page.goto(f"{served.address}/samples?run=run-1&order=doubtful&class=7&agreement=0.2-1")
    counted(page, "24 of 300")
    page.locator("canvas[data-drawn]").focus()
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    least = next(one for one in shown if one.requested_class == 7 and (one.agreement or 0) >= 0.2)
    painted(page, least.sample_id)
    page.get_by_role("button", name="More like this").click()
    page.wait_for_url("**order=alike**")
    page.locator(".near", has_text="1 of ").wait_for()
    page.get_by_label("Order").select_option("oddest")
    page.get_by_role("button", name="Map").click()
    page.locator("canvas.map[data-count]").wait_for()
    page.reload()
    page.locator("canvas.map[data-count]").wait_for()
    page.locator("canvas.map[data-clear='true']").wait_for(timeout=300_000)


def test_of_a_batch_in_parts_the_page_says_what_it_covers(
    signed_in_page: Any,
    served: Served,
    store_at: tuple[str, Store],
    shown: list[StoredSample],
) -> None:
    page, number = signed_in_page, shown[0].batch_id
    address = f"{served.address}/samples?run=run-1&batch={number}"
    page.goto(address)
    counted(page, "300 samples")
    assert page.get_by_text("look at no other").count() == 0
    strip = store_at[1].batches("run-1")[0]
    page.set_viewport_size({"width": 1280, "height": 1400})
    tall = page.locator(".parts").bounding_box()["height"]
    page.goto(f"{served.address}/samples?run=run-1&batch={strip.batch_id}")
    counted(page, f"{strip.count} samples")
    page.wait_for_function(
        """tall => {
          const found = (root) => root.querySelector(".parts") || [...root.querySelectorAll("*")]
            .map((one) => one.shadowRoot && found(one.shadowRoot)).find(Boolean);
          const parts = found(document);
          return parts && parts.clientHeight < tall / 1.3;
        }""",
        arg=tall,
    )
    page.goto(address)
    with store_at[1]._writing() as session:
        session.execute(
            update(BatchTable).where(BatchTable.batch_id == number).values(count=45_000)
        )
    page.goto(address)
    counted(page, "300 samples in this part, as stored")
    assert page.get_by_label("Part of the batch").locator("option").count() == 3
    page.get_by_label("Order").select_option("oddest")
    counted(page, "300 samples of all 45,000 in this order")
    page.get_by_role("button", name="Map").click()
    counted(page, "300 samples spread over all 45,000")
    page.locator("canvas.map[data-count='300']").wait_for()
    page.go_back()
    counted(page, "300 samples of all 45,000 in this order")


def test_a_selection_is_tagged_and_labelled_at_once_and_the_page_is_accessible(
    signed_in_page: Any, served: Served, store_at: tuple[str, Store], shown: list[StoredSample]
) -> None:
    page, store = signed_in_page, store_at[1]
    number = populated.add_project(store, blind=False, purpose="faithful", name="seen")
    label = store.labels(number)[-1]
    page.goto(f"{served.address}/samples?run=run-1&class=2")
    counted(page, "30 of 300")
    canvas = page.locator("canvas[data-drawn]")
    canvas.focus()
    page.keyboard.press("Control+a")
    page.locator(".gallery[data-chosen='30']").wait_for()
    page.get_by_role("combobox", name="Tag", exact=True).fill("<b>odd")
    page.get_by_role("button", name="Add tag").click()
    page.locator(".said-now.bad", has_text="tag").wait_for()
    page.get_by_role("combobox", name="Tag", exact=True).fill("odd")
    page.get_by_role("button", name="Add tag").click()
    page.get_by_text("Tag “odd” given to 30 samples.").wait_for()
    page.get_by_label("Label for the chosen samples").select_option(label=f"seen: {label.name}")
    page.get_by_text("30 samples labelled").wait_for()
    ids = {one.sample_id for one in shown if one.requested_class == 2}
    assert {one.sample_id for one in store.annotations(number)} == ids
    assert store.tags("run-1") == {"odd": 30}
    page.get_by_role("checkbox", name="2 30", exact=True).uncheck()
    page.get_by_role("checkbox", name="odd 30", exact=True).check()
    counted(page, "30 of 300")
    page.goto(f"{served.address}/samples?run=run-1&label={label.label_id}&sample={min(ids)}")
    counted(page, "30 of 300")
    painted(page, min(ids))
    page.locator(".near", has_text=f"{label.name} (seen)").wait_for()
    page.get_by_text("Every image here is").wait_for()
    script = axe_script()
    if script is not None:
        page.evaluate(script)
        said = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        serious = [one for one in said["violations"] if one["impact"] in ("serious", "critical")]
        assert [(one["id"], one["nodes"][0]["html"]) for one in serious] == []
