"""A team at work, in Debian's Chromium: fast keys, a restarted server, two annotators, a review."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import populated
import pytest
from serving import Served, start_dashboard, stop_dashboard

from fedlens.store import Annotation, SampleFilter, Store

playwright = pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.browser
PASSWORD = "correct horse battery"


class Person:
    """Somebody signed in by name and password, with the desk of a project before them."""

    def __init__(self, browser, served: Served, store: Store, name: str, role: str) -> None:
        self.context = browser.new_context(viewport={"width": 1280, "height": 1000})
        self.page, self.store, self.served, self.name = self.context.new_page(), store, served, name
        self.wrong: list[str] = []
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        if name not in {one.name for one in store.accounts()}:
            store.add_account(name, role, PASSWORD, actor="test")  # type: ignore[arg-type]
        self.page.goto(f"{served.address}/login")
        self.page.get_by_label("Name").fill(name)
        self.page.get_by_label("Password").fill(PASSWORD)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.get_by_role("heading", level=1).wait_for()

    def open(self, project: int) -> None:
        self.page.goto(f"{self.served.address}/annotate?project={project}")
        self.page.locator(".desk:not([data-sample=''])").wait_for()

    def press(self, keys: str, gap: int = 0) -> list[tuple[int, str]]:
        """Press keys without waiting for anything; which sample each key was about."""
        about = []
        for key in keys:
            about.append((int(self.page.locator(".desk").get_attribute("data-sample") or 0), key))
            self.page.keyboard.press(key)
            self.page.wait_for_timeout(gap)
        return about

    def saved(self) -> None:
        self.page.locator(".desk[data-unsent='0']").wait_for(timeout=20_000)

    def said(self, project: int) -> list[tuple[int, str | None]]:
        keys = {label.label_id: label.key for label in self.store.labels(project)}
        me = self.store.ensure_user(self.name)
        found = self.store.annotations(project)
        return [(a.sample_id, keys.get(a.label_id)) for a in found if a.user_id == me]

    def close(self) -> None:
        self.context.close()
        assert self.wrong == []


@pytest.fixture
def world(store_at: tuple[str, Store], served: Served) -> tuple[Store, Served]:
    populated.whole_run(store_at[1], count=150)
    return store_at[1], served


@pytest.fixture
def person(browser, world: tuple[Store, Served]) -> Iterator[Person]:
    made = Person(browser, world[1], world[0], "ann", "annotator")
    yield made
    made.close()


@pytest.mark.law("labels: no answer is lost or counted twice")
def test_every_key_counts_at_sixty_milliseconds_under_load(person: Person) -> None:
    """Beside it four people label at the same pace, three answers at a time."""
    store = person.store
    project = populated.add_project(store, overlap=5)  # the others take no sample away
    person.open(project)
    label = store.labels(project)[0].label_id
    stop = time.monotonic() + 60
    pressed: list[tuple[int, str]] = []

    def load(number: int) -> None:
        user = store.ensure_user(f"load {number}")
        while len(pressed) < 120 and time.monotonic() < stop:
            desk = store.serve(project, user, f"tab {number}", limit=3)
            for sample in desk.samples:
                store.annotate(
                    Annotation(
                        client_uuid=f"{number}-{sample.sample_id}",
                        project_id=project,
                        sample_id=sample.sample_id,
                        user_id=user,
                        label_id=label,
                    )
                )
            time.sleep(0.18)

    with ThreadPoolExecutor(4) as pool:
        for number in range(4):
            pool.submit(load, number)
        for key in "0123456789qx" * 10:
            pressed += person.press(key, gap=60)
    person.saved()
    assert all(sample for sample, _ in pressed)
    assert person.said(project) == pressed
    assert len(pressed) == 120


def test_the_next_image_comes_within_thirty_milliseconds(person: Person) -> None:
    project = populated.add_project(person.store)
    person.open(project)
    times = person.page.evaluate(
        """async () => {
          const image = [...document.querySelectorAll('*')].map((host) => host.shadowRoot
            && host.shadowRoot.querySelector('.sample')).find(Boolean);
          const times = [];
          for (let i = 0; i < 60; i += 1) {
            const before = image.src, start = performance.now();
            document.dispatchEvent(new KeyboardEvent('keydown', {key: String(i % 10)}));
            if (image.src === before) throw new Error('the key was not taken at once');
            await image.decode();
            times.push(performance.now() - start);
            await new Promise((done) => setTimeout(done, 40));
          }
          return times;
        }"""
    )
    person.saved()
    assert statistics.median(times) < 30
    assert len(person.said(project)) == 60


@pytest.mark.law("labels: no answer is lost or counted twice")
def test_a_server_that_is_started_anew_gets_what_was_said_meanwhile(
    person: Person, store_at: tuple[str, Store], tmp_path
) -> None:
    store, served = person.store, person.served
    project = populated.add_project(store)
    person.open(project)
    said = person.press("01234")
    person.saved()
    stop_dashboard(served)
    said += person.press("56789", gap=60)
    person.page.get_by_text("5 on the way").wait_for()
    assert len(person.said(project)) == 5
    again = start_dashboard(store_at[0], tmp_path, served.port)
    try:
        person.saved()
        said += person.press("qx012", gap=60)
        person.saved()
        assert person.said(project) == said
        person.page.wait_for_timeout(1500)
        assert "does not exist" not in person.page.inner_text("body")
        person.page.reload()
        person.page.locator(".desk:not([data-sample=''])").wait_for()
        said += person.press("3")
        person.saved()
        assert person.said(project) == said
    finally:
        stop_dashboard(again)


def test_older_answers_are_undone_and_changed_after_a_reload_too(person: Person) -> None:
    project = populated.add_project(person.store, several=True)
    person.open(project)
    said = dict(person.press("0123456"))
    person.saved()
    person.page.reload()
    person.page.locator(".recent button").nth(6).wait_for()
    first, *_, fifth, sixth, seventh = said
    person.page.keyboard.press("u")
    person.page.keyboard.press("u")
    assert person.page.locator(".desk").get_attribute("data-sample") == str(sixth)
    person.press("x")
    assert person.page.locator(".desk").get_attribute("data-sample") == str(seventh)
    person.page.locator(f"[data-edit='{first}']").click()
    assert person.page.locator("[data-label][aria-pressed=true]").inner_text().endswith("class 0")
    person.page.keyboard.press("Shift+Digit8")
    person.page.keyboard.press("Enter")
    person.page.keyboard.type("looks cut 9")
    person.page.keyboard.press("Enter")
    person.press("9")
    person.saved()
    assert dict(person.said(project)) == {
        first: "9",
        **{sample: said[sample] for sample in list(said)[1:4]},
        fifth: "4",
        sixth: "x",
    }
    (changed,) = [a for a in person.store.annotations(project) if a.sample_id == first]
    eight = person.store.labels(project)[8].label_id
    assert (changed.note, changed.more_labels) == ("looks cut 9", [eight])
    assert person.page.locator(".desk").get_attribute("data-sample") == str(seventh)


def test_two_tabs_of_one_person_never_show_one_sample(person: Person) -> None:
    project = populated.add_project(person.store)
    person.open(project)
    other = person.context.new_page()
    other.goto(f"{person.served.address}/annotate?project={project}")
    other.locator(".desk:not([data-sample=''])").wait_for()
    said = person.press("012")
    for key in "345":
        said.append((int(other.locator(".desk").get_attribute("data-sample")), key))
        other.keyboard.press(key)
    person.saved()
    other.locator(".desk[data-unsent='0']").wait_for()
    assert len({sample for sample, _ in said}) == 6
    assert sorted(person.said(project)) == sorted(said)


def test_two_annotators_label_a_hundred_samples_with_review_and_export(
    browser, world: tuple[Store, Served]
) -> None:
    store, served = world
    project = populated.add_project(store, overlap=2, name="hundred")
    total = store.count_samples(SampleFilter(run_id="run-1", purpose="curated"))
    people = [Person(browser, served, store, name, "annotator") for name in ("ann", "bob")]
    for one in people:
        one.open(project)
    wanted = {s.sample_id: str(s.requested_class) for s in store.samples(SampleFilter())}
    for place in range(100):
        for one in people:
            desk = one.page.locator(".desk:not([data-sample=''])")
            sample = int(desk.get_attribute("data-sample"))
            wrong = one.name == "bob" and place == 7
            one.page.keyboard.press("x" if wrong else wanted[sample])
    for one in people:
        one.saved()
        assert len(one.said(project)) == 100
        assert f"{total - 100} left" in one.page.locator(".counts").inner_text()
        one.page.goto(f"{served.address}/review")  # is not theirs
        one.page.get_by_role("heading", name="No such page").wait_for()
        one.close()
    reviewer = Person(browser, served, store, "rev", "reviewer")
    reviewer.page.goto(f"{served.address}/review?project={project}")
    reviewer.page.locator(".desk[data-painted]").wait_for()
    (sample,) = store.disputed(project)
    reviewer.page.locator(".given button").first.click()
    reviewer.page.get_by_text("Nothing to decide").wait_for()
    reviewer.saved()
    assert {one.sample_id for one in store.final_labels(project) if one.decided} == {sample}
    reviewer.page.goto(f"{served.address}/results?project={project}")
    with reviewer.page.expect_download() as download:
        reviewer.page.get_by_role("button", name="Table (CSV)").click()
    lines = download.value.path().read_text().splitlines()
    assert len(lines) == 201
    reviewer.page.get_by_text("Sign out").click()
    reviewer.page.get_by_role("button", name="Sign in").wait_for()
    reviewer.page.goto(f"{served.address}/results")
    assert reviewer.page.url == f"{served.address}/login?then=results"
    reviewer.close()
