"""The desk's own address: only those who label reach it, and nothing odd gets through."""

from __future__ import annotations

from typing import Any

import populated
import pytest
from serving import TOKEN
from starlette.applications import Starlette
from starlette.testclient import TestClient

from fedlens.dashboard.access.auth import AuthMiddleware, SessionTokens
from fedlens.dashboard.labelling.answers import scope_of
from fedlens.dashboard.labelling.desk_api import desk_routes
from fedlens.dashboard.labelling.wire import LARGEST_REQUEST
from fedlens.store import Annotation, Role, SampleFilter, Store

HEADERS = {"x-fedlens-desk": "1"}


@pytest.fixture
def store(store_at: tuple[str, Store]) -> Store:
    populated.whole_run(store_at[1])
    return store_at[1]


@pytest.fixture
def project(store: Store) -> int:
    return populated.add_project(store)


def client(store: Store, role: Role = "annotator", name: str = "ann") -> TestClient:
    if name not in {one.name for one in store.accounts()}:
        store.add_account(name, role, "long enough", actor="test")
    tokens = SessionTokens(TOKEN, 8501, store)
    made = TestClient(AuthMiddleware(Starlette(routes=desk_routes(store)), tokens))
    made.cookies.set("fedlens-8501", str(tokens.open_by_password(name, "long enough")))
    return made


def asked(store: Store, project: int, name: str = "ann", **changes: Any) -> dict[str, Any]:
    scope = scope_of(store.place, store.project(project), name)
    fields = {"scope": scope, "tab": "t", "events": [], "known": [], "want": 5}
    return fields | changes


def test_answers_go_in_and_samples_come_out(store: Store, project: int) -> None:
    desk = client(store)
    first = desk.post(f"/desk/{project}/sync", json=asked(store, project), headers=HEADERS).json()
    ids = [one["id"] for one in first["queue"]]
    label = store.labels(project)[3].label_id
    event = {"uuid": "a", "kind": "answer", "sample_id": ids[0], "label_id": label}
    for _ in range(2):  # sent again, it changes nothing
        more = asked(store, project, events=[event], known=ids[1:], recent=True)
        said = desk.post(f"/desk/{project}/sync", json=more, headers=HEADERS).json()
    assert said["acked"] == ["a"]
    assert said["progress"]["done"] == 1
    assert [one["sample"]["id"] for one in said["recent"]] == [ids[0]]
    assert not {one["id"] for one in said["queue"]} & set(ids)
    (answer,) = store.annotation_history(project)
    assert store.user_names()[answer.user_id] == "ann"


def test_a_blind_desk_does_not_say_what_was_asked_for(store: Store, project: int) -> None:
    desk, seen = client(store), populated.add_project(store, name="open", blind=False)
    for number, hint in ((project, None), (seen, "requested as class 0")):
        body = asked(store, number)
        said = desk.post(f"/desk/{number}/sync", json=body, headers=HEADERS).json()
        assert said["queue"][0].get("hint") == hint


@pytest.mark.parametrize(
    ("role", "status"),
    [("viewer", 403), ("annotator", 200), ("reviewer", 200), ("engineer", 200), ("admin", 200)],
)
def test_only_roles_that_label_reach_the_desk(
    store: Store, project: int, role: Role, status: int
) -> None:
    desk, body = client(store, role), asked(store, project)
    assert desk.post(f"/desk/{project}/sync", json=body, headers=HEADERS).status_code == status
    desk.cookies.clear()
    assert desk.post(f"/desk/{project}/sync", json=body, headers=HEADERS).status_code == 401


def test_a_page_of_somebody_else_or_another_site_is_refused(store: Store, project: int) -> None:
    desk, other = client(store), client(store, name="bob")
    body = asked(store, project)
    assert other.post(f"/desk/{project}/sync", json=body, headers=HEADERS).status_code == 409
    assert desk.post(f"/desk/{project}/sync", json=body).status_code == 403
    assert desk.get(f"/desk/{project}/sync", headers=HEADERS).status_code == 405
    assert desk.post("/desk/99/sync", json=body, headers=HEADERS).status_code == 503


