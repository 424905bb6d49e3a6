"""Shared queues: no one gets what others are at, nothing is lost, and no desk blocks for long."""

from __future__ import annotations

import dataclasses
import time
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from sqlalchemy import text
from store_builders import a_batch, a_project, paid_run, some_samples

from fedlens.store import Annotation, SampleFilter, Store, StoreError, queues
from fedlens.store.records import utc_now


def a_queue(store: Store, count: int = 12, **changes) -> int:
    paid_run(store)
    store.add_batch(a_batch(count), some_samples(count))
    return store.create_project(a_project(**changes))


def say(store: Store, project: int, user: int, sample: int, label: int | None = None, **more):
    label = store.labels(project)[0].label_id if label is None else label
    store.annotate(
        Annotation(
            client_uuid=str(uuid.uuid4()),
            project_id=project,
            sample_id=sample,
            user_id=user,
            label_id=label,
            **more,
        )
    )


def ids(desk) -> list[int]:
    return [sample.sample_id for sample in desk.samples]


def all_samples(store: Store) -> list[int]:
    return [s.sample_id for s in store.samples(SampleFilter(purpose="curated"))]


def test_two_desks_get_different_samples_and_asking_again_changes_nothing(store: Store) -> None:
    project = a_queue(store, overlap=1)
    ann, bob = (store.ensure_user(name) for name in ("ann", "bob"))
    first = ids(store.serve(project, ann, "a", limit=5))
    second = ids(store.serve(project, bob, "b", limit=5))
    assert first + second == all_samples(store)[:10]
    assert ids(store.serve(project, ann, "a", limit=5)) == first
    assert ids(store.serve(project, ann, "a", limit=5, known=frozenset(first[:2]))) == first[2:]


@pytest.mark.parametrize("engine_name", ["postgres"], indirect=True)
def test_a_lease_taken_while_a_desk_is_being_filled_counts(
    store: Store, engine_name: str, monkeypatch
) -> None:
    project = a_queue(store, 4, overlap=1)
    people = [store.ensure_user(name) for name in ("ann", "bob")]
    store.queue(project, people[0], 1)
    free_for = queues._free_for
    # Each sample takes a while to look at, so that the second desk begins before the first is done.
    slow = text("pg_sleep(0.1)::text IS NOT NULL")
    monkeypatch.setattr(queues, "_free_for", lambda *given: free_for(*given).where(slow))

    def serve(place: int) -> list[int]:
        time.sleep(0.2 * place)
        return ids(store.serve(project, people[place], "t", limit=4))

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(serve, range(2))
    assert sorted(first + second) == all_samples(store)


def test_two_tabs_of_one_annotator_never_show_one_sample(store: Store) -> None:
    project = a_queue(store)  # each annotator answers all
    ann = store.ensure_user("ann")
    left, right = (ids(store.serve(project, ann, tab, limit=4)) for tab in "lr")
    assert left + right == all_samples(store)[:8]
    store.release_desk(project, ann, "l")
    assert ids(store.serve(project, ann, "r", limit=20)) == all_samples(store)


def test_overlap_is_how_many_answer_a_sample(store: Store) -> None:
    project = a_queue(store, 3, overlap=2)
    people = [store.ensure_user(name) for name in ("ann", "bob", "cy")]
    served = [ids(store.serve(project, user, "t", limit=9)) for user in people]
    assert served == [all_samples(store), all_samples(store), []]
    for user in people[:2]:
        for sample in all_samples(store):
            say(store, project, user, sample)
    done = store.serve(project, people[2], "t", limit=9)
    assert (done.samples, done.progress.left, done.free_at) == ([], 0, None)


def test_a_lease_runs_out_and_a_late_answer_is_kept(store: Store, monkeypatch) -> None:
    project = a_queue(store, 2, overlap=1, lease_seconds=60)
    ann, bob = (store.ensure_user(name) for name in ("ann", "bob"))
    held = ids(store.serve(project, ann, "a", limit=2))
    waiting = store.serve(project, bob, "b", limit=2)
    assert waiting.samples == []
    assert waiting.progress.left == 2
    assert waiting.free_at is not None
    later = utc_now() + timedelta(seconds=61)
    monkeypatch.setattr(queues, "utc_now", lambda: later)
    assert ids(store.serve(project, bob, "b", limit=2)) == held
    say(store, project, bob, held[0])
    say(store, project, ann, held[0])
    assert Counter(a.sample_id for a in store.annotations(project)) == {held[0]: 2}


def test_an_undo_puts_the_sample_back_on_the_desk(store: Store) -> None:
    project = a_queue(store, 3, overlap=1)
    ann, bob = (store.ensure_user(name) for name in ("ann", "bob"))
    first, *_ = ids(store.serve(project, ann, "a", limit=1))
    say(store, project, ann, first)
    store.undo(project, ann, sample_id=first, tab="a")
    assert first not in ids(store.serve(project, bob, "b", limit=9))
    assert first in ids(store.serve(project, ann, "a", limit=1))


