"""The sample browser's own address: stored pixels out, tags and labels in, by roles that may."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import populated
import pytest
from serving import TOKEN
from starlette.applications import Starlette
from starlette.testclient import TestClient

from fedlens.dashboard.access.auth import AuthMiddleware, SessionTokens
from fedlens.dashboard.samples import gallery_api
from fedlens.dashboard.samples.gallery_api import MOST_PICTURES, gallery_routes
from fedlens.store import FindingRecord, Role, SampleFilter, Store, decode_png

HEADERS = {"x-fedlens-desk": "1"}


@pytest.fixture
def store(store_at: tuple[str, Store]) -> Store:
    populated.whole_run(store_at[1], count=60)
    return store_at[1]


def client(store: Store, role: Role = "engineer") -> TestClient:
    store.add_account(role, role, "long enough", actor="test")
    tokens = SessionTokens(TOKEN, 8501, store)
    routes = gallery_routes(store, lambda _: store)
    made = TestClient(AuthMiddleware(Starlette(routes=routes), tokens))
    made.cookies.set("fedlens-8501", str(tokens.open_by_password(role, "long enough")))
    return made


def ids_of(store: Store, run_id: str = "run-1") -> list[int]:
    found = store.samples(SampleFilter(run_id=run_id, purpose="curated"))
    return [one.sample_id for one in found]


@pytest.mark.law("7: pixels survive storage and display")
def test_pixels_are_the_stored_ones_and_damaged_ones_are_never_sent(
    store: Store, tmp_path: Path
) -> None:
    ids = ids_of(store)[:5]
    first, broken = store.sample(ids[0]), ids[2]
    with sqlite3.connect(tmp_path / "store.db") as direct:
        direct.execute("UPDATE samples SET png = ? WHERE sample_id = ?", (first.png, broken))
    direct.close()
    sent = client(store).get(f"/gallery/run-1/pictures?ids={ids[0]}-{ids[4]}").content
    assert list(sent[:5]) == [1, 1, 0, 1, 1], "another picture in its place is no such sample"
    shown = np.frombuffer(sent[5:], np.uint8).reshape(4, 28, 28)
    intact = [store.sample(one) for one in ids if one != broken]
    assert all(np.array_equal(a, decode_png(b.png)[0]) for a, b in zip(shown, intact, strict=True))


def test_a_run_s_address_gives_no_other_run_s_samples(store: Store) -> None:
    populated.whole_run(store, "run-2")
    browser, [theirs, *_] = client(store), ids_of(store, "run-2")
    assert browser.get(f"/gallery/run-1/pictures?ids={theirs}").content == b"\0"
    assert browser.get(f"/gallery/run-1/sample?id={theirs}").status_code == 409
    body = {"ids": [theirs], "tag": "odd", "on": True}
    assert browser.post("/gallery/run-1/tag", json=body, headers=HEADERS).status_code == 409
    assert store.tags("run-2") == {}
    for wrong in ("", "x", "3-", "1-999", "9" * 30, ",".join(["1"] * (MOST_PICTURES + 1))):
        assert browser.get(f"/gallery/run-1/pictures?ids={wrong}").status_code == 409
    assert browser.get("/gallery/nobody/columns").status_code == 409


def test_a_large_batch_comes_in_parts_with_its_labels_and_tags(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gallery_api, "PART", 25)
    ids, number = ids_of(store), populated.add_project(store, blind=False)
    browser, label = client(store), store.labels(number)[3].label_id
    body = {"ids": ids[25:28], "project": number, "label": label}
    said = browser.post("/gallery/run-1/label", json=body, headers=HEADERS).json()
    assert (said["count"], said["error"]) == (3, None)
    assert len(store.annotations(number)) == 3
    store.tag_samples(ids[49:51], "odd", author="ann")
    batch = store.batches("run-1")[-1].batch_id
    found = browser.get(f"/gallery/run-1/columns?batch={batch}&part=1").json()
    assert found["ids"] == ids[25:50]
    assert found["classes"] == [i % 10 for i in range(25, 50)]
    assert found["labels"] == {str(one): [label] for one in ids[25:28]}
    assert found["tags"] == {str(ids[49]): ["odd"]}
    ranked = browser.get(f"/gallery/run-1/order?batch={batch}&part=1").json()
    assert sorted(ranked) == ids[25:50]
    like = browser.get(f"/gallery/run-1/order?batch={batch}&part=1&like={ids[30]}").json()
    assert like[0] == ids[30]


def test_a_blind_project_is_not_labelled_where_classes_are_seen(store: Store) -> None:
    number = populated.add_project(store, blind=True)
    label = store.labels(number)[0].label_id
    body = {"ids": ids_of(store)[:2], "project": number, "label": label}
    said = client(store).post("/gallery/run-1/label", json=body, headers=HEADERS)
    assert said.status_code == 409 and "blind" in said.text
    assert store.annotations(number) == []


@pytest.mark.parametrize(
    ("role", "allowed"),
    [
        ("viewer", set()),
        ("annotator", set()),
        ("reviewer", {"tag", "label"}),
        ("engineer", {"tag", "label", "evidence"}),
    ],
)
def test_roles_give_what_they_may(store: Store, role: Role, allowed: set[str]) -> None:
    number = populated.add_project(store, blind=False)
    finding = store.add_finding(FindingRecord(run_id="run-1", hypothesis="odd"), author="ada")
    ids, label = ids_of(store)[:2], store.labels(number)[0].label_id
    bodies = {
        "tag": {"ids": ids, "tag": "odd", "on": True},
        "label": {"ids": ids, "project": number, "label": label},
        "evidence": {"ids": ids, "finding": finding},
    }
    browser = client(store, role)
    for path, body in bodies.items():
        assert browser.post(f"/gallery/run-1/{path}", json=body).status_code == 403, (
            "no such header"
        )
        status = browser.post(f"/gallery/run-1/{path}", json=body, headers=HEADERS).status_code
        assert (status == 200) == (path in allowed), (role, path)
    looks = browser.get("/gallery/run-1/columns").status_code
    assert (looks == 200) == (role != "annotator")
    browser.cookies.clear()
    assert browser.get("/gallery/run-1/columns").status_code == 401
