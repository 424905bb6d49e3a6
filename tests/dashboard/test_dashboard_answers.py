"""What the desk sends is stored once, in order, under the sample it names."""

from __future__ import annotations

import math
from typing import Any

import populated
import pytest

from fedlens.dashboard.labelling.answers import store_answers
from fedlens.store import Store


@pytest.fixture
def project(store_at: tuple[str, Store]) -> tuple[Store, int, int]:
    store = store_at[1]
    populated.whole_run(store)
    return store, populated.add_project(store), store.ensure_user("tester")


def answer(uuid: str, sample: int, label: int | None, **more: Any) -> dict[str, Any]:
    return {"uuid": uuid, "kind": "answer", "sample_id": sample, "label_id": label, **more}


def undo(uuid: str, sample: int | None = None) -> dict[str, Any]:
    return {"uuid": uuid, "kind": "undo", "sample_id": sample}


def said(store: Store, project_id: int) -> dict[int, int | None]:
    return {a.sample_id: a.label_id for a in store.annotations(project_id)}


def test_answers_are_stored_under_their_sample_and_acknowledged(
    project: tuple[Store, int, int],
) -> None:
    store, project_id, user_id = project
    samples = [s.sample_id for s in store.queue(project_id, user_id, 3)]
    labels = [label.label_id for label in store.labels(project_id)]
    events = [
        answer("a", samples[2], labels[5], lead_ms=120.0),
        answer("b", samples[0], labels[1], lead_ms=80),
        answer("c", samples[1], None),
    ]
    receipts = store_answers(store, project_id, user_id, events)
    assert said(store, project_id) == {
        samples[2]: labels[5],
        samples[0]: labels[1],
        samples[1]: None,
    }
    assert receipts.acked == ["a", "b", "c"]
    assert receipts.error is None
    assert [a.lead_ms for a in store.annotations(project_id)] == [120, 80, None]


def test_answers_sent_again_change_nothing(project: tuple[Store, int, int]) -> None:
    store, project_id, user_id = project
    first, second = (s.sample_id for s in store.queue(project_id, user_id, 2))
    label = store.labels(project_id)[0].label_id
    batch = [answer("a", first, label), undo("u", first), answer("b", second, label)]
    for _ in range(3):
        receipts = store_answers(store, project_id, user_id, batch)
    assert said(store, project_id) == {second: label}
    assert receipts.acked == ["a", "u", "b"]
    assert len(store.annotation_history(project_id)) == 3


def test_nothing_is_stored_after_a_refused_answer(project: tuple[Store, int, int]) -> None:
    store, project_id, user_id = project
    first, second = (s.sample_id for s in store.queue(project_id, user_id, 2))
    label = store.labels(project_id)[0].label_id
    events = [answer("a", first, label), answer("b", 10**6, label), undo("u", second)]
    receipts = store_answers(store, project_id, user_id, events)
    assert said(store, project_id) == {first: label}
    assert receipts.acked == ["a"]
    assert receipts.error is not None
    assert "sample_id = 1000000" in receipts.error
    assert store_answers(store, project_id, user_id, []).error is None


def test_labels_and_samples_of_others_are_refused(project: tuple[Store, int, int]) -> None:
    store, project_id, user_id = project
    populated.whole_run(store, "run-2")
    other = populated.add_project(store, "run-2")
    mine, theirs = (store.queue(p, user_id)[0].sample_id for p in (project_id, other))
    foreign_label = store.labels(other)[0].label_id
    for event in (
        answer("a", theirs, store.labels(project_id)[0].label_id),
        answer("b", mine, foreign_label),
    ):
        receipts = store_answers(store, project_id, user_id, [event])
        assert receipts.acked == []
        assert receipts.error is not None
    assert said(store, project_id) == {}


@pytest.mark.parametrize(
    "payload",
    [
        None,
        "events",
        [1, None],
        [{}],
        [answer("", 1, 1)],
        [answer("a" * 65, 1, 1)],
        [{"uuid": 7, "kind": "undo"}],
        [answer("a", "1", 1)],  # type: ignore[arg-type]
        [answer("a", True, 1)],
        [answer("a", 1.5, 1)],  # type: ignore[arg-type]
        [answer("a", math.nan, 1)],  # type: ignore[arg-type]
        [answer("a", 121, 1, lead_ms=-5)],
        [answer("a", 121, 1, lead_ms="soon")],
        [answer("a", 121, 1, note=7)],
        [answer("a", 121, 1, note="x" * 3000)],
        [answer("a", 121, 1, more_labels="1")],
        [answer("a", 121, 1, more_labels=[2])],  # the project takes one
    ],
)
def test_what_cannot_be_read_is_never_stored(
    project: tuple[Store, int, int], payload: object
) -> None:
    store, project_id, user_id = project
    receipts = store_answers(store, project_id, user_id, payload)
    assert store.annotation_history(project_id) == []
    assert receipts.acked == []


def test_an_undo_with_nothing_to_undo_is_acknowledged(project: tuple[Store, int, int]) -> None:
    store, project_id, user_id = project
    assert store_answers(store, project_id, user_id, [undo("u")]).acked == ["u"]