def test_answers_that_differ_are_asked_of_one_more_first(store: Store) -> None:
    project = a_queue(store, 8, overlap=2, order="disagreement")
    ann, bob, cy = (store.ensure_user(name) for name in ("ann", "bob", "cy"))
    zero, one, _ = (label.label_id for label in store.labels(project))
    last = [s.sample_id for s in store.queue(project, cy, 9)][-1]
    say(store, project, ann, last, zero)
    say(store, project, bob, last, one)
    assert ids(store.serve(project, cy, "c", limit=1)) == [last]
    say(store, project, cy, last, one)
    assert last not in [s.sample_id for s in store.queue(project, store.ensure_user("di"), 9)]


def test_samples_drawn_later_join_the_queue(store: Store) -> None:
    project = a_queue(store, 4, order="random")
    ann = store.ensure_user("ann")
    assert len(store.queue(project, ann, 99)) == 4
    store.add_batch(a_batch(6, seed=18), some_samples(6, seed=1))
    assert len(store.queue(project, ann, 99)) == 10
    assert store.progress(project, ann).total == 10


def test_gold_is_served_to_everyone(store: Store) -> None:
    project = a_queue(store, 3, overlap=1)
    ann, bob = (store.ensure_user(name) for name in ("ann", "bob"))
    first, *rest = all_samples(store)
    label = store.labels(project)[1].label_id
    assert store.queue(project, ann, 1)
    store.set_gold(project, first, label)
    for sample in all_samples(store):
        say(store, project, ann, sample)
    assert ids(store.serve(project, bob, "b", limit=9)) == [first]
    say(store, project, bob, first, label)
    records = {
        one.name: (one.gold_right, one.gold_seen) for one in store.annotator_records(project)
    }
    assert records == {"ann": (0, 1), "bob": (1, 1)}
    store.set_gold(project, first, None)
    assert store.gold(project) == {}
    assert len(rest) == 2


@pytest.mark.parametrize("limit", [-1, 501])
def test_a_desk_of_another_size_is_refused(store: Store, limit: int) -> None:
    project = a_queue(store, 2)
    with pytest.raises(StoreError, match="limit"):
        store.serve(project, store.ensure_user("ann"), "a", limit=limit)
    with pytest.raises(StoreError, match="tab"):
        store.serve(project, store.ensure_user("ann"), "", limit=1)


@pytest.mark.law("labels: no answer is lost or counted twice")
def test_many_annotators_at_once_double_and_lose_nothing(store: Store, engine_name: str) -> None:
    people, overlap, count = (20 if engine_name == "postgres" else 5), 2, 60
    project = a_queue(store, count, overlap=overlap)
    users = [store.ensure_user(f"annotator {i}") for i in range(people)]
    store.queue(project, users[0], 1)
    label = store.labels(project)[0].label_id

    def work(user: int) -> list[tuple[int, int]]:
        said = []
        while desk := ids(store.serve(project, user, "t", limit=4)):
            for sample in desk:
                answer = Annotation(
                    client_uuid=f"{user}-{sample}",
                    project_id=project,
                    sample_id=sample,
                    user_id=user,
                    label_id=label,
                )
                for _ in range(2):  # a retry of the browser's
                    store.annotate(answer)
                said.append((sample, user))
        return said

    with ThreadPoolExecutor(people) as pool:
        said = [pair for pairs in pool.map(work, users) for pair in pairs]
    stored = [(a.sample_id, a.user_id) for a in store.annotations(project)]
    assert sorted(stored) == sorted(said)
    assert len(set(stored)) == len(stored) == len(store.annotation_history(project))
    assert Counter(sample for sample, _ in stored) == dict.fromkeys(all_samples(store), overlap)


def test_uncertain_samples_come_first_and_a_share_by_chance(store: Store) -> None:
    paid_run(store)
    count = 400
    sure = [dataclasses.replace(s, agreement=s.position / count) for s in some_samples(count)]
    store.add_batch(a_batch(count), sure)
    project = store.create_project(a_project(order="uncertainty", random_share=0.2))
    queue = store.queue(project, store.ensure_user("ann"), count)
    front = [sample.agreement for sample in queue[: count // 4]]
    assert 0.6 < sum(one < 0.35 for one in front) / len(front) < 0.95
    said = [sample.sample_id for sample in queue]
    for sample in said:
        say(store, project, store.ensure_user("ann"), sample)
    control = [one.is_control for one in store.final_labels(project)]
    assert 0.13 < sum(control) / count < 0.27


def test_too_small_a_random_share_is_refused() -> None:
    with pytest.raises(StoreError, match=r"random_share = 0.05.*from 0.1"):
        a_project(order="uncertainty", random_share=0.05)
