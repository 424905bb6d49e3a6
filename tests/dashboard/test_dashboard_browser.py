"""The dashboard as a person uses it: keys, clicks and reloads in Debian's Chromium."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import populated
import pytest
from serving import Served, start_dashboard, stop_dashboard

from fedlens.store import Store

playwright = pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, Served]]:
    """One served store for this file; each test has a run of its own in it."""
    folder = tmp_path_factory.mktemp("world")
    url, store = populated.new_store(folder)
    with store:
        populated.whole_run(store, "open", private=False, count=20)
        served = start_dashboard(url, folder)
        yield store, served
        stop_dashboard(served)


@pytest.fixture
def store(world: tuple[Store, Served]) -> Store:
    return world[0]


@pytest.fixture
def address(world: tuple[Store, Served]) -> str:
    return world[1].address


@pytest.fixture
def run_id(store: Store, request: pytest.FixtureRequest) -> str:
    """A run with a release batch of 120 samples, named like the test."""
    populated.whole_run(store, request.node.name, count=120)
    return str(request.node.name)


@pytest.fixture(scope="module")
def context(browser, world: tuple[Store, Served]) -> Iterator[object]:
    """A signed-in profile; shared, so that the application's code is loaded once."""
    made = signed_in(browser, world[1])
    yield made
    made.close()


def signed_in(browser, served: Served):
    context = browser.new_context(viewport={"width": 1280, "height": 1000})
    context.request.get(served.link)
    return context


@pytest.fixture
def page(context) -> Iterator[object]:
    """A page of its own; afterwards nothing may have gone wrong on it."""
    yield from watched(context)


def watched(context) -> Iterator[object]:
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    page.on("request", lambda request: wrong.append(request.url) if _leaves(request.url) else None)
    page.on(
        "console",
        lambda message: wrong.append(message.text) if _refused(message.text) else None,
    )
    yield page
    page.close()
    assert wrong == []


