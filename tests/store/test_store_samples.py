"""Batches and samples: whole, paid for, and found again by filter."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import Engine, event
from store_builders import a_batch, a_ledger_row, a_project, a_run, paid_run, some_samples

from fedlens.store import (
    Annotation,
    BatchRecord,
    SampleFilter,
    SampleOrder,
    SampleRecord,
    Store,
    StoreError,
)
from fedlens.store.engine import locate, make_engine
from fedlens.store.sample_archive import archive
from fedlens.store.schema import Base

EVERYTHING = SampleFilter()


@pytest.mark.law("7: every sample names its origin")
def test_a_batch_comes_back_with_its_samples_and_their_way_there(store: Store) -> None:
    paid_run(store)
    given = some_samples(3, channels=3)
    record = a_batch(3, dp_epsilon=math.inf, seed=2**63 - 1)
    batch_id = store.add_batch(record, iter(given))
    batch = store.batch(batch_id)
    assert store.batches("run-1") == [batch]
    assert all(getattr(batch, name) == value for name, value in vars(record).items())
    there = store.samples(SampleFilter(run_id="run-1"))
    assert [(s.position, s.requested_class, s.png, s.sha256) for s in there] == [
        (s.position, s.requested_class, s.png, s.sha256) for s in given
    ]
    assert {(s.batch_id, s.run_id, s.round, s.purpose) for s in there} == {
        (batch_id, "run-1", 1, "curated")
    }
    assert store.sample(there[1].sample_id) == there[1]


def test_an_archive_says_what_its_classes_are_called(store: Store) -> None:
    paid_run(store)
    batch = store.batch(store.add_batch(a_batch(2), some_samples(2)))
    run, found = store.run("run-1"), store.samples(EVERYTHING)
    said = []
    for names in ((), ("boot", "a {b}")):
        content = archive(batch, found, replace(run, class_names=names))
        with zipfile.ZipFile(io.BytesIO(content)) as file:
            said.append(file.read("README.txt").decode())
    assert "Classes:" not in said[0]
    assert said[1].endswith("Classes: 0 boot, 1 a {b}.\n")


def test_no_batch_before_its_ledger_row(store: Store) -> None:
    store.create_run(a_run())
    with pytest.raises(StoreError, match="record_progress first"):
        store.add_batch(a_batch(2), some_samples(2))
    store.record_progress(ledger=[a_ledger_row(0, 1)])
    with pytest.raises(StoreError, match="ledger_index = 1"):
        store.add_batch(a_batch(2, ledger_index=1), some_samples(2))
    with pytest.raises(StoreError, match="of round 1"):
        store.add_batch(a_batch(2, round=2), some_samples(2))
    assert (store.batches("run-1"), store.count_samples(EVERYTHING)) == ([], 0)
    store.add_batch(a_batch(2), some_samples(2))
    assert store.count_samples(EVERYTHING) == 2


@pytest.mark.law("2: the ledger line is on disk first")
def test_the_database_itself_refuses_a_batch_without_ledger_row(url: str, store: Store) -> None:
    store.create_run(a_run())
    engine = make_engine(locate(url))
    values = vars(a_batch(0)) | {"created_at": a_run().created_at}
    with pytest.raises(sa.exc.IntegrityError), engine.begin() as connection:
        connection.execute(sa.insert(Base.metadata.tables["batches"]).values(values))
    engine.dispose()


@pytest.mark.law("7: every sample names its origin")
def test_a_batch_cannot_claim_privacy_its_run_has_not(store: Store) -> None:
    store.create_run(a_run(private=False))
    store.record_progress(ledger=[a_ledger_row()])
    with pytest.raises(StoreError, match="guarantees nothing"):
        store.add_batch(a_batch(1), some_samples(1))
    store.add_batch(a_batch(1, private=False), some_samples(1))


def test_adding_a_batch_again_changes_nothing(store: Store) -> None:
    paid_run(store)
    batch_id = store.add_batch(a_batch(4), some_samples(4))
    assert store.add_batch(a_batch(4), some_samples(4)) == batch_id
    assert (len(store.batches("run-1")), store.count_samples(EVERYTHING)) == (1, 4)
    for changes in ({"purpose": "strip"}, {"seed": 18}):
        assert store.add_batch(a_batch(4, **changes), some_samples(4)) != batch_id
    assert store.count_samples(EVERYTHING) == 12


@pytest.mark.parametrize("changes", [{"checkpoint_sha256": "other"}, {"count": 3}])
def test_another_batch_under_the_same_key_is_refused(store: Store, changes: Any) -> None:
    paid_run(store)
    store.add_batch(a_batch(4), some_samples(4))
    other = a_batch(**{"count": 4} | changes)
    with pytest.raises(StoreError, match=next(iter(changes))):
        store.add_batch(other, some_samples(other.count))
    assert store.count_samples(EVERYTHING) == 4


def test_a_batch_is_stored_whole_or_not_at_all(store: Store) -> None:
    paid_run(store)
    good = some_samples(3)

    def breaking() -> Iterator[SampleRecord]:
        yield good[0]
        raise RuntimeError("generator died")

    with pytest.raises(RuntimeError):
        store.add_batch(a_batch(3), breaking())
    bad: list[tuple[str, BatchRecord, list[SampleRecord]]] = [
        ("count", a_batch(2), good),
        ("position", a_batch(3), [good[0], good[1], replace(good[2], position=1)]),
        ("png", a_batch(3), [*good[:2], replace(good[2], png=b"no image")]),
        ("sha256", a_batch(3), [*good[:2], replace(good[2], sha256=good[1].sha256)]),
    ]
    for named, record, samples in bad:
        with pytest.raises(StoreError, match=named):
            store.add_batch(record, samples)
    assert (store.batches("run-1"), store.count_samples(EVERYTHING)) == ([], 0)


def test_a_collapsed_generator_may_repeat_itself(store: Store) -> None:
    paid_run(store)
    one = some_samples(1)[0]
    store.add_batch(a_batch(3), [replace(one, position=place) for place in range(3)])
    assert len(store.samples(SampleFilter(sha256=one.sha256))) == 3


def test_filters_choose_and_pages_cover_everything_once(store: Store) -> None:
    paid_run(store)
    store.record_progress(ledger=[a_ledger_row(1, 2)])
    first = store.add_batch(a_batch(25), some_samples(25))
    store.add_batch(a_batch(8, purpose="strip"), some_samples(8, seed=1))
    store.add_batch(a_batch(12, round=2, ledger_index=1), some_samples(12, seed=2))

    def positions(**wanted: Any) -> list[int]:
        found = store.samples(SampleFilter(**wanted))
        assert store.count_samples(SampleFilter(**wanted)) == len(found)
        return [sample.position for sample in found]

    assert len(positions()) == 45
    assert positions(run_id="other") == []
    assert positions(round=2) == list(range(12))
    assert positions(purpose="strip") == list(range(8))
    assert positions(batch_id=first, requested_class=3) == [3, 13, 23]
    assert positions(round=1, purpose="curated", requested_class=0) == [0, 10, 20]
    pages = [store.samples(EVERYTHING, offset, 10) for offset in range(0, 60, 10)]
    assert [len(page) for page in pages] == [10, 10, 10, 10, 5, 0]
    assert [s.sample_id for page in pages for s in page] == sorted(
        s.sample_id for s in store.samples(EVERYTHING)
    )
    with pytest.raises(StoreError, match="limit = -1"):
        store.samples(EVERYTHING, 0, -1)


def test_an_unknown_sample_or_batch_is_named(store: Store) -> None:
    with pytest.raises(StoreError, match="sample_id = 5"):
        store.sample(5)
    with pytest.raises(StoreError, match="batch_id = 6"):
        store.batch(6)


def test_a_large_batch_and_a_large_page_are_a_few_statements(store: Store) -> None:
    paid_run(store)
    samples = some_samples(2000)
    assert _statements(lambda: store.add_batch(a_batch(2000), samples)) < 20
    assert _statements(lambda: store.samples(EVERYTHING, 500, 1000)) < 5


def _statements(step: Callable[[], object]) -> int:
    """How often a database is asked something."""
    asked = []

    def note(*_: object) -> None:
        asked.append(1)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        step()
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    return len(asked)


def test_samples_are_found_and_sorted_by_agreement(store: Store) -> None:
    paid_run(store)
    agreed = (0.5, None, 0.9, 0.1)
    made = [replace(s, agreement=a) for s, a in zip(some_samples(4), agreed, strict=True)]
    store.add_batch(a_batch(4, rejected={"0": 0.25, "1": 0.0}), made)

    def positions(order: SampleOrder = "stored", **wanted: float) -> list[int]:
        return [s.position for s in store.samples(SampleFilter(**wanted), order=order)]

    assert positions("least agreed") == [3, 0, 2, 1]
    assert positions("most agreed") == [2, 0, 3, 1]
    assert positions(least_agreement=0.5) == [0, 2]
    assert positions(most_agreement=0.5) == [0, 3]
    assert [s.agreement for s in store.samples(SampleFilter())] == list(agreed)
    assert store.batches("run-1")[0].rejected == {"0": 0.25, "1": 0.0}
    with pytest.raises(StoreError, match="order"):
        store.samples(SampleFilter(), order="by hand")  # type: ignore[arg-type]


def test_agreement_and_rejections_are_shares() -> None:
    for wrong in (-0.1, 1.1, math.nan):
        with pytest.raises(StoreError, match="agreement"):
            replace(some_samples(1)[0], agreement=wrong)
        with pytest.raises(StoreError, match="rejected"):
            a_batch(1, rejected={"3": wrong})
    with pytest.raises(StoreError, match="number"):
        a_batch(1, rejected={"seven": 0.5})


def test_samples_by_label_are_paged_in_their_order_as_they_were_counted(store: Store) -> None:
    """Answers given in another order, by two people, superseded and undone."""
    paid_run(store)
    store.add_batch(a_batch(8), some_samples(8))
    project = store.create_project(a_project())
    zero, one = (label.label_id for label in store.labels(project)[:2])
    ids = [sample.sample_id for sample in store.samples(SampleFilter())]
    ann, bob = store.ensure_user("ann"), store.ensure_user("bob")
    said = [(ann, place, zero) for place in (7, 2, 5, 0, 4)] + [(bob, 2, zero), (ann, 5, one)]
    for number, (user, place, label) in enumerate(said):
        answer = Annotation(
            client_uuid=f"uuid-{number}",
            project_id=project,
            sample_id=ids[place],
            user_id=user,
            label_id=label,
        )
        store.annotate(answer)
    store.undo(project, ann, sample_id=ids[4])
    wanted = SampleFilter(run_id="run-1", label_id=zero)
    assert store.count_samples(wanted) == 3
    expected = [ids[place] for place in (0, 2, 7)]
    assert [sample.sample_id for sample in store.samples(wanted)] == expected
    paged = [store.samples(wanted, offset=at, limit=1)[0].sample_id for at in range(3)]
    assert paged == expected and store.samples(wanted, offset=3) == []
    by_class = SampleFilter(run_id="run-1", label_id=zero, requested_class=2)
    assert [sample.sample_id for sample in store.samples(by_class)] == [ids[2]]
    agreed = store.samples(wanted, order="least agreed")
    assert sorted(sample.sample_id for sample in agreed) == expected


def test_the_classes_of_a_run_are_those_of_all_its_batches(store: Store) -> None:
    paid_run(store)
    assert store.requested_classes("run-1") == []
    store.add_batch(a_batch(3), some_samples(3))
    store.add_batch(a_batch(0, seed=18), [])
    odd = replace(some_samples(1)[0], requested_class=41)
    store.add_batch(a_batch(1, seed=19), [odd])
    assert store.requested_classes("run-1") == [0, 1, 2, 41]


def test_samples_are_found_by_their_ids_in_the_order_given(store: Store) -> None:
    paid_run(store)
    store.add_batch(a_batch(4), some_samples(4))
    first, second, third, _ = store.samples(EVERYTHING)
    ids = [third.sample_id, 10**6, first.sample_id, second.sample_id]
    assert store.samples_by_id(ids) == [third, first, second]
    assert store.samples_by_id([]) == []
