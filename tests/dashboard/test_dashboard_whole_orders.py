"""Orders of batches larger than what is browsed at once: of all samples, part by part."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import populated
import pytest
from serving import TOKEN
from starlette.applications import Starlette
from starlette.testclient import TestClient

from fedlens.dashboard.access.auth import AuthMiddleware, SessionTokens
from fedlens.dashboard.jobs import CommandFailed
from fedlens.dashboard.samples import gallery_api, whole
from fedlens.dashboard.samples.gallery_api import gallery_routes
from fedlens.dashboard.samples.prepared import Prepared
from fedlens.dashboard.samples.whole import Whole, WholeBatches, find_whole
from fedlens.store import SampleFilter, Store, decode_png

PART = 25


@pytest.fixture
def store(store_at: tuple[str, Store]) -> Store:
    populated.whole_run(store_at[1], count=60)
    return store_at[1]


@pytest.fixture
def browser(store: Store, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    monkeypatch.setattr(gallery_api, "PART", PART)
    monkeypatch.setattr(gallery_api, "WHOLE", WholeBatches())
    store.add_account("ada", "engineer", "long enough", actor="test")
    tokens = SessionTokens(TOKEN, 8501, store)
    made = TestClient(
        AuthMiddleware(Starlette(routes=gallery_routes(store, lambda _: store)), tokens)
    )
    made.cookies.set("fedlens-8501", str(tokens.open_by_password("ada", "long enough")))
    return made


def curated(store: Store) -> SampleFilter:
    return SampleFilter(run_id="run-1", batch_id=store.batches("run-1")[-1].batch_id)


def found(store: Store) -> Whole:
    *shares, last = find_whole(store, curated(store))
    assert isinstance(last, Whole)
    assert all(isinstance(one, float) and 0 < one < 1 for one in shares)
    return last


def waited(browser: TestClient, path: str, **given: object) -> Any:
    deadline = time.monotonic() + 120
    while (said := browser.get(f"/gallery/run-1/{path}", params=given)).status_code == 202:
        assert 0 <= said.json()["share"] < 1
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert said.status_code == 200, said.text
    return said.json()


def test_an_order_of_all_comes_in_parts_with_what_is_known_of_each(
    store: Store, browser: TestClient
) -> None:
    wanted = curated(store)
    samples = {one.sample_id: one for one in store.samples(wanted)}
    tagged = max(samples)
    store.tag_samples([tagged], "odd", author="ada")
    batch = wanted.batch_id
    parts = [
        waited(browser, "columns", batch=batch, order="doubtful", part=part) for part in range(4)
    ]
    assert [len(one["ids"]) for one in parts] == [25, 25, 10, 0]
    ids = [one for part in parts for one in part["ids"]]
    levels = {one: samples[one].agreement for one in ids}
    assert ids == sorted(samples, key=lambda one: (levels[one] is None, levels[one] or 0, one))
    for part in parts:
        assert part["classes"] == [samples[one].requested_class for one in part["ids"]]
        assert part["agreements"] == [
            None if levels[one] is None else round(levels[one], 4) for one in part["ids"]
        ]
        assert part["tags"] == ({str(tagged): ["odd"]} if tagged in part["ids"] else {})
    like = ids[30]
    near = waited(browser, "columns", batch=batch, order="alike", like=like)["ids"]
    assert near[0] == like
    unknown = browser.get(
        "/gallery/run-1/columns", params={"batch": batch, "order": "alike", "like": 10**6}
    )
    assert unknown.status_code == 409
    spread = waited(browser, "columns", batch=batch, order="spread")["ids"]
    assert spread == sorted(samples)[::3]
    places = waited(browser, "map", batch=batch, order="spread")
    assert len(places["x"]) == len(places["y"]) == len(spread)
    assert all(0 <= one <= 1000 for one in places["x"] + places["y"])


def test_alike_is_by_pixels_and_odd_is_far_from_the_own_class(store: Store) -> None:
    looks = found(store)
    samples = store.samples(curated(store))
    flat = np.stack([decode_png(one.png).reshape(-1) / 255 for one in samples])
    place = 17
    by_pixels = np.linalg.norm(flat - flat[place], axis=1)
    ranked = looks.ranked("alike", samples[place].sample_id, PART)
    # 24 components hold nearly all of what tells these pictures apart.
    assert set(ranked[:6]) & set(np.argsort(by_pixels)[:6]) > {place}
    odd = looks.ranked("oddest", 0, PART)
    assert list(looks.ranked("commonest", 0, PART)) != list(odd)
    classes = np.array([one.requested_class for one in samples])
    near = np.full(len(flat), np.nan)
    for i in range(len(flat)):
        own = np.flatnonzero((classes == classes[i]) & (np.arange(len(flat)) != i))
        near[i] = np.sort(np.linalg.norm(flat[own] - flat[i], axis=1))[:5].mean()
    first, last = near[odd[:15]].mean(), near[odd[-15:]].mean()
    assert first > last, "those far from their class stand first"


def test_a_damaged_sample_stands_last_in_orders_of_looks(store: Store, tmp_path: Path) -> None:
    first, broken = store.samples(curated(store))[:2]
    with sqlite3.connect(tmp_path / "store.db") as direct:
        direct.execute(
            "UPDATE samples SET png = ? WHERE sample_id = ?", (first.png, broken.sample_id)
        )
    direct.close()
    looks = found(store)
    assert list(looks.intact) == [one != 1 for one in range(60)]
    for order in ("oddest", "commonest"):
        assert looks.ranked(order, 0, PART)[-1] == 1  # type: ignore[arg-type]


def test_where_all_that_are_looked_at_first_are_damaged_none_is_compared(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole, "AT_ONCE", 10)
    monkeypatch.setattr(whole, "MOST_FOR_AXES", 6)
    looked_at = [one.sample_id for one in store.samples(curated(store))[::10]]
    with sqlite3.connect(tmp_path / "store.db") as direct:
        direct.executemany(
            "UPDATE samples SET png = x'00' WHERE sample_id = ?", [(one,) for one in looked_at]
        )
    direct.close()
    looks = found(store)
    assert not looks.intact.any()
    assert sorted(looks.ranked("oddest", 0, PART)) == list(range(60))


def test_only_so_many_wait_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedlens.dashboard.jobs.MOST_AT_ONCE", 2)
    made, going = Prepared[str](2), threading.Event()

    def make(told: Callable[[float], None]) -> str:
        going.wait()
        return "made"

    assert [made.get(key, make) for key in "aba"] == [0.0, 0.0, 0.0]
    with pytest.raises(CommandFailed, match="2 others wait"):
        made.get("c", make)
    going.set()
    deadline = time.monotonic() + 60
    while made.get("b", make) != "made" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert made.get("c", make) in (0.0, "made")


def test_what_came_to_nothing_is_said_once_and_tried_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole, "MOST_SECONDS", 0.01)
    batches, deadline = WholeBatches(), time.monotonic() + 120
    with pytest.raises(whole.StoreError, match="could not be compared"):
        while time.monotonic() < deadline:
            batches.get(store, "batch", curated(store))
            time.sleep(0.05)
    monkeypatch.setattr(whole, "MOST_SECONDS", 600)
    while not isinstance(said := batches.get(store, "batch", curated(store)), Whole):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert len(said.sample_ids) == 60