@pytest.mark.parametrize(
    "changes",
    [
        {"tab": None},
        {"tab": "x" * 65},
        {"want": "5"},
        {"want": -1},
        {"want": 10**6},
        {"known": None},
        {"known": ["x"]},
    ],
)
def test_odd_requests_are_refused_in_one_sentence(
    store: Store, project: int, changes: dict[str, Any]
) -> None:
    body = asked(store, project, **changes)
    answer = client(store).post(f"/desk/{project}/sync", json=body, headers=HEADERS)
    assert answer.status_code == 503
    assert len(answer.text) < 300


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"x" * (LARGEST_REQUEST + 1)])
def test_what_is_no_object_is_refused(store: Store, project: int, content: bytes) -> None:
    desk = client(store)
    assert desk.post(f"/desk/{project}/sync", content=content, headers=HEADERS).status_code == 400


def test_a_tab_that_leaves_gives_its_samples_back(store: Store, project: int) -> None:
    desk = client(store)
    body = asked(store, project)
    first = desk.post(f"/desk/{project}/sync", json=body, headers=HEADERS).json()["queue"]
    second = asked(store, project, tab="u")
    assert desk.post(f"/desk/{project}/sync", json=second, headers=HEADERS).json()["queue"] != first
    for tab in "tu":
        leaving = asked(store, project, tab=tab)
        assert desk.post(f"/desk/{project}/leave", json=leaving, headers=HEADERS).json() == {}
    assert desk.post(f"/desk/{project}/sync", json=second, headers=HEADERS).json()["queue"] == first


@pytest.mark.parametrize(
    "content",
    [b"[" * 100_000, b'{"scope": ' + b"[" * 100_000, b'{"tab": "\\ud800"}'],
    ids=["deep", "deep inside", "half a letter"],
)
def test_json_that_would_break_the_server_is_refused(
    store: Store, project: int, content: bytes
) -> None:
    desk = client(store)
    assert desk.post(f"/desk/{project}/sync", content=content, headers=HEADERS).status_code == 400


@pytest.mark.parametrize("number", ["9" * 30, "9" * 5000, "-1", "1e3", "٣"])
def test_a_project_that_no_store_can_have_is_not_found(
    store: Store, project: int, number: str
) -> None:
    answer = client(store).post(f"/desk/{number}/sync", json={}, headers=HEADERS)
    assert answer.status_code == 404


@pytest.mark.parametrize(
    "changes",
    [
        {"sample_id": 10**30},
        {"sample_id": 1e300},
        {"sample_id": -1},
        {"label_id": 10**30},
        {"lead_ms": 10**30},
        {"more_labels": [10**30]},
        {"kind": "undo", "sample_id": 10**30},
        {"uuid": "import-0"},
        {"note": "x" * 3000},
    ],
)
def test_an_answer_that_cannot_be_is_refused_in_one_sentence(
    store: Store, project: int, changes: dict[str, Any]
) -> None:
    label = store.labels(project)[0].label_id
    event = {"uuid": "a", "kind": "answer", "sample_id": 1, "label_id": label} | changes
    body = asked(store, project, events=[event])
    answer = client(store).post(f"/desk/{project}/sync", json=body, headers=HEADERS)
    assert answer.status_code == 200
    assert answer.json()["acked"] == []
    assert 0 < len(answer.json()["error"]) < 300
    assert store.annotation_history(project) == []


def test_what_was_never_in_the_queue_takes_no_answer(store: Store, project: int) -> None:
    """A sample of the same run in a batch that the project does not label."""
    strips = [one for one in store.batches("run-1") if one.purpose == "strip"]
    sample = store.samples(SampleFilter(run_id="run-1", purpose="strip"))[0]
    assert strips and sample.batch_id in {one.batch_id for one in strips}
    label = store.labels(project)[0].label_id
    event = {"uuid": "a", "kind": "answer", "sample_id": sample.sample_id, "label_id": label}
    body = asked(store, project, events=[event])
    said = client(store).post(f"/desk/{project}/sync", json=body, headers=HEADERS).json()
    assert "none that this project labels" in said["error"]
    assert store.annotation_history(project) == []


def test_another_person_s_answer_cannot_be_asked_for_by_its_id(store: Store, project: int) -> None:
    desk, other = client(store), client(store, name="bob")
    first = desk.post(f"/desk/{project}/sync", json=asked(store, project), headers=HEADERS).json()
    sample, labels = first["queue"][0]["id"], store.labels(project)
    event = {"uuid": "a", "kind": "answer", "sample_id": sample, "label_id": labels[3].label_id}
    body = asked(store, project, events=[event])
    desk.post(f"/desk/{project}/sync", json=body, headers=HEADERS)
    told = set()
    for label in labels:
        event = {"uuid": "a", "kind": "answer", "sample_id": sample, "label_id": label.label_id}
        body = asked(store, project, "bob", events=[event])
        said = other.post(f"/desk/{project}/sync", json=body, headers=HEADERS).json()
        assert said["acked"] == []
        told.add(said["error"])
    assert len(told) == 1