def _leaves(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme not in ("data", "blob") and parts.hostname != "127.0.0.1"


def _refused(message: str) -> bool:
    """A request that would have left the machine, had the page's policy not stopped it."""
    return "Content Security Policy" in message


class Desk:
    """The labelling desk on a project over one run's release batch, in stored order."""

    def __init__(self, page, store: Store, address: str, run_id: str) -> None:
        self.page, self.store, self.address = page, store, address
        self.project_id = populated.add_project(store, run_id)

    def open(self) -> None:
        self.page.goto(f"{self.address}/annotate?project={self.project_id}")
        self.page.locator("[data-label]").first.wait_for()
        self.page.locator(".desk:not([data-sample=''])").wait_for()

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def saved(self) -> None:
        self.page.locator(".desk[data-unsent='0']").wait_for(timeout=15_000)

    def shown(self) -> int:
        return int(self.page.locator(".desk").get_attribute("data-sample"))

    def counts(self) -> str:
        return str(self.page.locator(".counts").inner_text())

    def queue(self) -> list[int]:
        """All samples of the project, in the order served."""
        fresh = self.store.ensure_user("somebody who never answered")
        return [s.sample_id for s in self.store.queue(self.project_id, fresh, 1000)]

    def said(self) -> list[tuple[int, str | None]]:
        """Sample and label's key of each answer in force, in the order given."""
        keys = {label.label_id: label.key for label in self.store.labels(self.project_id)}
        answers = self.store.annotations(self.project_id)
        return [(a.sample_id, keys.get(a.label_id)) for a in answers]

    def history(self) -> int:
        return len(self.store.annotation_history(self.project_id))


@pytest.fixture
def desk(page, store: Store, address: str, run_id: str) -> Desk:
    made = Desk(page, store, address, run_id)
    made.open()
    return made


def test_ten_samples_are_labelled_by_keyboard(page, desk) -> None:
    seen = []
    for key in "3141592653":
        seen.append((desk.shown(), key))
        page.keyboard.press(key)
        page.locator(f".desk:not([data-sample='{seen[-1][0]}'])").wait_for()
    desk.saved()
    assert desk.said() == seen
    assert [sample for sample, _ in seen] == desk.queue()[:10]
    assert "10 labelled, 0 skipped, 110 left of 120" in desk.counts()
    assert all(answer.lead_ms is not None for answer in desk.store.annotations(desk.project_id))


@pytest.mark.parametrize("gap", [0, 60])
def test_keys_that_outrun_the_server_label_what_was_on_the_screen(page, desk, gap: int) -> None:
    keys = "0123456789qx" * 4
    for key in keys:
        page.keyboard.press(key)
        page.wait_for_timeout(gap)
    desk.saved()
    assert desk.said() == list(zip(desk.queue(), keys, strict=False))
    assert desk.history() == len(keys)


def test_more_keys_than_the_browser_has_samples_wait_for_more(page, desk) -> None:
    total = len(desk.queue())
    deadline = time.monotonic() + 60
    pressed = []
    while len(pressed) < total and time.monotonic() < deadline:
        sample = page.locator(".desk").get_attribute("data-sample")
        if sample:
            key = "0123456789"[len(pressed) % 10]
            pressed.append((int(sample), key))
            page.keyboard.press(key)
        else:
            page.wait_for_timeout(20)
    desk.saved()
    page.get_by_text("All done").wait_for()
    assert desk.said() == pressed
    assert sorted(sample for sample, _ in pressed) == desk.queue()


def test_undo_brings_the_sample_back(page, desk) -> None:
    first, second, third = desk.queue()[:3]
    for key in ("1", "2", "u", "Backspace", "5", " ", "7"):
        page.keyboard.press(key)
    desk.saved()
    assert desk.said() == [(first, "5"), (second, None), (third, "7")]
    assert desk.shown() == desk.queue()[3]
    assert "2 labelled, 1 skipped" in desk.counts()


def test_a_reload_goes_on_where_it_was_and_can_still_undo(page, desk) -> None:
    desk.press(*"0123")
    desk.saved()
    page.reload()
    page.locator(".desk:not([data-sample=''])").wait_for()
    assert desk.shown() == desk.queue()[4]
    page.keyboard.press("u")
    page.locator(f".desk[data-sample='{desk.queue()[3]}']").wait_for()
    page.keyboard.press("9")
    page.keyboard.press("8")
    desk.saved()
    assert desk.said() == list(zip(desk.queue()[:5], "01298", strict=True))


def test_unsent_answers_survive_a_reload(page, desk) -> None:
    page.route("**/desk/*/sync", lambda route: route.abort())  # the line is cut from here on
    desk.press(*"4567")
    page.goto("about:blank")
    assert desk.said() == []
    page.unroute("**/desk/*/sync")
    desk.open()
    desk.saved()
    assert desk.said() == list(zip(desk.queue()[:4], "4567", strict=True))
    assert desk.shown() == desk.queue()[4]


def test_keys_that_are_not_meant_as_labels_are_none(page, desk) -> None:
    first = desk.shown()
    page.keyboard.press("Control+1")
    page.keyboard.press("Alt+2")
    page.evaluate("document.dispatchEvent(new KeyboardEvent('keydown', {key: '3', repeat: true}))")
    page.get_by_text("New project").click()
    field = page.get_by_role("textbox", name="Name")
    field.fill("")
    field.press_sequentially("4 5 u")
    assert field.input_value() == "4 5 u"
    page.wait_for_timeout(600)
    assert desk.shown() == first
    assert desk.history() == 0


def test_buttons_label_too_and_space_still_skips_after_a_click(page, desk) -> None:
    page.get_by_role("button", name="class 3").click()
    page.keyboard.press(" ")
    button = page.get_by_role("button", name="artefact")
    button.focus()
    button.press("Enter")
    page.get_by_role("button", name="Space Skip").click()
    page.get_by_role("button", name="Undo").click()
    desk.saved()
    assert desk.said() == list(zip(desk.queue()[:3], ["3", None, "x"], strict=True))


def test_the_next_sample_follows_a_key_at_once(page, desk) -> None:
    times = page.evaluate(
        """async () => {
          const image = (() => {
            for (const host of document.querySelectorAll('*')) {
              const found = host.shadowRoot && host.shadowRoot.querySelector('.sample');
              if (found) return found;
            }
          })();
          const times = [];
          for (let i = 0; i < 30; i += 1) {
            const before = image.src, start = performance.now();
            document.dispatchEvent(new KeyboardEvent('keydown', {key: String(i % 10)}));
            while (image.src === before) await new Promise(requestAnimationFrame);
            await image.decode();
            times.push(performance.now() - start);
            await new Promise((done) => setTimeout(done, 60));
          }
          return times;
        }"""
    )
    assert statistics.median(times) < 50
    desk.saved()


@pytest.mark.parametrize(
    "path", ["/", "/run", "/diagnosis", "/samples?run=open", "/compare?run=open", "/annotate"]
)
def test_pages_open_by_their_address(page, address, path: str) -> None:
    page.goto(address + path)
    page.get_by_role("heading", level=1).wait_for()
    page.get_by_text("Every image here is synthetic").wait_for()
    assert page.locator(".stException").count() == 0


def test_a_click_on_a_run_opens_it_and_other_pages_stay_with_it(
    page, world: tuple[Store, Served], store
) -> None:
    populated.whole_run(store, "zebra", count=20)  # the first of its day on the page
    page.goto(world[1].link)
    page.locator("td.name a", has_text="zebra").click()
    page.get_by_role("heading", level=4, name="Privacy spent").wait_for()
    assert "/run?run=zebra" in page.url
    page.get_by_test_id("stHeader").get_by_text("Samples").click()
    page.get_by_text("20 samples", exact=True).wait_for()
    page.wait_for_url("**/samples?**run=zebra**")
    assert (
        page.get_by_test_id("stMainMenu").count() == 0
        or not page.get_by_test_id("stMainMenu").is_visible()
    )


def test_a_running_run_is_followed_without_a_click(page, store, address) -> None:
    populated.add_run(store, "live", status="running")
    page.goto(f"{address}/run?run=live")
    page.get_by_text("Round 1 of 4 is under way").wait_for()
    populated.add_round(store, "live", 1)
    page.get_by_text("1 / 4").wait_for(timeout=15_000)
    store.set_run_status("live", "finished")
    page.get_by_text("This page renews itself").wait_for(state="detached", timeout=15_000)
    page.locator(".stBadge, .stMarkdownBadge").get_by_text("Finished").wait_for()


def test_strangers_see_the_login_page_only(browser, world: tuple[Store, Served]) -> None:
    address, link = world[1].address, world[1].link
    stranger = browser.new_context()
    other = stranger.new_page()
    other.goto(f"{address}/samples")
    assert other.url == f"{address}/login?then=samples"
    other.get_by_label("Access token").fill("not the token at all")
    other.get_by_role("button", name="Open the dashboard").click()
    other.get_by_role("alert").wait_for()
    other.get_by_label("Access token").fill(link.partition("token=")[2])
    other.get_by_role("button", name="Open the dashboard").click()
    other.get_by_role("heading", name="Samples").wait_for()
    stranger.close()


def test_answers_given_while_the_server_is_gone_are_kept_on_the_page(
    browser, store_at: tuple[str, Store], served: Served
) -> None:
    populated.whole_run(store_at[1], "run-1")
    for page in watched(signed_in(browser, served)):
        desk = Desk(page, store_at[1], served.address, "run-1")
        desk.open()
        stop_dashboard(served)
        desk.press(*"012")
        page.wait_for_timeout(800)
        assert "3 on the way" in desk.counts()
        assert desk.said() == []
