"""A reviewer at work in Debian's Chromium: keys, clicks, second thoughts, a matrix."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import populated
import pytest
from serving import Served

from fedlens.store import Adjudication, Annotation, Store

playwright = pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.browser
ANSWERED, DIFFERING = 70, 50


@pytest.fixture
def project(store_at: tuple[str, Store]) -> int:
    """Two people answered 70 samples and differ on the first 50."""
    store = store_at[1]
    populated.whole_run(store, count=ANSWERED)
    number = populated.add_project(store, overlap=2)
    labels = [label.label_id for label in store.labels(number)]
    for name, shift in (("ann", 0), ("bob", 1)):
        user = store.ensure_user(name)
        for place, sample in enumerate(store.queue(number, user, ANSWERED)):
            step = shift if place < DIFFERING else 0
            store.annotate(
                Annotation(
                    client_uuid=f"{name}-{place}",
                    project_id=number,
                    sample_id=sample.sample_id,
                    user_id=user,
                    label_id=labels[(place + step) % 10],
                )
            )
    return number


def open_desk(page: Any, served: Served, project: int) -> None:
    page.goto(f"{served.address}/review?project={project}")
    page.locator(".desk[data-painted]").wait_for()


def on_screen(page: Any) -> int:
    return int(page.locator(".desk").get_attribute("data-sample") or 0)


def saved(page: Any) -> None:
    page.locator(".desk[data-unsent='0']").wait_for(timeout=15_000)


def decided(store: Store, project: int) -> dict[int, str | None]:
    keys = {label.label_id: label.key for label in store.labels(project)}
    return {
        one.sample_id: keys.get(one.label_id or 0)
        for one in store.final_labels(project)
        if one.decided
    }


@pytest.mark.law("labels: no answer is lost or counted twice")
def test_quick_keys_and_clicks_decide_only_what_was_on_the_screen(
    signed_in_page: Any, served: Served, store_at: tuple[str, Store], project: int
) -> None:
    """Each press is compared with the picture that was painted at that instant."""
    page, store = signed_in_page, store_at[1]
    open_desk(page, served, project)
    assert page.locator("[aria-pressed=true]").count() == 0, "nothing is chosen beforehand"
    assert "requested as" not in page.locator(".desk").inner_text()
    assert "ann" not in page.locator(".given").inner_text(), "a blind project names nobody"
    pressed = page.evaluate(
        """async () => {
          const find = (name) => [...document.querySelectorAll('*')].map((host) =>
            host.shadowRoot && host.shadowRoot.querySelector(name)).find(Boolean);
          const desk = find('.desk'), taken = {};
          for (let i = 0; i < 200; i += 1) {
            const id = desk.dataset.sample, seen = desk.dataset.painted === id;
            const key = String(i % 10);
            if (i % 2) {
              desk.querySelectorAll('.labels button')[i % 10].dispatchEvent(
                new MouseEvent('click', {bubbles: true, composed: true, detail: 1}));
            } else document.dispatchEvent(new KeyboardEvent('keydown', {key}));
            if (desk.dataset.sample !== id) {
              if (!seen) throw new Error('decided unseen');
              taken[id] = key;
            }
            await new Promise((done) => setTimeout(done, (i * 7) % 40));
          }
          return taken;
        }"""
    )
    saved(page)
    assert len(pressed) == DIFFERING
    assert decided(store, project) == {int(sample): key for sample, key in pressed.items()}
    page.get_by_text("Nothing to decide").wait_for()


def test_a_reviewer_takes_back_reopens_and_decides_many_at_once(
    signed_in_page: Any, served: Served, store_at: tuple[str, Store], project: int
) -> None:
    page, store = signed_in_page, store_at[1]
    open_desk(page, served, project)
    first = on_screen(page)
    page.locator(".given button").first.dblclick()  # decides one sample, not two
    page.locator(f".desk:not([data-sample='{first}'])").wait_for()
    second = on_screen(page)
    page.locator(f".desk[data-painted='{second}']").wait_for()
    page.keyboard.press("Shift+Digit7")
    saved(page)
    labels = {label.key: label.label_id for label in store.labels(project)}
    assert decided(store, project) == {first: "0", second: "7"}
    assert store.gold(project) == {second: labels["7"]}
    page.keyboard.press("u")
    saved(page)
    assert (decided(store, project), store.gold(project)) == ({first: "0"}, {})
    page.reload()
    page.locator(".desk[data-painted]").wait_for()
    assert on_screen(page) == second
    page.get_by_label("Show", exact=True).select_option("decided")
    playwright.expect(page.get_by_label("Decided by")).to_be_hidden()  # by one person alone
    theirs = Adjudication(
        project_id=project,
        sample_id=second,
        user_id=store.ensure_user("other reviewer"),
        label_id=labels["4"],
    )
    assert store.adjudicate(theirs)
    page.get_by_label("Show", exact=True).select_option("waiting")
    page.get_by_label("Show", exact=True).select_option("decided")
    page.locator(f"[data-open='{second}']").wait_for()
    page.get_by_label("Decided by").select_option(label="local")
    playwright.expect(page.locator(f"[data-open='{second}']")).to_have_count(0)
    assert store.adjudicate(replace(theirs, client_uuid="b", label_id=None, reopens=True))
    page.locator(f"[data-open='{first}']").click()
    page.locator(f".desk[data-painted='{first}']").wait_for()
    page.route("**/decisions", lambda route: None)  # new lists are long on their way
    page.keyboard.press("Delete")  # second thoughts: excluded
    saved(page)
    assert decided(store, project) == {first: None}
    page.locator(f"[data-open='{first}']").click()  # the list shows the earlier label still
    page.get_by_role("button", name="Reopen").click()
    saved(page)
    assert decided(store, project) == {}
    page.unroute("**/decisions")
    page.get_by_text("Decide many by agreement").click()
    page.get_by_role("button", name=f"Accept the label of {ANSWERED - DIFFERING}").click()
    assert decided(store, project) == {}, "asked once more"
    page.get_by_role("button", name="Confirm").click()
    page.get_by_text(f"{ANSWERED - DIFFERING} decided.").wait_for()
    assert len(decided(store, project)) == ANSWERED - DIFFERING
    page.get_by_role("button", name="Take back what was decided together").click()
    page.get_by_text(f"{ANSWERED - DIFFERING} taken back.").wait_for()
    assert decided(store, project) == {}
    tables = page.locator("[data-testid='stDataFrame']")
    assert tables.count() == 0, "tables are made for those who open their box"
    page.get_by_text("Annotators and labels").click()
    tables.nth(2).wait_for()
    page.get_by_text("samples that two people or more have answered").wait_for()


def test_a_cell_of_the_results_shows_its_samples(
    signed_in_page: Any, served: Served, store_at: tuple[str, Store], project: int
) -> None:
    page = signed_in_page
    page.goto(f"{served.address}/results?project={project}")
    cell = page.get_by_role("button", name="3, class 3: 2,")
    cell.click()
    page.get_by_text("2 samples of class 3 that count as class 3").wait_for()
    page.wait_for_url("**cell=3-3**")
    page.locator("a[href*='/samples?run=run-1&sample=']").nth(1).wait_for()