def test_of_a_very_long_list_only_the_first_are_taken(
    store: Store, project: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedlens.dashboard.labelling.answers.MOST_EVENTS", 3)
    events = [{"uuid": f"u{n}", "kind": "undo"} for n in range(5)]
    body = asked(store, project, events=events)
    said = client(store).post(f"/desk/{project}/sync", json=body, headers=HEADERS).json()
    assert said["acked"] == ["u0", "u1", "u2"]


@pytest.fixture
def differing(store: Store, project: int) -> int:
    """A sample of the project about which two people differ."""
    labels = store.labels(project)
    for place, name in enumerate(("ann", "bob")):
        user = store.ensure_user(name)
        sample = store.queue(project, user, 1)[0].sample_id
        label = labels[place].label_id
        answer = Annotation(
            client_uuid=name, project_id=project, sample_id=sample, user_id=user, label_id=label
        )
        store.annotate(answer)
    return sample


def review(desk: TestClient, store: Store, project: int, name: str, *events: Any) -> dict[str, Any]:
    body = asked(store, project, name, events=list(events), recent=True)
    said: dict[str, Any] = desk.post(f"/desk/{project}/review", json=body, headers=HEADERS).json()
    return said


@pytest.mark.law("access: rights are checked at every action")
def test_only_roles_that_review_decide(store: Store, project: int, differing: int) -> None:
    body = asked(store, project, "ann", state="waiting", share=1, uuid="u", expected=1)
    for path in ("review", "decisions", "agreed", "together"):
        for role, name, status in (("annotator", "ann", 403), ("reviewer", "rev", 200)):
            body["scope"] = scope_of(store.place, store.project(project), name)
            desk = client(store, role, name)  # type: ignore[arg-type]
            answer = desk.post(f"/desk/{project}/{path}", json=body, headers=HEADERS)
            assert answer.status_code == status, path


def test_a_decision_is_stored_once_and_none_is_overwritten_unseen(
    store: Store, project: int, differing: int
) -> None:
    first, second = client(store, "reviewer", "rev"), client(store, "reviewer", "other")
    labels = [label.label_id for label in store.labels(project)]
    (card,) = review(first, store, project, "rev")["queue"]
    assert (card["id"], card["last"], card["decided"]) == (differing, "", False)
    assert [one["who"] for one in card["answers"]] == ["", ""], "the project is blind"
    assert "hint" not in card
    event = {"uuid": "a", "kind": "answer", "sample_id": differing, "label_id": labels[2]}
    for _ in range(2):  # sent again, it changes nothing
        said = review(first, store, project, "rev", event | {"seen": ""})
        assert (said["acked"], said["stale"]) == (["a"], [])
    assert [one["label"] for one in said["recent"]] == [labels[2]]
    late = {"uuid": "b", "kind": "answer", "sample_id": differing, "label_id": labels[5]}
    said = review(second, store, project, "other", late | {"seen": ""})
    assert [one["by"] for one in said["stale"]] == ["rev"]
    assert said["progress"] == {"waiting": 0, "decided": 1}
    said = review(second, store, project, "other", late | {"uuid": "c", "seen": "a"})
    assert said["stale"] == [], "one that saw the first decision holds in its place"
    undo = {"uuid": "d", "kind": "undo", "sample_id": differing, "seen": "c"}
    assert review(second, store, project, "other", undo)["progress"]["waiting"] == 1
    assert store.disputed(project) == [differing]


@pytest.mark.parametrize(
    ("path", "changes"),
    [
        ("decisions", {"state": "odd"}),
        ("decisions", {"state": "decided", "label": "x"}),
        ("decisions", {"state": "decided", "reviewer": "rev"}),
        ("agreed", {"share": 0.2}),
        ("agreed", {"share": True}),
        ("together", {"share": 1, "uuid": "u", "accept": True, "expected": 7}),
        ("together", {"share": 1, "uuid": None, "accept": True, "expected": 0}),
    ],
)
def test_odd_reviews_are_refused_in_one_sentence(
    store: Store, project: int, differing: int, path: str, changes: dict[str, Any]
) -> None:
    body = asked(store, project, "rev", **changes)
    answer = client(store, "reviewer", "rev").post(
        f"/desk/{project}/{path}", json=body, headers=HEADERS
    )
    assert answer.status_code == 503
    assert len(answer.text) < 300
    assert store.review_counts(project).decided == 0
