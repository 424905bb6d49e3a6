"""Many at once: nobody's label is lost or counted twice, on either engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from store_builders import a_batch, a_ledger_row, a_project, a_round, paid_run, some_samples

from fedlens.store import (
    Annotation,
    CheckpointRow,
    ReleaseRow,
    Store,
    StoreError,
    check,
    open_store,
    upgrade,
)

THREADS = 8
SAMPLES = 40
RELEASE = ReleaseRow(run_id="run-1", ledger_index=0, round=1, status="applied")
CHECKPOINT = CheckpointRow(run_id="run-1", round=1, sha256="9f3a", path="checkpoint")


def at_once(work: Callable[[int], Any]) -> list[Any]:
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(work, range(THREADS)))


@pytest.fixture
def project(store: Store) -> int:
    paid_run(store)
    store.add_batch(a_batch(SAMPLES), some_samples(SAMPLES))
    return store.create_project(a_project())


def label_until_empty(store: Store, project: int, user: int, name: str) -> dict[str, Annotation]:
    """Take from the queue and answer, each answer sent twice; give back what was sent."""
    labels = [label.label_id for label in store.labels(project)]
    sent: dict[str, Annotation] = {}
    while waiting := store.queue(project, user, 3):
        for sample in waiting:
            answer = Annotation(
                client_uuid=f"{name}-{len(sent)}",
                project_id=project,
                sample_id=sample.sample_id,
                user_id=user,
                label_id=labels[len(sent) % len(labels)],
            )
            assert store.annotate(answer) == store.annotate(answer)
            sent[answer.client_uuid] = answer
    return sent


def test_eight_annotators_each_with_a_store_of_their_own(url: str, project: int) -> None:
    def work(number: int) -> dict[str, Annotation]:
        with open_store(url) as own:
            return label_until_empty(own, project, own.ensure_user(f"user {number}"), f"{number}")

    sent = {uuid: answer for part in at_once(work) for uuid, answer in part.items()}
    with open_store(url) as store:
        there = store.annotations(project)
        assert store.annotation_history(project) == there
        assert {row.client_uuid: row.label_id for row in there} == {
            uuid: answer.label_id for uuid, answer in sent.items()
        }
        assert len({(row.user_id, row.sample_id) for row in there}) == THREADS * SAMPLES
        assert len(there) == THREADS * SAMPLES
        for number in range(THREADS):
            assert store.progress(project, store.ensure_user(f"user {number}")).done == SAMPLES


def test_eight_windows_of_one_annotator(store: Store, project: int) -> None:
    user = store.ensure_user("ann")
    parts = at_once(lambda number: label_until_empty(store, project, user, f"{number}"))
    sent = {uuid for part in parts for uuid in part}
    there, history = store.annotations(project), store.annotation_history(project)
    assert {row.client_uuid for row in history} == sent
    assert len(history) == len(sent)
    assert Counter(row.sample_id for row in there) == Counter(
        dict.fromkeys({row.sample_id for row in history}, 1)
    )
    assert len(there) == SAMPLES == store.progress(project, user).done
    superseded = [row.supersedes_id for row in history if row.supersedes_id is not None]
    assert len(set(superseded)) == len(superseded) == len(history) - SAMPLES


def test_the_same_answer_and_the_same_undo_from_eight_threads(store: Store, project: int) -> None:
    user = store.ensure_user("ann")
    first, second = (sample.sample_id for sample in store.queue(project, user, 2))
    label = store.labels(project)[0].label_id

    def answer(sample: int) -> Annotation:
        return Annotation(
            client_uuid=f"for {sample}",
            project_id=project,
            sample_id=sample,
            user_id=user,
            label_id=label,
        )

    kept = store.annotate(answer(first))
    rows = at_once(lambda _: store.annotate(answer(second)))
    assert len({row.annotation_id for row in rows}) == 1
    taken = at_once(lambda _: store.undo(project, user, "undo once"))
    assert taken == [rows[0]] * THREADS
    assert store.annotations(project) == [kept]
    assert len(store.annotation_history(project)) == 3


def test_undos_without_a_uuid_each_take_back_one(store: Store, project: int) -> None:
    user = store.ensure_user("ann")
    label_until_empty(store, project, user, "ann")
    taken = at_once(lambda _: store.undo(project, user))
    assert len({row.annotation_id for row in taken}) == THREADS
    assert store.progress(project, user).done == SAMPLES - THREADS


def test_eight_threads_making_the_same_things_make_one_of_each(url: str) -> None:
    def work(_number: int) -> tuple[int, int, int]:
        with open_store(url) as own:
            paid_run(own)
            for _ in range(5):
                own.record_progress(rounds=[a_round()])
            own.record_progress(releases=[RELEASE])
            own.record_checkpoint(CHECKPOINT)
            batch = own.add_batch(a_batch(5), some_samples(5))
            return batch, own.create_project(a_project()), own.ensure_user("ann")

    assert len(set(at_once(work))) == 1
    with open_store(url) as store:
        assert (len(store.runs()), len(store.ledger("run-1"))) == (1, 1)
        assert store.rounds("run-1") == [a_round()]
        assert (store.releases("run-1"), store.checkpoints("run-1")) == ([RELEASE], [CHECKPOINT])
        assert len(store.labels(store.projects()[0].project_id)) == len(a_project().labels)


def test_a_run_writes_while_the_dashboard_reads(store: Store, project: int) -> None:
    def work(number: int) -> int:
        if number:
            return min(len(store.batches("run-1")) for _ in range(20))
        for index in range(1, 11):
            store.record_progress(ledger=[a_ledger_row(index, index + 1)])
            record = a_batch(5, round=index + 1, ledger_index=index)
            store.add_batch(record, some_samples(5))
        return len(store.batches("run-1"))

    seen = at_once(work)
    assert seen[0] == 11
    assert all(1 <= count <= 11 for count in seen)


def test_eight_upgrades_at_once_make_one_schema(empty_url: str) -> None:
    statuses = at_once(lambda _: upgrade(empty_url))
    assert all(status.ok for status in statuses)
    assert check(empty_url).ok


def test_eight_stores_made_at_once_in_one_process(tmp_path: Path) -> None:
    """Alembic keeps its environment in one global place."""
    statuses = at_once(lambda number: upgrade(tmp_path / f"{number}.db"))
    assert all(status.ok for status in statuses)


def test_a_writer_that_holds_the_store_too_long_is_reported_as_busy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("fedlens.store.engine.BUSY_SECONDS", 0.2)
    path = tmp_path / "store.db"
    with open_store(path, create=True) as store, store._writing() as session:
        session.connection()
        with pytest.raises(StoreError, match="busy"):
            store.ensure_user("ann")
